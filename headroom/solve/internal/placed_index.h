// PlacedIndex: the items of a part that have an offset, to be asked who lives beside a new one.
#pragma once

#include <cstdint>
#include <vector>

#include "headroom/solve/internal/part.h"

namespace headroom::solve::internal {

class PlacedIndex {
 public:
  struct Placed {
    std::uint64_t offset;
    std::uint64_t top;
    std::uint32_t lower;
    std::uint32_t upper;
    std::uint32_t item;
  };

  explicit PlacedIndex(const Part& part);

  void clear();
  void insert(std::uint32_t item, std::uint64_t offset);
  void erase(std::uint32_t item, std::uint64_t offset);

  // By offset, everybody who lives with the item, and others.
  [[nodiscard]] const std::vector<Placed>& neighbourhood(const Item& item) const;

  // Where the item fits at the lowest; with `limit`, UINT64_MAX where it would end above.
  [[nodiscard]] std::uint64_t lowest_offset(const Item& item, std::uint64_t limit) const;

 private:
  // Windows of time, each overlapping the next by half, with what lives in them by offset. An item
  // that is no longer than half a window lies in one whole, so that it alone is to be searched.
  struct Level {
    std::uint32_t stride = 0;
    std::vector<std::vector<Placed>> windows{};
  };

  void add_levels();
  void add_level(std::uint32_t stride);
  template <class Act>
  void for_windows_of(const Item& item, Act act);

  const Part& part_;
  std::vector<Level> levels_{};  // the finest first; the last is wide enough for all
};

}  // namespace headroom::solve::internal
