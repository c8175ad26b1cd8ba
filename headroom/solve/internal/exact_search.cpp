#include "headroom/solve/internal/exact_search.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace headroom::solve::internal {
namespace {

constexpr std::uint64_t kNodesPerQuestion = 256;
constexpr std::uint64_t kNowhere = UINT64_MAX;

}  // namespace

ExactSearch::ExactSearch(const Part& part) : part_(part), frames_(part.items.size() + 1) {
  find_spans();
  find_neighbours();
  for (ItemId i = 0; i < part.items.size(); ++i) by_time_.push_back(i);
  std::ranges::stable_sort(by_time_, {}, [&](ItemId i) { return spans_[i].first; });
}

// A moment counts where somebody has started since the last one that counts, and somebody ends
// next.
void ExactSearch::find_spans() {
  std::vector<char> starts(part_.moments + 1);
  std::vector<char> ends(part_.moments + 1);
  for (const Item& item : part_.items) {
    starts[item.lower] = 1;
    ends[item.upper] = 1;
  }
  std::vector<std::uint32_t> counted(part_.moments + 2);  // how many before each time
  bool has_started = false;
  for (std::uint32_t t = 0; t <= part_.moments; ++t) {
    has_started = has_started || starts[t] != 0;
    const bool is_last = t == part_.moments || ends[t + 1] != 0;
    const bool counts = has_started && is_last;
    counted[t + 1] = counted[t] + (counts ? 1 : 0);
    if (counts) has_started = false;
  }
  start_loads_.resize(counted.back());
  for (const Item& item : part_.items) {
    const Span span{counted[item.lower], counted[item.upper]};
    spans_.push_back(span);
    for (std::uint32_t s = span.first; s < span.last; ++s) start_loads_[s] += item.size;
  }
}

void ExactSearch::find_neighbours() {
  neighbours_.resize(part_.items.size());
  for (ItemId i = 0; i < part_.items.size(); ++i) {
    for (ItemId j = 0; j < i; ++j) {
      if (spans_[i].first >= spans_[j].last || spans_[j].first >= spans_[i].last) continue;
      neighbours_[i].push_back(j);
      neighbours_[j].push_back(i);
    }
  }
}

SearchOutcome ExactSearch::search(std::uint64_t capacity,
                                  std::span<const std::uint32_t> ranks,
                                  const SearchLimits& limits,
                                  Offsets& offsets) {
  capacity_ = capacity;
  ranks_ = ranks;
  limits_ = &limits;
  nodes_ = 0;
  gave_up_ = false;
  loads_ = start_loads_;
  floors_.assign(loads_.size(), kNowhere);
  places_.assign(part_.items.size(), 0);
  is_placed_.assign(part_.items.size(), 0);
  lifted_.clear();
  if (!descend(0, by_time_, 0, 0)) {
    return gave_up_ ? SearchOutcome::kGaveUp : SearchOutcome::kImpossible;
  }
  offsets.assign(places_.begin(), places_.end());
  return SearchOutcome::kFound;
}

bool ExactSearch::has_given_up() {
  if (gave_up_) return true;
  ++nodes_;
  gave_up_ = nodes_ > limits_->most_nodes ||
             (nodes_ % kNodesPerQuestion == 0 && limits_->is_over && limits_->is_over());
  return gave_up_;
}

// `members`, by time, are all that is not placed of one stretch of time; no place below `offset` is
// left for them, nor one at it for ranks up to `last_rank`, which counts from 1.
bool ExactSearch::descend(std::size_t depth,
                          std::span<const ItemId> members,
                          std::uint64_t offset,
                          std::uint32_t last_rank) {
  if (members.empty()) return true;
  if (has_given_up() || !has_room(members, offset)) return false;
  if (!collect(members, offset, last_rank, frames_[depth].candidates)) return false;
  return place_each(depth, members);
}

// Where an item can be at the lowest, given that all to come are placed at `offset` or above.
std::uint64_t ExactSearch::least_place(ItemId item, std::uint64_t offset) const {
  if (places_[item] >= offset) return places_[item];
  // Too low: it stays only if another one is yet to lift it.
  std::uint64_t least = kNowhere;
  for (const ItemId other : neighbours_[item]) {
    if (is_placed_[other] != 0) continue;
    least = std::min(least, std::max(places_[other], offset) + part_.items[other].size);
  }
  return least == kNowhere ? least : aligned(least, part_.items[item].alignment);
}

// First with every place at the offset or above, which is quick and refuses most; then with what
// has to be lifted where others can lift it.
bool ExactSearch::has_room(std::span<const ItemId> members, std::uint64_t offset) {
  const bool fits = fits_above(members, [&](ItemId i) { return std::max(places_[i], offset); });
  return fits && fits_above(members, [&](ItemId i) { return least_place(i, offset); });
}

