// Ledger: what a backend without a driver must remember about its memory.
//
// It knows which segments, reservations, physical handles and mappings exist, refuses what a
// driver would refuse, and keeps the capacity. It touches no memory: the meta device is a ledger
// with invented addresses, the cpu device a ledger with system calls around it.
//
//   reservation   |--------------------------------------------|
//   mappings          [ handle 7 ][ handle 9 ]    [ handle 7 ]      (7 is mapped twice)
//
// Invariants (check_invariants):
//   used_bytes     == sum of segment sizes + sum of sizes of the handles that are live
//   a handle lives while it is not released or is still mapped
//   mappings do not overlap and each lies in one reservation
//   handle.mappings == number of mappings that name it
//
// Not thread-safe: the backend's lock is held around every call. Every function either does all
// it says or nothing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "headroom/device/types.h"

namespace headroom::device::internal {

struct LedgerLimits {
  std::uint64_t capacity_bytes = 0;
  std::uint64_t granularity_bytes = 0;
  std::uint64_t max_reservation_bytes = 0;  // of all reservations together
  std::uint64_t max_mappings = 0;
};

struct PageRecord {
  std::uint64_t size_bytes = 0;
  std::uint64_t backing = 0;  // the backend's own: an offset in the cpu device's memory file
  std::uint64_t mappings = 0;
  bool is_released = false;
};

struct Mapping {
  DeviceAddress address = 0;
  std::uint64_t size_bytes = 0;
  PageHandle handle = PageHandle::kNone;
};

class Ledger {
 public:
  explicit Ledger(LedgerLimits limits) : limits_(limits) {}

  [[nodiscard]] const LedgerLimits& limits() const noexcept { return limits_; }
  [[nodiscard]] std::uint64_t used_bytes() const noexcept { return used_bytes_; }
  [[nodiscard]] std::uint64_t reserved_address_bytes() const noexcept { return reserved_bytes_; }
  [[nodiscard]] std::uint64_t mapping_count() const noexcept { return mappings_.size(); }
  [[nodiscard]] bool owns_range(DeviceAddress address, std::uint64_t size_bytes) const noexcept;

  // Whether `size_bytes` more physical memory are within the capacity.
  [[nodiscard]] DeviceResult<void> check_room(std::uint64_t size_bytes) const noexcept;

  DeviceResult<void> add_segment(DeviceAddress address, std::uint64_t size_bytes);
  [[nodiscard]] DeviceResult<std::uint64_t> segment_size(DeviceAddress address) const noexcept;
  void remove_segment(DeviceAddress address) noexcept;

  [[nodiscard]] DeviceResult<void> check_reservation(std::uint64_t size_bytes) const noexcept;
  DeviceResult<void> add_reservation(DeviceAddress address, std::uint64_t size_bytes);
  // The size, if it exists and nothing is mapped in it.
  [[nodiscard]] DeviceResult<std::uint64_t> reservation_size(DeviceAddress address) const noexcept;
  void remove_reservation(DeviceAddress address) noexcept;

  DeviceResult<PageHandle> add_pages(std::uint64_t size_bytes, std::uint64_t backing);
  // Adds one with an id given from outside (a restored state).
  DeviceResult<void> add_pages(PageHandle handle, std::uint64_t size_bytes, std::uint64_t backing);
  [[nodiscard]] DeviceResult<PageRecord> pages(PageHandle handle) const noexcept;
  // The record if the memory is to be given back now: nothing maps it any more.
  DeviceResult<std::optional<PageRecord>> release_pages(PageHandle handle) noexcept;

  // Checks and records; the mappings in order of address.
  DeviceResult<std::vector<Mapping>> map(DeviceAddress address,
                                         std::span<const PageHandle> handles);
  // The mappings in the range, if none of them sticks out of it and there is at least one.
  [[nodiscard]] DeviceResult<std::vector<Mapping>> mappings_in(DeviceAddress address,
                                                               std::uint64_t size_bytes) const;
  // Forgets mappings that mappings_in or map returned; the records of the handles that died with
  // them. `dead` has room for as many as there are mappings.
  void unmap(std::span<const Mapping> mappings, std::vector<PageRecord>& dead) noexcept;

  // Walks everything, for tests and for the devices' own destruction.
  [[nodiscard]] const std::map<DeviceAddress, std::uint64_t>& segments() const noexcept {
    return segments_;
  }
  [[nodiscard]] const std::map<DeviceAddress, std::uint64_t>& reservations() const noexcept {
    return reservations_;
  }
  [[nodiscard]] const std::map<DeviceAddress, Mapping>& mappings() const noexcept {
    return mappings_;
  }
  [[nodiscard]] const std::unordered_map<PageHandle, PageRecord>& all_pages() const noexcept {
    return pages_;
  }

  // A sentence about the first broken invariant, or nothing.
  [[nodiscard]] std::optional<std::string> check_invariants() const;

 private:
  [[nodiscard]] bool overlaps_anything(DeviceAddress address,
                                       std::uint64_t size_bytes) const noexcept;
  [[nodiscard]] DeviceResult<std::vector<Mapping>> plan_mappings(
      DeviceAddress address, std::span<const PageHandle> handles) const;

  LedgerLimits limits_;
  std::uint64_t used_bytes_ = 0;
  std::uint64_t reserved_bytes_ = 0;
  std::map<DeviceAddress, std::uint64_t> segments_;
  std::map<DeviceAddress, std::uint64_t> reservations_;
  std::map<DeviceAddress, Mapping> mappings_;
  std::unordered_map<PageHandle, PageRecord> pages_;
};

}  // namespace headroom::device::internal
