// SlabPage: 2 MiB of addresses cut into slabs, and everything that is known of their blocks.
//
// The memory is the device's and not ours to write, so a block's description lies here, in one
// 64-bit word for every 512 bytes of the page; a block's is the word of its first 512. From an
// address to its word is a shift, whatever the size of the block. Words where no block starts, or
// whose block is free, are 0: a wrong address and a second free are told by the word alone, and two
// threads that free the same block are told apart by the compare-and-swap that begins it.
//
//   page    | 0 | 1 | 2 ...                                        31 |   granules of 64 KiB
//   slabs   |  9 KiB x 7 |      52 KiB x 6     |  free ...            |   runs of granules
//   words   |w0.................w18...........                        |   4096, at block starts
//
// A page belongs to one stream at a time. Its description stays for the life of the heap, bound to
// its address, so that threads may read it without a lock.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "headroom/memory/annotation.h"
#include "headroom/memory/internal/size_classes.h"

namespace headroom::memory::internal {

enum class SlotState : std::uint8_t {
  kFree,     // in its slab
  kCached,   // in a magazine
  kHeld,     // handed out
  kPending,  // freed, but another stream may still use it
};

// A block in 64 bits, so that it changes at once and can be read while it changes.
//   0 state  2 used by other streams  3 size class  9 category  13 requested bytes - 1
//   29 being freed: still held, but somebody has begun to free it  32 annotation
class SlotWord {
 public:
  constexpr SlotWord() = default;
  constexpr explicit SlotWord(std::uint64_t bits) noexcept : bits_(bits) {}
  static constexpr SlotWord held(std::size_t size_class,
                                 std::uint64_t requested_bytes,
                                 AllocationContext context) noexcept {
    return SlotWord(std::uint64_t{static_cast<std::uint8_t>(SlotState::kHeld)} |
                    std::uint64_t{size_class} << 3U |
                    std::uint64_t{static_cast<std::uint8_t>(context.category)} << 9U |
                    (requested_bytes - 1) << 13U | std::uint64_t{context.annotation} << 32U);
  }
  static constexpr SlotWord cached() noexcept {
    return SlotWord(static_cast<std::uint64_t>(SlotState::kCached));
  }

  [[nodiscard]] constexpr std::uint64_t bits() const noexcept { return bits_; }
  [[nodiscard]] constexpr SlotState state() const noexcept {
    return static_cast<SlotState>(bits_ & 3U);
  }
  [[nodiscard]] constexpr bool is_used_elsewhere() const noexcept { return (bits_ & 4U) != 0; }
  [[nodiscard]] constexpr std::size_t size_class() const noexcept { return (bits_ >> 3U) & 63U; }
  [[nodiscard]] constexpr std::uint64_t requested_bytes() const noexcept {
    return ((bits_ >> 13U) & 0xFFFFU) + 1;
  }
  [[nodiscard]] constexpr AllocationContext context() const noexcept {
    return {.category = static_cast<Category>((bits_ >> 9U) & 15U),
            .annotation = static_cast<AnnotationId>(bits_ >> 32U)};
  }
  // Held, and nobody has begun to free it.
  [[nodiscard]] constexpr bool is_held() const noexcept {
    return (bits_ & (3U | kBeingFreed)) == static_cast<std::uint64_t>(SlotState::kHeld);
  }
  [[nodiscard]] constexpr SlotWord being_freed() const noexcept {
    return SlotWord(bits_ | kBeingFreed);
  }
  [[nodiscard]] constexpr SlotWord used_elsewhere() const noexcept { return SlotWord(bits_ | 4U); }
  [[nodiscard]] constexpr SlotWord pending() const noexcept {
    return SlotWord(bits_ | static_cast<std::uint64_t>(SlotState::kPending));
  }

 private:
  static constexpr std::uint64_t kBeingFreed = std::uint64_t{1} << 29U;

