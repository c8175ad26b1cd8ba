// The words of the device layer: addresses, ids, statuses, properties.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/result.h"

namespace headroom::device {

// An address in a device's memory. On the cpu device it is a pointer; on meta it only looks like
// one; on cuda it is a CUdeviceptr. 0 is never the address of anything.
using DeviceAddress = std::uint64_t;

// A queue of work in order. Ids are unique in the process and never given out twice, so a block
// that names a stream that has gone cannot be mistaken for a block of a newer one.
enum class StreamId : std::uint64_t { kDefault = 0 };

// A moment in a stream, recorded once. Unique in the process.
enum class EventId : std::uint64_t { kNone = 0 };

// Physical memory without an address (a CUmemGenericAllocationHandle). Indivisible: it is mapped
// whole or not at all. Unique in the process.
enum class PageHandle : std::uint64_t { kNone = 0 };

// The backend's own name of a stream: a cudaStream_t as an integer.
using NativeStream = std::uint64_t;

[[nodiscard]] constexpr std::uint64_t to_integer(StreamId id) noexcept {
  return static_cast<std::uint64_t>(id);
}
[[nodiscard]] constexpr std::uint64_t to_integer(EventId id) noexcept {
  return static_cast<std::uint64_t>(id);
}
[[nodiscard]] constexpr std::uint64_t to_integer(PageHandle id) noexcept {
  return static_cast<std::uint64_t>(id);
}

// Sizes at or above this (1 EiB) are a mistake in somebody's arithmetic and are refused at once.
inline constexpr std::uint64_t kAbsurdSize = std::uint64_t{1} << 60U;

enum class DeviceKind : std::uint8_t { kCpu, kMeta, kCuda };

[[nodiscard]] std::string_view to_string(DeviceKind kind) noexcept;

// Which device: `cpu:0`, `cuda:1`.
struct DeviceId {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;

  friend bool operator==(const DeviceId&, const DeviceId&) = default;
};

[[nodiscard]] std::string to_string(DeviceId id);

// Reads `cpu`, `cuda:1`, `meta:0`; a bare kind means index 0. Says nothing about existence.
[[nodiscard]] Result<DeviceId, std::string> parse_device_id(std::string_view text);

enum class StatusCode : std::uint8_t {
  kOutOfMemory,        // the device has no room: a step of an allocator's algorithm, not a fault
  kOutOfAddressSpace,  // the reservation would pass what the device allows
  kTooManyMappings,    // the operating system would soon refuse to map anything
  kOutOfHostMemory,    // the bookkeeping itself found no memory
  kInvalidArgument,    // a size, range or alignment that can never work
  kUnknownHandle,  // an address, stream, event or handle that is not (or no longer) of this device
  kNotSupported,   // this backend cannot do it
  kForked,         // the process was forked; devices do not survive that, start them anew
  kShutDown,       // the driver is going away
  kFailed,         // the backend reported an error of its own; see `native_code`
};

[[nodiscard]] std::string_view to_string(StatusCode code) noexcept;

// Why a device call did not do what was asked. Made without allocating, so that it can be made
// when memory is short: the texts are literals and the two numbers say what was found.
struct DeviceStatus {
  StatusCode code = StatusCode::kFailed;
  const char* call = "";         // "allocate_segment"
  const char* detail = "";       // "past the device's capacity"
  std::uint64_t found = 0;       // what was asked for or found ...
  std::uint64_t bound = 0;       // ... and what it ran into; both 0 when no number helps
  std::int64_t native_code = 0;  // the driver's or the system's own error number

  friend bool operator==(const DeviceStatus& a, StatusCode b) noexcept { return a.code == b; }
};

// The device went away and took its memory with it: nothing is left to give back.
[[nodiscard]] inline bool is_gone(const DeviceStatus& status) noexcept {
  return status == StatusCode::kShutDown || status == StatusCode::kForked;
}

// One line: `allocate_segment: out of memory: past the device's capacity (3,221,225,472 against
// 2,147,483,648)`.
[[nodiscard]] std::string to_string(const DeviceStatus& status);

template <class T>
using DeviceResult = Result<T, DeviceStatus>;

struct MemoryInfo {
  std::uint64_t free_bytes = 0;
  std::uint64_t total_bytes = 0;
};

// A process that holds memory of the device.
struct ProcessMemory {
  std::int64_t pid = 0;
  std::uint64_t used_bytes = 0;
  std::string name;
  bool is_self = false;
};

// The result of a measurement: streaming reads and one dependent load after another.
struct LevelSpeed {
  double read_bytes_per_second = 0;  // all instances together
  double latency_ns = 0;
};

// One level of the memory hierarchy, fastest first.
struct MemoryLevel {
  std::string name;                   // "registers", "shared memory", "L1d", "L2", "global memory"
  std::uint64_t size_bytes = 0;       // of one instance
  int instances = 1;                  // how many of them the device has
  std::uint64_t line_bytes = 0;       // 0 where there are none
  std::string shared_by;              // "multiprocessor", "core", "device"
  std::optional<LevelSpeed> speed{};  // after measure()
};

struct Properties {
  DeviceId id{};
  std::string name;                         // "NVIDIA H200", "Intel(R) Xeon(R) ..."
  std::uint64_t total_bytes = 0;            // the capacity
  std::uint64_t granularity_bytes = 0;      // of physical handles and mappings
  std::uint64_t max_reservation_bytes = 0;  // addresses that may be reserved in all
  int multiprocessors = 0;                  // or cores
  std::string architecture;                 // "sm_90", "x86-64"
  bool host_accessible = false;             // the processor may follow an address
  bool has_virtual_memory = false;
  // The backend that a meta device copies; nothing of the others.
  DeviceKind stands_for = DeviceKind::kCuda;
  std::vector<MemoryLevel> hierarchy{};
};

// --- Options of calls ----------------------------------------------------------------------------

struct StreamOptions {
  int priority = 0;  // lower runs first, as in CUDA; a hint
};

// How long a stream that somebody else made may be used.
enum class StreamLife : std::uint8_t {
  kUntilReleased,  // its owner calls release_stream before he destroys it
  kUnknown,        // its owner may destroy it at any time: nothing is asked of it between uses
};

struct EventOptions {
  bool is_timed = false;  // elapsed_ms may ask for it; costs the stream a little
};

struct PageOptions {
  bool exportable = false;  // may be shared with other processes (IPC, collectives)
};

// A function of the host, run in stream order. It may call the device, except to wait for its own
// stream.
struct HostTask {
  void (*run)(void* data) noexcept = nullptr;
  void* data = nullptr;
};

}  // namespace headroom::device
