// Ejection: lowers a packing below a limit by local repair. What ends above the limit goes into a
// pool. Each item of it gets a place: free if there is one, else the one whose owners are the
// easiest to put elsewhere; they go into the pool in turn. Whoever is often in the way of others,
// or hard to place, becomes expensive to throw out. (After the guided ejection search of Nagata and
// Braysy, 2009, for vehicle routes.)
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <vector>

#include "headroom/solve/internal/part.h"
#include "headroom/solve/internal/placed_index.h"

namespace headroom::solve::internal {

class Ejection {
 public:
  explicit Ejection(const Part& part);

  struct Limits {
    std::uint64_t most_moves = UINT64_MAX;
    std::function<bool()> is_over{};  // asked now and then
  };

  // Lowers `offsets`, a packing, to `height` or below. False where the limits end it before;
  // `offsets` is then what it was. The prices stay for the next call.
  bool lower(std::uint64_t height, std::uint64_t seed, const Limits& limits, Offsets& offsets);

  void take_prices_of(const Ejection& other) { prices_ = other.prices_; }

 private:
  void start(std::uint64_t height, const Offsets& offsets);
  void add_to_pool(std::uint32_t item);
  std::uint32_t take_from_pool();
  void place(std::uint32_t item, std::uint64_t height);
  [[nodiscard]] std::uint64_t cheapest_place(const Item& item, std::uint64_t height);
  void sort_by_top();
  void eject_owners(const Item& item, std::uint64_t offset);
  void put(std::uint32_t item, std::uint64_t offset);

  const Part& part_;
  PlacedIndex index_;
  std::mt19937_64 random_{};
  std::vector<double> prices_{};  // of throwing an item out
  std::vector<double> areas_{};
  std::vector<std::uint64_t> places_{};
  std::vector<std::uint32_t> pool_{};
  double pool_area_ = 0;
  double mean_area_ = 0;
  // Of one search for a place: who lives with the item.
  struct Owner {
    std::uint64_t offset;
    std::uint64_t top;
    double price;
  };
  std::vector<Owner> by_offset_{};
  std::vector<Owner> by_top_{};
  std::vector<std::uint32_t> owners_{};
};

}  // namespace headroom::solve::internal
