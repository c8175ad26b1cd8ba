#include "headroom/device/cpu/internal/memory_file.h"

#include <cerrno>
#include <fcntl.h>
#include <iterator>
#include <new>
#include <string>
#include <sys/mman.h>
#include <system_error>
#include <unistd.h>

#include "headroom/base/error.h"
#include "headroom/device/cpu/internal/areas.h"
#include "headroom/device/cpu/internal/process.h"
#include "headroom/device/internal/status.h"

namespace headroom::device::internal {

MemoryFile::MemoryFile(int device_index) {
  CpuProcess& process = cpu_process();
  const std::string name = "headroom-cpu" + std::to_string(device_index);
  const std::scoped_lock lock(process.mutex);
  process.files.reserve(process.files.size() + 1);
  descriptor_ = memfd_create(name.c_str(), MFD_CLOEXEC);
  if (descriptor_ < 0) {
    throw Error("cpu:" + std::to_string(device_index) +
                ": the system gives no memory file: " + std::generic_category().message(errno));
  }
  process.files.push_back(descriptor_);
}

MemoryFile::~MemoryFile() {
  CpuProcess& process = cpu_process();
  const std::scoped_lock lock(process.mutex);
  std::erase(process.files, descriptor_);
  close(descriptor_);
}

DeviceResult<std::uint64_t> MemoryFile::allocate(std::uint64_t size_bytes) {
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    const auto [offset, gap_bytes] = *gap;
    if (gap_bytes < size_bytes) continue;
    if (gap_bytes > size_bytes) gaps_.emplace(offset + size_bytes, gap_bytes - size_bytes);
    gaps_.erase(offset);
    return offset;
  }
  const std::uint64_t offset = end_;
  if (ftruncate(descriptor_, static_cast<off_t>(offset + size_bytes)) != 0) {
    return fail(StatusCode::kOutOfMemory, "the memory file cannot grow", size_bytes, 0, errno);
  }
  end_ = offset + size_bytes;
  return offset;
}

void MemoryFile::free(std::uint64_t offset, std::uint64_t size_bytes) noexcept {
  const int punched = fallocate(descriptor_,
                                FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                static_cast<off_t>(offset),
                                static_cast<off_t>(size_bytes));
  // An offset that may still hold data is never used again; offsets are plenty.
  if (punched != 0) return;
  try {
    add_gap(offset, size_bytes);
  } catch (const std::bad_alloc&) {
    // The memory has gone back; only the offset is lost.
  }
}

void MemoryFile::add_gap(std::uint64_t offset, std::uint64_t size_bytes) {
  const auto gap = gaps_.emplace(offset, size_bytes).first;
  if (const auto next = std::next(gap); next != gaps_.end() && next->first == offset + size_bytes) {
    gap->second += next->second;
    gaps_.erase(next);
  }
  if (gap == gaps_.begin()) return;
  if (const auto before = std::prev(gap); before->first + before->second == offset) {
    before->second += gap->second;
    gaps_.erase(gap);
  }
}

int MemoryFile::map(DeviceAddress address,
                    std::uint64_t size_bytes,
                    std::uint64_t offset) const noexcept {
  const std::scoped_lock lock(cpu_process().mutex);
  void* at = mmap(to_pointer(address),
                  size_bytes,
                  PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
                  descriptor_,
                  static_cast<off_t>(offset));
  if (at == MAP_FAILED) return errno;
  madvise(at, size_bytes, MADV_DONTFORK);
  return 0;
}

}  // namespace headroom::device::internal
