// GapMap: the addresses of an arena that nothing uses, for a device that invents its addresses.
//
//   arena   [begin ........................................ end)
//   used         [segment]   [reservation       ][segment]
//   gaps    [---)         [-)                            [---)
//
// The gaps are exactly the arena less what was taken: neighbours are merged. They are also listed
// by the power of two below their size, so that a search passes over slivers without looking at
// them, and ten thousand segments do not make the next one slow.
//
// Not thread-safe. Every function either does all it says or, when host memory runs out and it
// throws, nothing.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "headroom/device/types.h"

namespace headroom::device::internal {

class GapMap {
 public:
  GapMap(DeviceAddress begin, DeviceAddress end);

  // Where [address, address + size) fits, aligned: at the top of the highest gap that holds it,
  // or at the bottom of the lowest. Takes nothing. `alignment` is a power of two.
  [[nodiscard]] std::optional<DeviceAddress> highest(std::uint64_t size_bytes,
                                                     std::uint64_t alignment) const noexcept;
  [[nodiscard]] std::optional<DeviceAddress> lowest(std::uint64_t size_bytes,
                                                    std::uint64_t alignment) const noexcept;

  // Takes a range of which the part inside the arena is unused; the rest is not ours to keep.
  void take(DeviceAddress address, std::uint64_t size_bytes);
  // Gives back a range that was taken.
  void give_back(DeviceAddress address, std::uint64_t size_bytes);

  // Start and end of every gap, in order.
  [[nodiscard]] const std::map<DeviceAddress, DeviceAddress>& gaps() const noexcept {
    return gaps_;
  }
  [[nodiscard]] DeviceAddress begin() const noexcept { return begin_; }
  [[nodiscard]] DeviceAddress end() const noexcept { return end_; }

 private:
  void insert(DeviceAddress start, DeviceAddress end);
  void erase(std::map<DeviceAddress, DeviceAddress>::iterator gap) noexcept;
  // Gives a gap another end, and the list that its new size asks for.
  void resize(std::map<DeviceAddress, DeviceAddress>::iterator gap, DeviceAddress end);

  DeviceAddress begin_;
  DeviceAddress end_;
  std::map<DeviceAddress, DeviceAddress> gaps_;
  // starts_[n]: the gaps of 2^n bytes and more, less than 2^(n+1).
  std::array<std::set<DeviceAddress>, 64> starts_;
};

}  // namespace headroom::device::internal
