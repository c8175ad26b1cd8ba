// PageTable: which pages there are, which slots map them, and which blocks tile the arenas.
//
// It calls no device: who has created, mapped or unmapped a page says so, and the table keeps the
// rules of ../types.h. Every function requires the allocator's lock.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/checked.h"
#include "headroom/device/device.h"
#include "headroom/memory/paged/internal/page_host.h"
#include "headroom/memory/paged/internal/pages.h"
#include "headroom/memory/paged/internal/stream_clocks.h"

namespace headroom::memory::internal {

class PageTable {
 public:
  PageTable(BlockStore<PagedBlock>& blocks, StreamClocks& clocks, PageHost& host) noexcept
      : blocks_(blocks), clocks_(clocks), host_(host) {}
  PageTable(const PageTable&) = delete;
  PageTable& operator=(const PageTable&) = delete;

  // --- Sizes -----------------------------------------------------------------------------------

  // The large pages' size is a multiple of the whole ones'. Halves are the slots, and half as long
  // as whole pages where the device's granularity allows that.
  void set_page_sizes(std::uint64_t granularity,
                      std::uint64_t whole_bytes,
                      std::uint64_t large_bytes,
                      std::uint64_t slab_bytes);
  [[nodiscard]] PageClass& class_of(PageSize size) noexcept {
    return classes_[static_cast<std::size_t>(size)];
  }
  [[nodiscard]] const PageClass& class_of(PageSize size) const noexcept {
    return classes_[static_cast<std::size_t>(size)];
  }
  [[nodiscard]] std::array<PageClass, kPageSizes>& classes() noexcept { return classes_; }
  [[nodiscard]] const std::array<PageClass, kPageSizes>& classes() const noexcept {
    return classes_;
  }
  [[nodiscard]] std::uint64_t bytes_of(PageSize size) const noexcept {
    return class_of(size).count * class_of(size).page_bytes;
  }
  [[nodiscard]] bool has_halves() const noexcept { return class_of(PageSize::kWhole).span > 1; }
  // How many slots of an arena a page of the usual size takes.
  [[nodiscard]] std::uint64_t usual_span(const PageArena& arena) const noexcept {
    return arena.kind == ArenaKind::kSlab ? 1 : class_of(PageSize::kWhole).span;
  }

  // --- Arenas and their blocks -----------------------------------------------------------------

  [[nodiscard]] std::list<PageArena>& arenas() noexcept { return arenas_; }
  [[nodiscard]] const std::list<PageArena>& arenas() const noexcept { return arenas_; }
  // All that are not private and have holes, in the order of their making, as of begin_search();
  // there may be thousands without. Holes that come later are there too, at the end.
  [[nodiscard]] const std::vector<PageArena*>& with_holes() const noexcept { return with_holes_; }
  // Makes sure that one add_arena or add_private_arena needs no memory.
  void prepare_arena();
  // One unbacked block tiles it.
  PageArena& add_arena(ArenaKind kind,
                       StreamClock& clock,
                       DeviceAddress base,
                       std::uint64_t size) noexcept;
  // Memory of a private pool. One hole tiles it, filed in `free`.
  PageArena& add_private_arena(const PrivateRange& made) noexcept;
  // Makes sure that one grow_private_arena needs no memory.
  void prepare_growth(PageArena& arena);
  // A handle was mapped right behind the arena. Returns the hole that it is part of.
  PagedBlock& grow_private_arena(PageArena& arena,
                                 std::uint64_t size_bytes,
                                 device::PageHandle handle) noexcept;
  // Makes sure that one drop_handle needs no memory.
  void prepare_drop() { blocks_.prepare(2); }
  // The handle, which lies in `hole`, was given back.
  void drop_handle(PageArena& arena, std::size_t index, PagedBlock& hole) noexcept;
  // Nothing of it is mapped, or, of somebody else's memory, its only block is a hole.
  void remove_private_arena(PageArena& arena) noexcept;

  // Those of a stream.
  [[nodiscard]] std::vector<PageArena*> arenas_of(const StreamClock& clock);
  // Nobody uses anything in the arenas, and the stream has passed its frees: the pages there become
  // loose. May throw bad_alloc before anything changed.
  void leave(const std::vector<PageArena*>& arenas);
  // The arena, which has no pages, is another stream's from now on; its clock goes with it.
  static void pass_on(PageArena& arena, StreamId to) noexcept;

  // The first `size_bytes` of a block become a block of their own, as free or backed as the rest.
  PagedBlock& cut_front(PagedBlock& block, std::uint64_t size_bytes) noexcept;
  // Joins a block that has become free with the holes beside it, and files the hole.
  void file_free(PagedBlock& block) noexcept;

  // --- Pages and their mappings ----------------------------------------------------------------

  // Makes sure that one add_page needs no memory.
  void prepare_page(PageClass& pages);
  // A page that was created: loose, and taken by the plan under way.
  Page& add_page(PageClass& pages, device::PageHandle handle) noexcept;
  // A loose page without mappings has gone back to the device.
  void remove_page(Page& page) noexcept;
  // The page is mapped there now: stale, until it is at home there.
  void add_mapping(Page& page, PagePlace place) noexcept;
  void remove_mapping(Page& page, PagePlace place) noexcept;

  // Free pages become loose, in this order. May throw bad_alloc before anything changed.
  void make_loose(const std::vector<Page*>& pages);
  // settle() will need no memory: for slots below `top`, `moved` pages, of which `created` are new.
  void prepare_settling(PageArena& arena,
                        std::uint64_t top,
                        std::size_t moved,
                        std::size_t created);
  // `homes`, sorted by slot, map their pages already, and become the homes of these; the pages
  // among them that were at home elsewhere, `leaving`, are so no longer. Returns the last hole
  // that this makes.
  PagedBlock& settle(PageArena& arena,
                     const std::vector<NewHome>& homes,
                     std::vector<Page*>& leaving) noexcept;

