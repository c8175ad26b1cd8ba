#include "headroom/solve/internal/skyline.h"

#include <algorithm>
#include <bit>
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
    grow_tree();
  }

  std::uint64_t run(const std::function<bool()>& is_over, Offsets& offsets) {
    std::size_t left = waiting_.size();
    std::uint64_t height = 0;
    std::uint64_t asked = 0;
    while (left > 0) {
      if (++asked % kItemsPerQuestion == 0 && is_over && is_over()) return UINT64_MAX;
      const auto [level, start] = *lowest_.begin();
      const std::uint32_t end = std::next(heights_.find(start))->first;
      const std::size_t best = heaviest_within(start, end);
      if (best == kNobody) {
        lift(level, start);
        continue;
      }
      const Waiting& one = waiting_[best];
      const Item& item = part_.items[one.item];
      offsets[one.item] = aligned(level, item.alignment);
      const std::uint64_t top = offsets[one.item] + item.size;
      height = std::max(height, top);
      cover(level, {start, end}, {one.lower, one.upper}, top);
      forget(best);
      --left;
    }
    return height;
  }

 private:
  struct Waiting {
    std::uint32_t lower;
    std::uint32_t upper;
    std::uint32_t item;
    double weight;
  };
  // Of a stretch of waiting_: a tree in an array, the children of k being 2k and 2k + 1.
  struct Node {
    double weight = kGone;         // the most of any
    std::uint32_t upper = kNever;  // the least of any
  };
  struct Stretch {
    std::uint32_t first;
    std::uint32_t second;
  };
  struct Question {
    std::uint32_t start;
    std::uint32_t end;
    std::size_t first;  // of those that begin within, in waiting_
    std::size_t last;
    double most = kGone;
    std::size_t best = kNobody;
  };
  static constexpr double kGone = -1;
  static constexpr std::uint32_t kNever = UINT32_MAX;
  static constexpr std::size_t kNobody = SIZE_MAX;

  void grow_tree() {
    leaves_ = std::bit_ceil(waiting_.size());
    tree_.resize(2 * leaves_);
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      tree_[leaves_ + i] = {waiting_[i].weight, waiting_[i].upper};
    }
    for (std::size_t k = leaves_ - 1; k > 0; --k) join(k);
  }

  void join(std::size_t k) {
    const Node& left = tree_[2 * k];
    const Node& right = tree_[2 * k + 1];
    tree_[k] = {std::max(left.weight, right.weight), std::min(left.upper, right.upper)};
  }

  void forget(std::size_t i) {
    tree_[leaves_ + i] = {};
    for (std::size_t k = (leaves_ + i) / 2; k > 0; k /= 2) join(k);
  }

  std::size_t heaviest_within(std::uint32_t start, std::uint32_t end) {
    const auto at = [&](std::uint32_t time) {
      const auto found = std::ranges::lower_bound(waiting_, time, {}, &Waiting::lower);
      return static_cast<std::size_t>(found - waiting_.begin());
    };
    Question question{.start = start, .end = end, .first = at(start), .last = at(end)};
    ask(question, 1, 0, leaves_);
    return question.best;
  }

  // Of the waiting in [low, high), below node k; heavier branches first, so that more is left out.
  void ask(Question& question, std::size_t k, std::size_t low, std::size_t high) const {
    const Node& node = tree_[k];
    if (high <= question.first || low >= question.last) return;
    if (node.weight <= question.most || node.upper > question.end) return;
    if (high - low == 1) {
      const Waiting& one = waiting_[low];
      const double gap = std::min(one.lower - question.start, question.end - one.upper);
      const double weight = one.weight / (1 + rule_.gap_cost * gap / (one.upper - one.lower));
      if (weight <= question.most) return;
      question.most = weight;
      question.best = low;
      return;
    }
    const std::size_t middle = low + (high - low) / 2;
    const bool is_left_first = tree_[2 * k].weight >= tree_[2 * k + 1].weight;
    if (is_left_first) ask(question, 2 * k, low, middle);
    ask(question, 2 * k + 1, middle, high);
    if (!is_left_first) ask(question, 2 * k, low, middle);
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

  const Part& part_;
  const SkylineRule& rule_;
  std::vector<Waiting> waiting_{};
  std::vector<Node> tree_{};
  std::size_t leaves_ = 0;
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
