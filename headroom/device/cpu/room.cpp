#include "headroom/device/cpu/internal/room.h"

#include <algorithm>
#include <chrono>
#include <sys/stat.h>

#include "headroom/base/bytes.h"
#include "headroom/device/cpu/internal/process.h"
#include "headroom/device/internal/status.h"

namespace headroom::device::internal {
namespace {

std::atomic<std::uint64_t>& promised(CpuProcess& process, RoomUse use) noexcept {
  return use == RoomUse::kSegment ? process.segment_bytes : process.page_bytes;
}

std::uint64_t excess(std::uint64_t a, std::uint64_t b) noexcept { return a - std::min(a, b); }

std::uint64_t bytes_in_files(CpuProcess& process) {
  constexpr std::uint64_t kBlock = 512;  // the unit of st_blocks, whatever the file system
  const std::scoped_lock lock(process.mutex);
  std::uint64_t sum = 0;
  for (const int file : process.files) {
    struct stat info {};
    if (fstat(file, &info) == 0) sum += static_cast<std::uint64_t>(info.st_blocks) * kBlock;
  }
  return sum;
}

// Promised and not touched yet. The process's other anonymous memory passes for touched segments,
// which makes the estimate low by at most that; the margin is for such things.
std::uint64_t untouched_bytes(CpuProcess& process) {
  return excess(process.page_bytes.load(), bytes_in_files(process)) +
         excess(process.segment_bytes.load(), resident_anonymous_bytes());
}

std::int64_t now_ns() noexcept {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

std::uint64_t room_margin_bytes(std::uint64_t machine_bytes) noexcept {
  return std::min<std::uint64_t>(machine_bytes / 16, 1_GiB);
}

std::uint64_t spare_bytes(const MachineMemory& memory, std::uint64_t untouched) noexcept {
  return excess(memory.available_bytes, untouched + room_margin_bytes(memory.total_bytes));
}

DeviceResult<Room> promise_room(RoomUse use, std::uint64_t size_bytes) {
  CpuProcess& process = cpu_process();
  const std::uint64_t wanted =
      process.segment_bytes.load() + process.page_bytes.load() + size_bytes;
  const std::int64_t now = now_ns();
  if (wanted > process.room_until_bytes.load(std::memory_order_relaxed) ||
      now > process.room_until_ns.load(std::memory_order_relaxed)) {
    // Reading the machine's state takes tens of microseconds, so what one reading says is believed
    // for a moment, and for half of what was spare.
    constexpr std::int64_t kBelievedNs = 250'000'000;
    const std::uint64_t spare = spare_bytes(read_machine_memory(), untouched_bytes(process));
    if (size_bytes > spare) {
      return fail(StatusCode::kOutOfMemory,
                  "the machine is short of memory; bytes asked for against bytes to spare",
                  size_bytes,
                  spare);
    }
    process.room_until_bytes.store(wanted + (spare - size_bytes) / 2, std::memory_order_relaxed);
    process.room_until_ns.store(now + kBelievedNs, std::memory_order_relaxed);
  }
  promised(process, use).fetch_add(size_bytes, std::memory_order_relaxed);
  return Room(use, size_bytes);
}

void return_room(RoomUse use, std::uint64_t size_bytes) noexcept {
  promised(cpu_process(), use).fetch_sub(size_bytes, std::memory_order_relaxed);
}

Room::~Room() {
  if (size_bytes_ > 0) return_room(use_, size_bytes_);
}

}  // namespace headroom::device::internal
