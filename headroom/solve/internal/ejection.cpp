#include "headroom/solve/internal/ejection.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace headroom::solve::internal {
namespace {

constexpr std::uint64_t kMovesPerQuestion = 32;
// How much dearer it gets to throw somebody out who found no free place.
constexpr double kPriceRise = 1.2;
// Large items are worth more than their area: many small ones find a place sooner.
constexpr double kAreaPower = 1.2;
// A pool that has grown by so much, and so many average items, does not come down again.
constexpr double kMostGrowth = 3;
constexpr double kMostGrowthItems = 3;
constexpr std::size_t kSmallPool = 100;
// Prices are a part of the search, not to be exact: between equals, chance decides.
constexpr double kNoise = 0.1;
constexpr int kPicks = 4;
// Of an insertion, on average, before a sort is quicker.
constexpr std::size_t kMostSteps = 16;

}  // namespace

Ejection::Ejection(const Part& part) : part_(part), index_(part), prices_(part.items.size(), 1.0) {
  for (const Item& item : part.items) {
    areas_.push_back(
        std::pow(static_cast<double>(item.size) * (item.upper - item.lower), kAreaPower));
    mean_area_ += areas_.back() / static_cast<double>(part.items.size());
  }
}

bool Ejection::lower(std::uint64_t height,
                     std::uint64_t seed,
                     const Limits& limits,
                     Offsets& offsets) {
  random_.seed(seed);
  for (const Item& item : part_.items) {
    if (item.size > height) return false;
  }
  start(height, offsets);
  const double most_area = kMostGrowth * pool_area_ + kMostGrowthItems * mean_area_;
  const std::size_t most_items = pool_.size() + std::max(kSmallPool, part_.items.size() / 20);
  std::uint64_t moves = 0;
  while (!pool_.empty()) {
    const bool asks = ++moves % kMovesPerQuestion == 0;
    if (moves > limits.most_moves || (asks && limits.is_over && limits.is_over())) return false;
    place(take_from_pool(), height);
    if (pool_area_ > most_area || pool_.size() > most_items) return false;
  }
  offsets = places_;
  return true;
}

void Ejection::start(std::uint64_t height, const Offsets& offsets) {
  index_.clear();
  pool_.clear();
  pool_area_ = 0;
  places_ = offsets;
  for (std::uint32_t i = 0; i < part_.items.size(); ++i) {
    if (offsets[i] + part_.items[i].size > height) {
      add_to_pool(i);
    } else {
      index_.insert(i, offsets[i]);
    }
  }
}

void Ejection::add_to_pool(std::uint32_t item) {
  pool_.push_back(item);
  pool_area_ += areas_[item];
}

// The largest of a few: large ones throw out small ones, and those find a place.
std::uint32_t Ejection::take_from_pool() {
  std::size_t best = pool_.size() - 1;
  for (int i = 0; i < kPicks; ++i) {
    const std::size_t other = random_() % pool_.size();
    if (areas_[pool_[other]] > areas_[pool_[best]]) best = other;
  }
  const std::uint32_t item = pool_[best];
  pool_[best] = pool_.back();
  pool_.pop_back();
  pool_area_ = pool_.empty() ? 0 : pool_area_ - areas_[item];
  return item;
}

void Ejection::place(std::uint32_t id, std::uint64_t height) {
  const Item& item = part_.items[id];
  std::uint64_t offset = index_.lowest_offset(item, height);
  if (offset == UINT64_MAX) {
    prices_[id] *= kPriceRise;
    offset = cheapest_place(item, height);
    eject_owners(item, offset);
  }
  put(id, offset);
}

// Most tops are in the order of the offsets already, or a few places off.
void Ejection::sort_by_top() {
  by_top_ = by_offset_;
  std::size_t steps = kMostSteps * by_top_.size();
  for (std::size_t i = 1; i < by_top_.size(); ++i) {
    const Owner one = by_top_[i];
    std::size_t to = i;
    while (to > 0 && by_top_[to - 1].top > one.top && steps > 0) {
      by_top_[to] = by_top_[to - 1];
      --to;
      --steps;
    }
    by_top_[to] = one;
    if (steps > 0) continue;
    std::ranges::sort(by_top_, {}, &Owner::top);
    return;
  }
}

std::uint64_t Ejection::cheapest_place(const Item& item, std::uint64_t height) {
  by_offset_.clear();
  for (const auto& one : index_.neighbourhood(item)) {
    if (one.lower >= item.upper || one.upper <= item.lower) continue;
    by_offset_.push_back({one.offset, one.top, prices_[one.item] * areas_[one.item]});
  }
  sort_by_top();
  std::uint64_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  double reached = 0;  // the price of all that begin below the item's end
  double passed = 0;   // of those that end below its start
  std::size_t begun = 0;
  std::size_t ended = 0;
  std::uint64_t offset = 0;
  for (std::size_t k = 0; k <= by_top_.size(); ++k) {
    if (k > 0) {
      if (aligned(by_top_[k - 1].top, item.alignment) == offset) continue;
      offset = aligned(by_top_[k - 1].top, item.alignment);
    }
    if (offset > height - item.size) break;
    while (begun < by_offset_.size() && by_offset_[begun].offset < offset + item.size) {
      reached += by_offset_[begun++].price;
    }
    while (ended < by_top_.size() && by_top_[ended].top <= offset) passed += by_top_[ended++].price;
    const double noise = 1 + kNoise * static_cast<double>(random_() % 1024) / 1024;
    const double price = (reached - passed) * noise;
    if (price < least) {
      least = price;
      best = offset;
    }
  }
  return best;
}

void Ejection::eject_owners(const Item& item, std::uint64_t offset) {
  owners_.clear();
  for (const auto& one : index_.neighbourhood(item)) {
    if (one.offset >= offset + item.size) break;
    if (one.lower >= item.upper || one.upper <= item.lower || one.top <= offset) continue;
    owners_.push_back(one.item);
  }
  for (const std::uint32_t owner : owners_) {
    index_.erase(owner, places_[owner]);
    add_to_pool(owner);
  }
}

void Ejection::put(std::uint32_t item, std::uint64_t offset) {
  places_[item] = offset;
  index_.insert(item, offset);
}

}  // namespace headroom::solve::internal
