#include "headroom/memory/paged/internal/page_mover.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "headroom/memory/internal/shortage.h"

namespace headroom::memory::internal {

using device::DeviceResult;

Backed PageMover::back(PageArena& arena, const PageWindow& window, PageSupply supply) {
  PagePlan plan = planner_.draw(arena, window, supply);
  if (!plan.is_possible()) {
    planner_.forget(plan);
    return {.missing_bytes = plan.missing * arena.slot_bytes};
  }
  revive_mapped(plan);
  prepare(plan);
  auto done = create_missing(plan);
  if (done) done = order_streams(plan);
  if (done) done = unmap_in_the_way(*plan.arena, plan.needs);
  if (done) done = map(*plan.arena, plan.needs);
  if (!done) {
    planner_.forget(plan);
    return {.outcome = Backing::kDeviceFailed, .status = done.error()};
  }
  return {.outcome = Backing::kDone, .hole = &commit(plan)};
}

Backed PageMover::back_between_ends(PageArena& arena, const EndsWindow& window, PageSupply supply) {
  // A window of whole slots, between vacant ones that are not its own.
  const DeviceAddress begin = arena.address_of(window.middle.first);
  const DeviceAddress end = arena.address_of(window.middle.last);
  PagePlan plan = planner_.draw(
      arena, {.begin = begin, .end = end, .run_begin = begin, .run_end = end}, supply);
  if (!plan.is_possible()) {
    planner_.forget(plan);
    return {.missing_bytes = plan.missing * arena.slot_bytes};
  }
  revive_mapped(plan);
  std::vector<NewHome> ends;
  const auto add_end = [&](const PageEnd& part, std::uint64_t slot) {
    if (part.page != nullptr) ends.push_back({slot, part.page->pages, part.page});
  };
  add_end(window.head, window.head_slot);
  add_end(window.tail, window.tail_slot);
  std::vector<NewHome> places;  // to map
  places.reserve(plan.needs.size() + ends.size());
  std::uint64_t top = arena.top;
  for (const NewHome& part : ends) {
    top = std::max(top, part.slot + part.pages->span);
    part.page->mapped.reserve(part.page->mapped.size() + 1);
    const bool is_mapped = part.slot < arena.slots.size() &&
                           arena.slots[part.slot].page == part.page &&
                           arena.slots[part.slot].first == part.slot;
    if (!is_mapped) places.push_back(part);
  }
  prepare(plan);
  handles_.reserve(plan.needs.size() + ends.size());
  table_.prepare_settling(arena, top, 2 * (plan.taken.size() + plan.needs.size()) + 16, 0);
  table_.prepare_loans(ends.size());
  auto done = create_missing(plan);
  if (done) {
    places.insert(places.end(), plan.needs.begin(), plan.needs.end());
    std::ranges::sort(places, {}, &NewHome::slot);
    done = order_streams(plan);
  }
  if (done) done = unmap_in_the_way(arena, places);
  if (done) done = map(arena, places);
  if (!done) {
    planner_.forget(plan);
    return {.outcome = Backing::kDeviceFailed, .status = done.error()};
  }
  PagedBlock* hole = nullptr;
  if (window.head.page != nullptr) {
    const std::uint64_t bytes = window.head.page->pages->page_bytes;
    hole = &table_.lend(
        *window.head.hole, {&arena, window.head_slot}, bytes - window.head.bytes, bytes);
  }
  if (window.tail.page != nullptr) {
    hole = &table_.lend(*window.tail.hole, {&arena, window.tail_slot}, 0, window.tail.bytes);
  }
  if (window.middle.size() > 0) hole = &commit(plan);
  return {.outcome = Backing::kDone, .hole = hole};
}

void PageMover::bring_home(PageArena& arena, std::vector<NewHome> homes) {
  PagePlan plan{.arena = &arena};
  for (const NewHome& home : homes) plan.taken.push_back(home.page);
  plan.needs = std::move(homes);
  revive_mapped(plan);
  for (const NewHome& need : plan.needs) {
    for (std::uint64_t i = need.slot; i < need.slot + need.pages->span; ++i) {
      if (table_.is_in_the_way(arena, i)) return;
    }
  }
  for (Page* page : plan.taken) table_.mark_taken(*page);
  prepare(plan);
  auto done = unmap_in_the_way(arena, plan.needs);
  if (done) done = map(arena, plan.needs);
  if (done) {
    (void)commit(plan);
  } else {
    planner_.forget(plan);
  }
}

// Places that map the page which they are to get already, from an earlier step.
void PageMover::revive_mapped(PagePlan& plan) {
  const std::vector<PageSlot>& slots = plan.arena->slots;
  const auto is_mapped = [&](const NewHome& need) {
    return need.page != nullptr && need.slot < slots.size() && slots[need.slot].page == need.page &&
           slots[need.slot].first == need.slot;
  };
  std::ranges::copy_if(plan.needs, std::back_inserter(plan.revived), is_mapped);
  std::erase_if(plan.needs, is_mapped);
}

// All host memory that carrying out the plan takes.
void PageMover::prepare(PagePlan& plan) {
  std::uint64_t top = 0;
  std::size_t to_create = 0;
  for (const NewHome& need : plan.revived) top = std::max(top, need.slot + need.pages->span);
  for (const NewHome& need : plan.needs) {
    top = std::max(top, need.slot + need.pages->span);
    to_create += need.page == nullptr ? 1 : 0;
  }
  plan.needs.reserve(plan.needs.size() + plan.revived.size());
  plan.taken.reserve(plan.taken.size() + to_create);
  handles_.reserve(plan.needs.size());
  for (Page* page : plan.taken) page->mapped.reserve(page->mapped.size() + 1);
  table_.prepare_settling(*plan.arena, top, plan.taken.size() + plan.needs.size(), to_create);
}

// --- The device's half ---------------------------------------------------------------------------

DeviceResult<Page*> PageMover::create_page(PageClass& pages) {
  table_.prepare_page(pages);
  const auto handle = device_.create_pages(pages.page_bytes, {.exportable = true});
  if (!handle) {
    budget_.set_device_is_short(is_shortage(handle.error()));
    return Unexpected(handle.error());
  }
  return &table_.add_page(pages, *handle);
}

DeviceResult<void> PageMover::create_missing(PagePlan& plan) {
  for (NewHome& need : plan.needs) {
    if (need.page != nullptr) continue;
    const auto page = create_page(*need.pages);
    if (!page) return Unexpected(page.error());
    need.page = *page;
    plan.taken.push_back(*page);
  }
  return {};
}

// Work queued from now on for the window runs behind the work on the streams that its
// pages come from.
DeviceResult<void> PageMover::order_streams(const PagePlan& plan) noexcept {
  const StreamClock& own = *plan.arena->clock;
  const auto donor_of = [&](const Page* page) {
    return page->home.arena == nullptr || page->home.arena->clock == &own ? nullptr
                                                                          : page->home.arena->clock;
  };
  for (auto page = plan.taken.begin(); page != plan.taken.end(); ++page) {
    const StreamClock* const donor = donor_of(*page);
    const auto is_of_donor = [&](const Page* earlier) { return donor_of(earlier) == donor; };
    if (donor == nullptr || std::any_of(plan.taken.begin(), page, is_of_donor)) continue;
    if (auto ordered = clocks_.order(own, *donor); !ordered) return ordered;
  }
  return {};
}

DeviceResult<void> PageMover::unmap(Page& page, PagePlace place) noexcept {
  const auto unmapped =
      device_.unmap_pages(place.arena->address_of(place.slot), page.pages->page_bytes);
  if (!unmapped && !is_gone(unmapped.error())) return Unexpected(unmapped.error());
  table_.remove_mapping(page, place);
  return {};
}

DeviceResult<void> PageMover::unmap_in_the_way(PageArena& arena,
                                               std::span<const NewHome> places) noexcept {
  for (const NewHome& place : places) {
    for (std::uint64_t i = place.slot; i < place.slot + place.pages->span; ++i) {
      const PageSlot slot = arena.slots[i];
      if (slot.page == nullptr) continue;
      if (auto unmapped = unmap(*slot.page, {&arena, slot.first}); !unmapped) return unmapped;
    }
  }
  return {};
}

// Neighbours in one call.
DeviceResult<void> PageMover::map(PageArena& arena, std::span<const NewHome> places) noexcept {
  for (std::size_t first = 0; first < places.size();) {
    std::size_t last = first + 1;
    while (last < places.size() &&
           places[last].slot == places[last - 1].slot + places[last - 1].pages->span) {
      ++last;
    }
    if (auto mapped = map_run(arena, places.subspan(first, last - first)); !mapped) return mapped;
    first = last;
  }
  return {};
}

DeviceResult<void> PageMover::map_run(PageArena& arena, std::span<const NewHome> run) noexcept {
  handles_.clear();
  for (const NewHome& place : run) handles_.push_back(place.page->handle);
  const auto mapped = device_.map_pages(arena.address_of(run.front().slot), handles_);
  if (!mapped) return mapped;
  for (const NewHome& place : run) table_.add_mapping(*place.page, {&arena, place.slot});
  return {};
}

// --- The table's half ----------------------------------------------------------------------------

PagedBlock& PageMover::commit(PagePlan& plan) noexcept {
  std::vector<NewHome>& homes = plan.needs;
  homes.insert(homes.end(), plan.revived.begin(), plan.revived.end());
  std::ranges::sort(homes, {}, &NewHome::slot);
  std::erase_if(plan.taken, [](const Page* page) { return page->home.arena == nullptr; });
  return table_.settle(*plan.arena, homes, plan.taken);
}

}  // namespace headroom::memory::internal
