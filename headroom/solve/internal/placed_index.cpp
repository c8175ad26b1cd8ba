#include "headroom/solve/internal/placed_index.h"

#include <algorithm>
#include <tuple>

namespace headroom::solve::internal {
namespace {

// Below that, looking at all is as fast.
constexpr std::size_t kFewItems = 512;
// Into how many windows of a level an item may go, on average, for the level to be worth it.
constexpr double kMostCopies = 6;

bool is_before(const PlacedIndex::Placed& a, const PlacedIndex::Placed& b) {
  return std::tie(a.offset, a.item) < std::tie(b.offset, b.item);
}

}  // namespace

PlacedIndex::PlacedIndex(const Part& part) : part_(part) {
  std::uint32_t longest = 0;
  for (const Item& item : part.items) longest = std::max(longest, item.upper - item.lower);
  if (part.items.size() > kFewItems) {
    add_levels();
  } else {
    longest = part.moments + 1;
  }
  if (levels_.empty() || levels_.back().stride < longest) add_level(longest);
}

void PlacedIndex::add_level(std::uint32_t stride) {
  levels_.push_back({.stride = stride, .windows = {}});
  levels_.back().windows.resize(part_.moments / stride + 1);
}

void PlacedIndex::add_levels() {
  std::vector<std::uint32_t> lengths;
  double total = 0;
  for (const Item& item : part_.items) {
    lengths.push_back(item.upper - item.lower);
    total += item.upper - item.lower;
  }
  std::ranges::sort(lengths);
  const auto count = static_cast<double>(lengths.size());
  std::uint32_t finer = 0;
  for (const double share : {0.5, 0.8, 0.95}) {
    const std::uint32_t stride = lengths[static_cast<std::size_t>(share * (count - 1))];
    const double copies = total / count / stride + 2;
    if (copies > kMostCopies || stride < 2 * finer || stride > part_.moments / 4) continue;
    add_level(stride);
    finer = stride;
  }
}

void PlacedIndex::clear() {
  for (Level& level : levels_) {
    for (auto& window : level.windows) window.clear();
  }
}

const std::vector<PlacedIndex::Placed>& PlacedIndex::neighbourhood(const Item& item) const {
  for (const Level& level : levels_) {
    if (item.upper - item.lower <= level.stride) return level.windows[item.lower / level.stride];
  }
  return levels_.back().windows.front();
}

std::uint64_t PlacedIndex::lowest_offset(const Item& item, std::uint64_t limit) const {
  std::uint64_t offset = 0;
  for (const Placed& one : neighbourhood(item)) {
    if (one.lower >= item.upper || one.upper <= item.lower) continue;
    if (one.offset >= offset + item.size) break;
    if (one.top > offset) offset = aligned(one.top, item.alignment);
    if (offset > limit) return UINT64_MAX;
  }
  return item.size > limit || offset > limit - item.size ? UINT64_MAX : offset;
}

// Window w reaches over the strides w and w + 1.
template <class Act>
void PlacedIndex::for_windows_of(const Item& item, Act act) {
  for (Level& level : levels_) {
    const std::uint32_t last = (item.upper - 1) / level.stride;
    const std::uint32_t touched = item.lower / level.stride;
    for (std::uint32_t w = touched == 0 ? 0 : touched - 1; w <= last && w < level.windows.size();
         ++w) {
      act(level.windows[w]);
    }
  }
}

void PlacedIndex::insert(std::uint32_t id, std::uint64_t offset) {
  const Item& item = part_.items[id];
  const Placed one{offset, offset + item.size, item.lower, item.upper, id};
  for_windows_of(item, [&](std::vector<Placed>& window) {
    window.insert(std::upper_bound(window.begin(), window.end(), one, is_before), one);
  });
}

void PlacedIndex::erase(std::uint32_t id, std::uint64_t offset) {
  const Item& item = part_.items[id];
  const Placed one{offset, offset + item.size, item.lower, item.upper, id};
  for_windows_of(item, [&](std::vector<Placed>& window) {
    window.erase(std::lower_bound(window.begin(), window.end(), one, is_before));
  });
}

}  // namespace headroom::solve::internal
