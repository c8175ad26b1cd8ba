// MemoryFile: the physical memory behind a device's page handles, as a file that lives in memory.
//
// A handle is a range of the file. Mapping is mmap of that range, twice if need be; giving the
// memory back is punching a hole. Offsets that are not in use never hold data, so a new handle
// reads as zero.
//
//   file     [ handle 7 |   hole   | handle 9 | handle 12 | hole ...   end
//
// Not thread-safe: the device's lock is held around every call.
#pragma once

#include <cstdint>
#include <map>

#include "headroom/device/types.h"

namespace headroom::device::internal {

class MemoryFile {
 public:
  // Throws Error when the system has none to give.
  explicit MemoryFile(int device_index);
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile();

  // A range of the file; the first that fits. Nothing is touched yet.
  [[nodiscard]] DeviceResult<std::uint64_t> allocate(std::uint64_t size_bytes);
  // Gives the memory back to the system. Nothing maps the range any more.
  void free(std::uint64_t offset, std::uint64_t size_bytes) noexcept;

  // Maps over whatever is at `address`; an errno, 0 when done.
  [[nodiscard]] int map(DeviceAddress address,
                        std::uint64_t size_bytes,
                        std::uint64_t offset) const noexcept;

  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

 private:
  void add_gap(std::uint64_t offset, std::uint64_t size_bytes);

  int descriptor_ = -1;
  std::uint64_t end_ = 0;                        // of the file, and of the last handle
  std::map<std::uint64_t, std::uint64_t> gaps_;  // offset to size; never adjacent to one another
};

}  // namespace headroom::device::internal