template <class PlaceOf>
bool ExactSearch::fits_above(std::span<const ItemId> members, PlaceOf place_of) {
  bool fits = true;
  for (const ItemId i : members) {
    const std::uint64_t place = place_of(i);
    if (place > capacity_ || part_.items[i].size > capacity_ - place) {
      fits = false;
      break;
    }
    for (std::uint32_t s = spans_[i].first; s < spans_[i].last; ++s) {
      floors_[s] = std::min(floors_[s], place);
    }
  }
  // The members fill one stretch of time, the first of them from its start.
  std::uint32_t end = spans_[members.front()].last;
  for (const ItemId i : members) end = std::max(end, spans_[i].last);
  for (std::uint32_t s = spans_[members.front()].first; s < end; ++s) {
    fits = fits && (floors_[s] == kNowhere || floors_[s] + loads_[s] <= capacity_);
    floors_[s] = kNowhere;
  }
  return fits;
}

bool ExactSearch::collect(std::span<const ItemId> members,
                          std::uint64_t offset,
                          std::uint32_t last_rank,
                          std::vector<Candidate>& out) const {
  std::uint64_t least_top = kNowhere;
  for (const ItemId i : members) {
    least_top = std::min(least_top, places_[i] + part_.items[i].size);
  }
  out.clear();
  for (const ItemId i : members) {
    const std::uint64_t place = places_[i];
    if (place < offset || place >= least_top) continue;
    if (place == offset && ranks_[i] + 1 <= last_rank) continue;
    out.push_back({place, ranks_[i], i});
  }
  std::ranges::sort(out, {}, [](const Candidate& one) { return std::tuple(one.offset, one.rank); });
  return !out.empty();
}

bool ExactSearch::place_each(std::size_t depth, std::span<const ItemId> members) {
  Frame& frame = frames_[depth];
  for (const Candidate& one : frame.candidates) {
    const std::size_t lifted_before = lifted_.size();
    put(one);
    frame.rest.clear();
    for (const ItemId i : members) {
      if (i != one.item) frame.rest.push_back(i);
    }
    if (descend_into_pieces(depth, one.offset, one.rank + 1)) return true;
    take_back(one.item, lifted_before);
    if (gave_up_) return false;
  }
  return false;
}

// The rest of this depth, cut where nobody lives across.
bool ExactSearch::descend_into_pieces(std::size_t depth, std::uint64_t offset, std::uint32_t rank) {
  const std::span<const ItemId> rest = frames_[depth].rest;
  const std::size_t lifted_before = lifted_.size();
  std::size_t done = 0;
  while (done < rest.size()) {
    std::uint32_t end = spans_[rest[done]].last;
    std::size_t last = done + 1;
    while (last < rest.size() && spans_[rest[last]].first < end) {
      end = std::max(end, spans_[rest[last]].last);
      ++last;
    }
    if (!descend(depth + 1, rest.subspan(done, last - done), offset, rank)) {
      // What the earlier pieces placed goes again.
      for (std::size_t i = 0; i < done; ++i) {
        is_placed_[rest[i]] = 0;
        for (std::uint32_t s = spans_[rest[i]].first; s < spans_[rest[i]].last; ++s) {
          loads_[s] += part_.items[rest[i]].size;
        }
      }
      while (lifted_.size() > lifted_before) {
        places_[lifted_.back().item] = lifted_.back().offset;
        lifted_.pop_back();
      }
      return false;
    }
    done = last;
  }
  return true;
}

void ExactSearch::put(const Candidate& one) {
  const Item& item = part_.items[one.item];
  is_placed_[one.item] = 1;
  for (std::uint32_t s = spans_[one.item].first; s < spans_[one.item].last; ++s) {
    loads_[s] -= item.size;
  }
  const std::uint64_t top = one.offset + item.size;
  for (const ItemId other : neighbours_[one.item]) {
    if (is_placed_[other] != 0 || places_[other] >= top) continue;
    lifted_.push_back({other, places_[other]});
    places_[other] = aligned(top, part_.items[other].alignment);
  }
}

void ExactSearch::take_back(ItemId item, std::size_t lifted_before) {
  while (lifted_.size() > lifted_before) {
    places_[lifted_.back().item] = lifted_.back().offset;
    lifted_.pop_back();
  }
  is_placed_[item] = 0;
  for (std::uint32_t s = spans_[item].first; s < spans_[item].last; ++s) {
    loads_[s] += part_.items[item].size;
  }
}

}  // namespace headroom::solve::internal
