// ExactSearch: puts the items of a part below a capacity, or proves that nobody can.
//
// Every packing can be let down until each item lies on the ground or on another one. Such packings
// are made item by item in rising order of their offsets, each at the lowest place where it can be:
// so a branch is the choice of the next item, and these are cut off:
//
// - two items at one offset in the other order: only rising rank is tried
// - an offset to which another item could have been let down whole
// - a moment at which what is still to come does not fit above the lowest of its possible places
// - an item below the current offset that nothing can lift any more
//
// Where nothing to come lives across a moment, what is before and after it is searched apart.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "headroom/solve/internal/part.h"

namespace headroom::solve::internal {

enum class SearchOutcome { kFound, kImpossible, kGaveUp };

struct SearchLimits {
  std::uint64_t most_nodes = UINT64_MAX;
  std::function<bool()> is_over{};  // asked now and then
};

class ExactSearch {
 public:
  explicit ExactSearch(const Part& part);

  // `ranks` has a number for each item: of two at the lowest place, the one with the lower number
  // is tried first. The offsets are set where a packing was found.
  SearchOutcome search(std::uint64_t capacity,
                       std::span<const std::uint32_t> ranks,
                       const SearchLimits& limits,
                       Offsets& offsets);

  [[nodiscard]] std::uint64_t nodes() const noexcept { return nodes_; }

 private:
  using ItemId = std::uint32_t;
  // Of the moments at which the most are alive: no other has anybody who is not in one of these.
  struct Span {
    std::uint32_t first = 0;
    std::uint32_t last = 0;  // past the end
  };
  struct Candidate {
    std::uint64_t offset;
    std::uint32_t rank;
    ItemId item;
  };
  struct Lifted {
    ItemId item;
    std::uint64_t offset;  // before
  };
  // What a depth of the search needs; kept, so that nothing is allocated on the way.
  struct Frame {
    std::vector<Candidate> candidates{};
    std::vector<ItemId> rest{};
  };

  void find_spans();
  void find_neighbours();
  bool descend(std::size_t depth,
               std::span<const ItemId> members,
               std::uint64_t offset,
               std::uint32_t last_rank);
  bool place_each(std::size_t depth, std::span<const ItemId> members);
  bool descend_into_pieces(std::size_t depth, std::uint64_t offset, std::uint32_t rank);
  [[nodiscard]] bool has_room(std::span<const ItemId> members, std::uint64_t offset);
  template <class PlaceOf>
  bool fits_above(std::span<const ItemId> members, PlaceOf place_of);
  [[nodiscard]] std::uint64_t least_place(ItemId item, std::uint64_t offset) const;
  bool collect(std::span<const ItemId> members,
               std::uint64_t offset,
               std::uint32_t last_rank,
               std::vector<Candidate>& out) const;
  void put(const Candidate& one);
  void take_back(ItemId item, std::size_t lifted_before);
  [[nodiscard]] bool has_given_up();

  const Part& part_;
  std::vector<Span> spans_{};
  std::vector<std::uint64_t> start_loads_{};  // by moment of the spans
  std::vector<std::vector<ItemId>> neighbours_{};
  std::vector<ItemId> by_time_{};

  std::uint64_t capacity_ = 0;
  std::span<const std::uint32_t> ranks_{};
  const SearchLimits* limits_ = nullptr;
  std::uint64_t nodes_ = 0;
  bool gave_up_ = false;
  std::vector<std::uint64_t> loads_{};   // of what is not placed, by moment
  std::vector<std::uint64_t> floors_{};  // the lowest place of any of them
  std::vector<std::uint64_t> places_{};  // the lowest that each item can have, or its own
  std::vector<char> is_placed_{};
  std::vector<Lifted> lifted_{};
  std::vector<Frame> frames_{};
};

}  // namespace headroom::solve::internal
