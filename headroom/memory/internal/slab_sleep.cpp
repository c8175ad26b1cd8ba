#include "headroom/memory/internal/slab_sleep.h"

#include "headroom/memory/internal/slab_lists.h"

namespace headroom::memory::internal {
namespace {

// The slabs of a page that have free blocks.
template <class Function>
void for_each_slab_with_room(SlabPage& page, Function&& function) {
  for (std::size_t granule = 0; granule < kPageGranules;) {
    if ((page.free_granules >> granule & 1U) != 0) {
      ++granule;
      continue;
    }
    Slab& slab = page.slabs[granule];
    granule += kClasses[slab.size_class].slab_granules;
    if (slab.free_blocks > 0) function(slab);
  }
}

}  // namespace

std::optional<SleepingSlabs> SlabSleep::look_at(
    DeviceAddress page, const std::function<bool(const SlabBlock&)>& is_meant) const {
  SlabPage* const found = heap_.place_of(page).page;
  if (found == nullptr || found->owner == nullptr) return std::nullopt;
  SleepingSlabs slabs{.page = found, .owner = found->owner};
  for (std::size_t i = 0; i < SlabPage::kSlots; ++i) {
    const SlotWord word(found->word_at(i));
    if (word.bits() == 0) continue;
    if (!word.is_held() || word.is_used_elsewhere()) return std::nullopt;
    const SlabBlock block = SlabHeap::describe(found->address + i * kMinBlockBytes, *found, word);
    if (!is_meant(block)) return std::nullopt;
    slabs.held.push_back({.block = block, .word = word});
  }
  if (slabs.held.empty()) return std::nullopt;
  return slabs;
}

// Word by word, as a free that takes no lock changes them.
bool SlabSleep::take_out(SleepingSlabs& slabs) noexcept {
  SlabPage& page = *slabs.page;
  for (std::size_t i = 0; i < slabs.held.size(); ++i) {
    std::uint64_t expected = slabs.held[i].word.bits();
    if (page.word_of(slabs.held[i].block.address).compare_exchange_strong(expected, 0)) continue;
    for (; i > 0; --i) {
      page.word_of(slabs.held[i - 1].block.address).store(slabs.held[i - 1].word.bits());
    }
    return false;
  }
  for_each_slab_with_room(
      page, [&](Slab& slab) { unlink_from(slabs.owner->with_free_blocks[slab.size_class], slab); });
  if (page.free_granules != 0) unlink_from(slabs.owner->with_free_granules, page);
  page.owner = nullptr;
  heap_.page_bytes_ -= kSlabPageBytes;
  heap_.taken_bytes_ -= slabs.held_bytes();
  return true;
}

void SlabSleep::put_back(SleepingSlabs& slabs) noexcept {
  SlabPage& page = *slabs.page;
  page.owner = slabs.owner;
  if (page.free_granules != 0) link_in(slabs.owner->with_free_granules, page);
  for_each_slab_with_room(
      page, [&](Slab& slab) { link_in(slabs.owner->with_free_blocks[slab.size_class], slab); });
  heap_.page_bytes_ += kSlabPageBytes;
  heap_.taken_bytes_ += slabs.held_bytes();
  for (const SleepingSlot& slot : slabs.held) {
    page.word_of(slot.block.address).store(slot.word.bits());
  }
}

void SlabSleep::free(SleepingSlabs& slabs, std::size_t index) noexcept {
  const DeviceAddress address = slabs.held[index].block.address;
  slabs.held.erase(slabs.held.begin() + static_cast<std::ptrdiff_t>(index));
  Slab& slab = slabs.page->slab_of(address);
  const SizeClass& kind = kClasses[slab.size_class];
  slab.put(slab.index_of(address));
  if (slab.free_blocks < kind.slab_blocks) return;
  slabs.page->free_granules |=
      granule_mask((slab.address - slabs.page->address) / kGranuleBytes, kind.slab_granules);
  slab.page = nullptr;
}

}  // namespace headroom::memory::internal