  // --- Loans -----------------------------------------------------------------------------------

  // Makes sure that `count` calls of lend() need no host memory.
  void prepare_loans(std::size_t count);
  // The bytes [begin, end) of a page, which lie in `hole` at its home, are used at `place` from now
  // on, which maps the page and is unbacked. Returns the hole there.
  PagedBlock& lend(PagedBlock& hole,
                   PagePlace place,
                   std::uint64_t begin,
                   std::uint64_t end) noexcept;
  // Parts that nobody uses at the other place are used at home again. Returns how many these were.
  std::size_t take_back_idle();
  // The same at the ends of a block that was there. Without host memory they stay parts of a hole.
  void take_back_at(PageArena& arena, DeviceAddress begin, DeviceAddress end) noexcept;
  [[nodiscard]] std::size_t loans() const noexcept { return loans_.size(); }

  // --- Which pages are free, as of the last search ----------------------------------------------

  void begin_search() noexcept;
  [[nodiscard]] std::uint64_t search_number() const noexcept { return mark_; }
  [[nodiscard]] bool is_free(const Page& page) const noexcept { return page.mark == mark_; }
  void mark_free(Page& page) const noexcept { page.mark = mark_; }
  void mark_taken(Page& page) const noexcept { page.mark = mark_ + 1; }

  // --- Slots -----------------------------------------------------------------------------------

  // A slot as decisions see it: without the stale mapping that an earlier step left there, so that
  // each step decides the same.
  [[nodiscard]] PageSlot seen(const PageArena& arena, std::uint64_t slot) const noexcept {
    if (slot >= arena.slots.size()) return {};
    const PageSlot& is = arena.slots[slot];
    return is.rest == rest_number_ || is_at_home(arena, is) || is.loan != nullptr ? is : PageSlot{};
  }
  // Nobody uses the mapping any more.
  [[nodiscard]] bool may_unmap(const PageArena& arena, const PageSlot& slot) const noexcept {
    return !clocks_.is_capturing() && slot.idle_since <= arena.clock->done;
  }
  // A mapping at the slot may be in use.
  [[nodiscard]] bool is_in_the_way(const PageArena& arena, std::uint64_t slot) const noexcept {
    return slot < arena.slots.size() && arena.slots[slot].page != nullptr &&
           !may_unmap(arena, arena.slots[slot]);
  }
  // The first address behind all that were ever mapped.
  [[nodiscard]] DeviceAddress fresh_address(const PageArena& arena) const noexcept {
    return arena.address_of(round_up(arena.top, usual_span(arena)));
  }
  [[nodiscard]] std::uint64_t stale_mappings() const noexcept { return stale_; }
  [[nodiscard]] std::uint64_t large_out_of_place() const noexcept { return large_out_of_place_; }

  // --- Rests -----------------------------------------------------------------------------------

  // 0 before the first.
  [[nodiscard]] std::uint64_t rest_number() const noexcept { return rest_number_; }
  void begin_rest() noexcept { ++rest_number_; }
  // Changes when a page comes or goes.
  [[nodiscard]] std::uint64_t version() const noexcept { return version_; }
  // Every page that exists, in one order until version() changes.
  template <class Function>
  void for_each_page(Function&& function) {
    for (PageClass& pages : classes_) {
      for (Page& page : pages.all) {
        if (page.handle != device::PageHandle::kNone) function(page);
      }
    }
  }
  // A sentence about the first rule of ../types.h that is broken, or nothing.
  [[nodiscard]] std::optional<std::string> check() const;

 private:
  friend class PageSleep;  // which keeps the rules of what sleeps
  PageArena& take_spare_arena() noexcept;
  void absorb_next(PagedBlock& block) noexcept;
  void leave_homes(std::vector<Page*>& pages) noexcept;
  void unback(PagedBlock& cover, PageArena& arena, SlotRange range) noexcept;
  PagedBlock& back(PageArena& arena, SlotRange range) noexcept;
  PagedBlock& carve_backed(PageArena& arena, SlotRange range) noexcept;
  void file_unbacked(PagedBlock& block) noexcept;
  PagedBlock& file_hole(PagedBlock& block) noexcept;
  [[nodiscard]] static PagedBlock* idle_hole(const PageLoan& loan) noexcept;
  bool take_back_if_idle(PageLoan& loan);
  void take_back(PageLoan& loan, PagedBlock& hole) noexcept;
  [[nodiscard]] std::optional<std::string> check_loans() const;
  [[nodiscard]] std::optional<std::string> check_pages() const;

  BlockStore<PagedBlock>& blocks_;
  StreamClocks& clocks_;
  PageHost& host_;
  std::array<PageClass, kPageSizes> classes_{};
  std::uint64_t slot_bytes_ = 0;
  std::list<PageArena> arenas_{};
  std::list<PageArena> spare_arena_{};  // the next, or none
  std::vector<PageArena*> with_holes_{};
  std::uint32_t last_number_ = 0;
  std::list<PageLoan> loans_{};
  std::list<PageLoan> spare_loans_{};
  std::uint64_t mark_ = 0;
  std::uint64_t stale_ = 0;
  std::uint64_t large_out_of_place_ = 0;
  std::uint64_t version_ = 0;
  std::uint64_t rest_number_ = 0;
};

}  // namespace headroom::memory::internal

#include "headroom/memory/paged/internal/page_table_inline.h"