  std::uint64_t bits_ = 0;
};
static_assert(kSizeClasses <= 64 && kCategoryCount <= 16 && kSlabMaxBytes <= 0x10000);

using Slot = std::atomic<std::uint64_t>;

// A free or cached block: where it is, and its word.
struct SlabSlot {
  DeviceAddress address = 0;
  Slot* word = nullptr;
};

struct SlabPage;
struct StreamSlabs;

// Blocks of one class. Requires the allocator's lock, as all but the words and the stream does.
struct Slab {
  SlabPage* page = nullptr;
  DeviceAddress address = 0;
  std::uint8_t size_class = 0;
  std::uint16_t free_blocks = 0;
  std::array<std::uint64_t, kSlabMaxBlocks / 64> free_bits{};
  // Among the slabs of its class and stream that have free blocks.
  Slab* prev = nullptr;
  Slab* next = nullptr;

  [[nodiscard]] std::size_t index_of(DeviceAddress block) const noexcept {
    // In 32 bits: processors divide these several times as fast.
    return static_cast<std::uint32_t>(block - address) / kClasses[size_class].block_bytes;
  }
  [[nodiscard]] bool is_free(std::size_t index) const noexcept {
    return (free_bits[index / 64] >> (index % 64) & 1U) != 0;
  }
  void put(std::size_t index) noexcept {
    free_bits[index / 64] |= std::uint64_t{1} << (index % 64);
    ++free_blocks;
  }
  // The first free block; there is one.
  [[nodiscard]] std::size_t take() noexcept {
    const std::size_t part = free_bits[0] != 0 ? 0 : 1;
    const auto bit = static_cast<std::size_t>(std::countr_zero(free_bits[part]));
    free_bits[part] &= free_bits[part] - 1;
    --free_blocks;
    return 64 * part + bit;
  }
};
static_assert(kSlabMaxBlocks == 128, "Slab::take looks at two words");

struct SlabPage {
  static constexpr std::uint32_t kAllGranules = 0xFFFFFFFFU;
  static constexpr std::size_t kSlots = kSlabPageBytes / kMinBlockBytes;

  // Read by every free; apart from what changes with every slab.
  alignas(64) std::atomic<StreamId> stream{StreamId::kDefault};

  alignas(64) DeviceAddress address = 0;
  StreamSlabs* owner = nullptr;  // null while the page is the core's
  std::uint32_t free_granules = kAllGranules;
  std::array<std::uint8_t, kPageGranules> first_granule{};  // of the slab a granule belongs to
  std::array<Slab, kPageGranules> slabs{};                  // by first granule
  // Among the pages of its stream that have both slabs and free granules.
  SlabPage* prev = nullptr;
  SlabPage* next = nullptr;

  alignas(64) std::array<Slot, kSlots> words{};

  // Blocks near one another are kept in different cache lines, or threads that hold them would wait
  // for one another's writes. A line has the words of eight blocks that lie 256 KiB and a little
  // less apart: not 256 KiB, because large blocks are at such distances.
  [[nodiscard]] static constexpr std::size_t word_index(std::size_t slot) noexcept {
    constexpr std::size_t kLines = kSlots / 8;
    constexpr std::size_t kLess = 65;  // odd, and more than half of what 64 KiB are
    const std::size_t part = slot / kLines;
    return (slot + kLess * part) % kLines * 8 + part;
  }
  [[nodiscard]] Slot& word_of(DeviceAddress block) noexcept {
    return words[word_index((block - address) / kMinBlockBytes)];
  }
  [[nodiscard]] std::uint64_t word_at(std::size_t slot) const noexcept {
    return words[word_index(slot)].load(std::memory_order_relaxed);
  }
  [[nodiscard]] Slab& slab_of(DeviceAddress block) noexcept {
    return slabs[first_granule[(block - address) / kGranuleBytes]];
  }
  [[nodiscard]] bool is_empty() const noexcept { return free_granules == kAllGranules; }
};
static_assert(kPageGranules == 32);

// The slabs of a stream; requires the lock.
struct StreamSlabs {
  StreamId stream = StreamId::kDefault;
  std::array<Slab*, kSizeClasses> with_free_blocks{};
  SlabPage* with_free_granules = nullptr;
  SlabPage* spare = nullptr;  // one empty page may stay, so that the next block need not ask for it
};

// A block as the core sees it.
struct SlabBlock {
  DeviceAddress address = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t requested_bytes = 0;
  StreamId stream = StreamId::kDefault;
  AllocationContext context{};
  bool is_used_elsewhere = false;
  bool is_pending = false;
};

}  // namespace headroom::memory::internal
