// The words of PagedAllocator, a picture of its memory, and its rules as equations. Read
// headroom/memory/types.h before this file: block, allocated, active, reserved and live mean the
// same here.
//
//   page      one piece of physical memory, a handle of the device; mapped whole or not at all
//   arena     a long range of addresses of one stream; it has no memory until pages are mapped
//   slot      one step of an arena's addresses, as long as the smallest page
//   home      the one place (a run of slots) where the bytes of a page count, but for those on loan
//   loan      one end of a page used at a second place, for the begin or the end of a block
//   stale     a slot that maps a page which is at home elsewhere, and that no loan uses
//   loose     a page that is at home nowhere; the slots that still map it are stale
//   backed    a block all of whose slots are homes of pages, or on loan; the others are unbacked
//   hole      a free, backed block: requests are served from holes, by best fit
//   vacant    a hole or an unbacked block: addresses that nobody uses, side by side in a run
//   window    the range of addresses that a request is to get, some of whose pages are missing
//   revive    to make a stale slot the home of the page that it maps, which takes no call
//   slab      a page of 2 MiB that is cut into small blocks, for requests up to 64 KiB
//   cushion   how far above the most that was live pages are created freely
//   tight     how memory is for a while after a request found no free page and could create none:
//             a hole that a block would leave much of is compared with a window between two loans
//   rest      the end of a step that repeats itself (Allocator::mark_step)
//   asleep    a block whose memory went back while its addresses stay (Allocator::sleep); and a
//             slot whose page went back, which is neither home nor stale
//   gap       what was a hole beside a block asleep, in a page that went back with it
//
//   slots     |   p3   .        |   p7   .        |  h1   |   --   |   (p3)  .        |   --   |
//   ... blocks    | held 3 MiB | hole 5 MiB           | held  |unbacked           | unbacked ...
//                ^ p3 and p7 are at home here        ^ a half        ^ still maps p3: stale
//
//   a loan, at home   |   p5   .        |     at the second place   |  (p5)  .        |   p8   |
//   ... blocks        | held      | kLoan |                         | kForeign  | held 3 MiB ...
//
//   The end of p5 is used by the block at the second place alone, and its front at home alone.
//
// Rules, checked by Allocator::check_invariants():
//
//   the blocks of an arena tile it; two neighbours are never both holes, nor both unbacked
//   an unbacked block begins and ends where slots do
//   a slot is home or on loan            ==  a held block or a hole touches it, and it is awake
//   a slot is asleep                     =>  a block asleep touches its page, and else only such
//                                            blocks and gaps
//   a gap                                lies in one page that is asleep
//   loose pages                          ==  pages without a home
//   stale mappings                       ==  mappings of all pages - pages with a home - loans
//   held blocks that are not a user's    ==  2 * loans
//   reserved  ==  sum of all pages' sizes + handles of private pools
//   reserved  <=  PagedBound: live pages + slab residue + cushion + unsettled
#pragma once

#include <cstddef>
#include <cstdint>

namespace headroom::memory {

// Why reserved is what it is: terms that add up to at least reserved, always.
struct PagedBound {
  std::uint64_t reserved_bytes = 0;
  std::uint64_t live_pages_bytes = 0;    // pages that hold a byte of a block in use
  std::uint64_t slab_residue_bytes = 0;  // slab pages in use, less the blocks in use in them
  // The bytes that may be cached beyond: up to the most that was live with the cushion around it,
  // or to what the pages in use once came to, whichever is more.
  std::uint64_t cushion_bytes = 0;
  // Created although pages were free: reserve() asked for them, or those could not be moved just
  // then, because work that was queued still used them or a capture was under way.
  std::uint64_t unsettled_bytes = 0;

  [[nodiscard]] bool is_kept() const noexcept {
    return reserved_bytes <=
           live_pages_bytes + slab_residue_bytes + cushion_bytes + unsettled_bytes;
  }
};

namespace internal {

// The sizes of pages. Whole ones are the rule. Halves leave less unused at the ends of a block, at
// twice the calls; large ones are for large blocks; slab arenas have their own.
enum class PageSize : std::uint8_t { kHalf, kWhole, kLarge, kSlab };
inline constexpr std::size_t kPageSizes = 4;

// The purpose of an arena: blocks that live and die together are kept together.
enum class ArenaKind : std::uint8_t { kNormal, kLarge, kSlab, kPrivate };

}  // namespace internal

}  // namespace headroom::memory
