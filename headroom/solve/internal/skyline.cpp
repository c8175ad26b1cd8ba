#include "headroom/solve/internal/skyline.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace headroom::solve::internal {
namespace {

constexpr std::uint64_t kWall = UINT64_MAX;  // the height beyond the last moment
constexpr std::uint64_t kItemsPerQuestion = 32;

class Skyline {
 public:
  Skyline(const Part& part, const SkylineRule& rule) : part_(part), rule_(rule) {
    heights_ = {{0, 0}, {part.moments, kWall}};
    lowest_ = {{0, 0}};
    for (std::uint32_t i = 0; i < part.items.size(); ++i) {
      const Item& item = part.items[i];
      const double length = item.upper - item.lower;
      waiting_.push_back({item.lower,
                          item.upper,
                          i,
                          std::pow(length, rule.length_power) *
                              std::pow(static_cast<double>(item.size), rule.size_power)});
    }
    std::ranges::stable_sort(waiting_, {}, &Waiting::lower);
  }

  std::uint64_t run(const std::function<bool()>& is_over, Offsets& offsets) {
    std::size_t left = waiting_.size();
    std::uint64_t height = 0;
    std::uint64_t asked = 0;
    while (left > 0) {
      if (++asked % kItemsPerQuestion == 0 && is_over && is_over()) return UINT64_MAX;
      const auto [level, start] = *lowest_.begin();
      const std::uint32_t end = std::next(heights_.find(start))->first;
      Waiting* const best = heaviest_within(start, end);
      if (best == nullptr) {
        lift(level, start);
        continue;
      }
      const Item& item = part_.items[best->item];
      offsets[best->item] = aligned(level, item.alignment);
      const std::uint64_t top = offsets[best->item] + item.size;
      height = std::max(height, top);
      cover(level, {start, end}, {best->lower, best->upper}, top);
      best->is_gone = true;
      --left;
      if (++gone_ * 4 > waiting_.size()) forget_gone();
    }
    return height;
  }

 private:
  struct Waiting {
    std::uint32_t lower;
    std::uint32_t upper;
    std::uint32_t item;
    double weight;
    bool is_gone = false;
  };
  using Stretch = std::pair<std::uint32_t, std::uint32_t>;

  Waiting* heaviest_within(std::uint32_t start, std::uint32_t end) {
    Waiting* best = nullptr;
    double most = -1;
    for (auto at = std::ranges::lower_bound(waiting_, start, {}, &Waiting::lower);
         at != waiting_.end() && at->lower < end;
         ++at) {
      if (at->is_gone || at->upper > end || at->weight <= most) continue;
      const double gap = std::min(at->lower - start, end - at->upper);
      const double weight = at->weight / (1 + rule_.gap_cost * gap / (at->upper - at->lower));
      if (weight <= most) continue;
      most = weight;
      best = &*at;
    }
    return best;
  }

  void set_height(std::uint32_t start, std::uint64_t height) {
    heights_[start] = height;
    lowest_.insert({height, start});
  }

  void cover(std::uint64_t level, Stretch whole, Stretch covered, std::uint64_t top) {
    lowest_.erase({level, whole.first});
    if (covered.first > whole.first) lowest_.insert({level, whole.first});
    set_height(covered.first, top);
    if (covered.second < whole.second) set_height(covered.second, level);
  }

  // To the lower of its neighbours, and together with it.
  void lift(std::uint64_t level, std::uint32_t start) {
    const auto at = heights_.find(start);
    const auto next = std::next(at);
    const std::uint64_t before = at == heights_.begin() ? kWall : std::prev(at)->second;
    const std::uint64_t to = std::min(before, next->second);
    lowest_.erase({level, start});
    if (next->second == to) {
      lowest_.erase({to, next->first});
      heights_.erase(next);
    }
    if (before == to) {
      heights_.erase(at);
    } else {
      set_height(start, to);
    }
  }

  void forget_gone() {
    std::erase_if(waiting_, [](const Waiting& one) { return one.is_gone; });
    gone_ = 0;
  }

  const Part& part_;
  const SkylineRule& rule_;
  std::vector<Waiting> waiting_{};
  std::size_t gone_ = 0;
  std::map<std::uint32_t, std::uint64_t> heights_{};  // by start, up to the next start
  std::set<std::pair<std::uint64_t, std::uint32_t>>
      lowest_{};  // the same by height, without the wall
};

// Free memory between the items that live now, by offset and by size; above the last is no end.
class FreeBlocks {
 public:
  std::uint64_t take(const Item& item) {
    for (auto at = by_size_.lower_bound({item.size, 0}); at != by_size_.end(); ++at) {
      const auto [size, offset] = *at;
      const std::uint64_t place = aligned(offset, item.alignment);
      if (place + item.size > offset + size) continue;
      remove(offset, size);
      add(offset, place - offset);
      add(place + item.size, offset + size - place - item.size);
      return place;
    }
    const std::uint64_t place = aligned(end_, item.alignment);
    add(end_, place - end_);
    end_ = place + item.size;
    return place;
  }

  void give_back(std::uint64_t offset, std::uint64_t size) {
    const auto above = by_offset_.lower_bound(offset);
    if (above != by_offset_.begin()) {
      const auto [start, length] = *std::prev(above);
      if (start + length == offset) {
        remove(start, length);
        offset = start;
        size += length;
      }
    }
    if (above != by_offset_.end() && above->first == offset + size) {
      const std::uint64_t length = above->second;
      remove(offset + size, length);
      size += length;
    }
    if (offset + size == end_) {
      end_ = offset;
    } else {
      add(offset, size);
    }
  }

 private:
  void add(std::uint64_t offset, std::uint64_t size) {
    if (size == 0) return;
    by_offset_[offset] = size;
    by_size_.insert({size, offset});
  }
  void remove(std::uint64_t offset, std::uint64_t size) {
    by_offset_.erase(offset);
    by_size_.erase({size, offset});
  }

  std::map<std::uint64_t, std::uint64_t> by_offset_{};
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_{};
  std::uint64_t end_ = 0;
};

}  // namespace

std::uint64_t pack_by_skyline(const Part& part,
                              const SkylineRule& rule,
                              const std::function<bool()>& is_over,
                              Offsets& offsets) {
  offsets.resize(part.items.size());
  return Skyline(part, rule).run(is_over, offsets);
}

std::uint64_t pack_by_sweep(const Part& part, Offsets& offsets) {
  offsets.resize(part.items.size());
  std::vector<std::uint32_t> starts;
  for (std::uint32_t i = 0; i < part.items.size(); ++i) starts.push_back(i);
  std::vector<std::uint32_t> ends = starts;
  std::ranges::stable_sort(starts, {}, [&](std::uint32_t i) { return part.items[i].lower; });
  std::ranges::stable_sort(ends, {}, [&](std::uint32_t i) { return part.items[i].upper; });
  FreeBlocks free;
  std::uint64_t height = 0;
  std::size_t ended = 0;
  for (const std::uint32_t i : starts) {
    for (; part.items[ends[ended]].upper <= part.items[i].lower; ++ended) {
      free.give_back(offsets[ends[ended]], part.items[ends[ended]].size);
    }
    offsets[i] = free.take(part.items[i]);
    height = std::max(height, offsets[i] + part.items[i].size);
  }
  return height;
}

}  // namespace headroom::solve::internal
