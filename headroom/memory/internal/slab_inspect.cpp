// A SlabHeap seen from outside: blocks, segments, invariants.
#include <algorithm>

#include "headroom/memory/internal/slab_heap.h"
#include "headroom/memory/internal/slab_walk.h"

namespace headroom::memory::internal {
namespace {

BlockState block_state_of(SlotState state) noexcept {
  if (state == SlotState::kHeld) return BlockState::kAllocated;
  return state == SlotState::kPending ? BlockState::kPendingFree : BlockState::kInactive;
}

// One block of a slab; what is free and what is cached look the same from outside.
BlockInfo slot_info(DeviceAddress address, std::uint64_t size_bytes, SlotWord word) noexcept {
  BlockInfo info{
      .address = address, .size_bytes = size_bytes, .state = block_state_of(word.state())};
  if (info.state == BlockState::kInactive) return info;
  info.requested_bytes = word.requested_bytes();
  info.category = word.context().category;
  info.annotation = word.context().annotation;
  return info;
}

// Fills the segment up to `end`.
void pad_segment(SegmentInfo& segment, DeviceAddress end) {
  const DeviceAddress at = segment.blocks.empty()
                               ? segment.address
                               : segment.blocks.back().address + segment.blocks.back().size_bytes;
  if (at < end) segment.blocks.push_back({.address = at, .size_bytes = end - at});
}

}  // namespace

SlabBlock SlabHeap::describe(DeviceAddress address, const SlabPage& page, SlotWord word) noexcept {
  return {.address = address,
          .size_bytes = kClasses[word.size_class()].block_bytes,
          .requested_bytes = word.requested_bytes(),
          .stream = page.stream.load(std::memory_order_relaxed),
          .context = word.context(),
          .is_used_elsewhere = word.is_used_elsewhere(),
          .is_pending = word.state() == SlotState::kPending};
}

// By address.
template <class Function>
void SlabHeap::for_each_slab(const SlabPage& page, Function&& function) {
  for (std::size_t granule = 0; granule < kPageGranules;) {
    if ((page.free_granules >> granule & 1U) != 0) {
      ++granule;
      continue;
    }
    const Slab& slab = page.slabs[granule];
    function(slab);
    granule += kClasses[slab.size_class].slab_granules;
  }
}

void SlabHeap::add_to(Fingerprint& print) const {
  for_each_page([&](const SlabPage& page) {
    print.add(offset_of(page.address)).add(page.free_granules);
    for_each_slab(page, [&](const Slab& slab) {
      print.add(slab.size_class);
      for (const std::uint64_t bits : slab.free_bits) print.add(bits);
    });
  });
  for (const auto& [stream, slabs] : streams_) {
    print.add(static_cast<std::uint64_t>(stream)).add(slabs.spare != nullptr ? 1 : 0);
    for (const Slab* slab : slabs.with_free_blocks) {
      for (; slab != nullptr; slab = slab->next) print.add(offset_of(slab->address));
    }
    for (const SlabPage* page = slabs.with_free_granules; page != nullptr; page = page->next) {
      print.add(offset_of(page->address));
    }
  }
  for (const auto& cache : caches_) {
    for (const auto& magazines : cache->streams) magazines->add_to(print, region_base_.load());
  }
}

std::vector<SegmentInfo> SlabHeap::segments() const {
  std::vector<SegmentInfo> segments;
  for_each_page([&](const SlabPage& page) {
    SegmentInfo segment{.address = page.address,
                        .size_bytes = kSlabPageBytes,
                        .stream = page.stream.load(std::memory_order_relaxed),
                        .is_small = true,
                        .is_expandable = true};  // as it came: mapped into an arena
    for_each_slab(page, [&](const Slab& slab) {
      pad_segment(segment, slab.address);
      const SizeClass& kind = kClasses[slab.size_class];
      for (std::size_t i = 0; i < kind.slab_blocks; ++i) {
        const DeviceAddress address = slab.address + i * kind.block_bytes;
        const std::size_t slot = (address - page.address) / kMinBlockBytes;
        const SlotWord word(page.word_at(slot));
        segment.blocks.push_back(slot_info(address, kind.block_bytes, word));
      }
    });
    pad_segment(segment, page.address + kSlabPageBytes);
    segments.push_back(std::move(segment));
  });
  return segments;
}

// --- Invariants ----------------------------------------------------------------------------------

namespace {

// A slab's own bits against the words of its blocks; counts the blocks that are not in it.
std::optional<std::string> check_slab(const SlabPage& page,
                                      const Slab& slab,
                                      std::uint64_t& taken_bytes) {
  const SizeClass& kind = kClasses[slab.size_class];
  if (slab.page != &page) return "a slab is not of the page it lies in";
  std::size_t free_blocks = 0;
  for (std::size_t i = 0; i < kind.slab_blocks; ++i) {
    const std::size_t slot = (slab.address - page.address + i * kind.block_bytes) / kMinBlockBytes;
    const SlotWord word(page.word_at(slot));
    const bool is_free = word.state() == SlotState::kFree;
    if (slab.is_free(i) != is_free) return "a slab and the word of its block disagree";
    if (word.state() == SlotState::kHeld && word.size_class() != slab.size_class) {
      return "a block is not of its slab's class";
    }
    free_blocks += is_free ? 1 : 0;
  }
  if (free_blocks != slab.free_blocks) return "a slab miscounts its free blocks";
  if (free_blocks == kind.slab_blocks) return "an empty slab was kept";
  taken_bytes += (kind.slab_blocks - free_blocks) * kind.block_bytes;
  return std::nullopt;
}

}  // namespace

std::optional<std::string> SlabHeap::check_page(const SlabPage& page,
                                                std::uint64_t& taken_bytes) const {
  std::optional<std::string> problem;
  std::uint64_t taken = 0;
  std::size_t taken_slots = 0;
  for_each_slab(page, [&](const Slab& slab) {
    if (problem) return;
    problem = check_slab(page, slab, taken);
    taken_slots += kClasses[slab.size_class].slab_blocks - slab.free_blocks;
  });
  if (problem) return problem;
  const auto used = static_cast<std::size_t>(std::ranges::count_if(
      page.words, [](const Slot& word) { return word.load(std::memory_order_relaxed) != 0; }));
  if (used != taken_slots) return "a word is set where no block starts";
  if (page.is_empty() != (page.owner->spare == &page)) return "an empty page is not the spare one";
  taken_bytes += taken;
  return std::nullopt;
}

std::optional<std::string> SlabHeap::check_magazines() const {
  std::optional<std::string> problem;
  for (const auto& cache : caches_) {
    if (!cache->tally.is_empty()) return "a tally was not folded";
    for (const auto& magazines : cache->streams) {
      std::uint64_t bytes = 0;
      magazines->for_each([&](std::size_t size_class, const SlabSlot& slot) {
        SlabPage& page = *place_of(slot.address).page;
        const bool is_ours = page.stream == magazines->stream() &&
                             page.slab_of(slot.address).size_class == size_class;
        if (!is_ours) problem = "a magazine holds a block of another stream or class";
        if (SlotWord(*slot.word).state() != SlotState::kCached) {
          problem = "a magazine holds a block that is not cached";
        }
        bytes += kClasses[size_class].block_bytes;
      });
      if (bytes != magazines->cached_bytes()) problem = "a magazine miscounts its bytes";
      if (bytes > kMagazineBytes) problem = "a magazine holds too much";
    }
  }
  return problem;
}

std::optional<std::string> SlabHeap::check() const {
  std::optional<std::string> problem = check_magazines();
  std::uint64_t pages_bytes = 0;
  std::uint64_t taken_bytes = 0;
  for_each_page([&](const SlabPage& page) {
    pages_bytes += kSlabPageBytes;
    if (!problem) problem = check_page(page, taken_bytes);
  });
  if (problem) return problem;
  if (pages_bytes != page_bytes_) return "the slab pages do not sum up";
  if (taken_bytes != taken_bytes_) return "the blocks out of their slabs do not sum up";
  std::uint64_t live = 0;
  for_each_block([&](const SlabBlock& block) { live += block.size_bytes; });
  if (live != live_bytes()) return "the live blocks of the slabs do not sum up";
  return std::nullopt;
}

}  // namespace headroom::memory::internal
