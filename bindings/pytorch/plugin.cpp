// PyTorch's pluggable allocator over headroom's: the two symbols it looks for.
//
//   import torch
//   torch.cuda.memory.change_current_allocator(torch.cuda.memory.CUDAPluggableAllocator(
//       "libheadroom_torch.so", "headroom_torch_malloc", "headroom_torch_free"))
//
// PyTorch takes a null pointer for an allocation that worked, so the report of one that did not is
// written to stderr. HEADROOM_STATS=FILE writes the statistics of every device there at the end.
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

#include "bindings/c/headroom.h"

namespace {

constexpr int kMostDevices = 64;

std::array<std::atomic<headroom_allocator*>, kMostDevices>& allocators() {
  static std::array<std::atomic<headroom_allocator*>, kMostDevices> instance{};
  return instance;
}

void write_stats() noexcept {
  const char* const path = std::getenv("HEADROOM_STATS");
  if (path == nullptr || *path == '\0') return;
  std::FILE* const file = std::fopen(path, "w");
  if (file == nullptr) {
    std::fprintf(stderr, "headroom: HEADROOM_STATS: '%s' cannot be written\n", path);
    return;
  }
  std::fputs("[", file);
  const char* separator = "";
  for (int i = 0; i < kMostDevices; ++i) {
    headroom_allocator* const allocator = allocators()[static_cast<std::size_t>(i)].load();
    headroom_stats s{};
    s.size = sizeof(s);
    if (allocator == nullptr || headroom_get_stats(allocator, &s) != HEADROOM_OK) continue;
    const auto n = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
    std::fprintf(file,
                 "%s{\"device\": %d, \"allocated_peak\": %llu, \"active_peak\": %llu, "
                 "\"reserved_peak\": %llu, \"live_peak\": %llu, \"allocations\": %llu, "
                 "\"retries\": %llu, \"out_of_memory\": %llu, \"handles_created\": %llu, "
                 "\"handles_mapped\": %llu, \"handles_unmapped\": %llu}",
                 separator,
                 i,
                 n(s.allocated_peak),
                 n(s.active_peak),
                 n(s.reserved_peak),
                 n(s.live_peak),
                 n(s.allocations),
                 n(s.retries),
                 n(s.out_of_memory),
                 n(s.handles_created),
                 n(s.handles_mapped),
                 n(s.handles_unmapped));
    separator = ", ";
  }
  std::fputs("]\n", file);
  std::fclose(file);
}

headroom_allocator* open_device(int device) {
  headroom_allocator* made = nullptr;
  const std::string name = "cuda:" + std::to_string(device);
  if (headroom_open(name.c_str(), &made) != HEADROOM_OK) {
    std::fprintf(stderr, "headroom: %s\n", headroom_last_error());
    return nullptr;
  }
  static std::once_flag once;
  std::call_once(once, [] { std::atexit(write_stats); });
  allocators()[static_cast<std::size_t>(device)].store(made);
  return made;
}

headroom_allocator* allocator_of(int device) {
  if (device < 0 || device >= kMostDevices) return nullptr;
  headroom_allocator* const known =
      allocators()[static_cast<std::size_t>(device)].load(std::memory_order_acquire);
  return known != nullptr ? known : open_device(device);
}

}  // namespace

extern "C" {

HEADROOM_API void* headroom_torch_malloc(size_t size, int device, void* stream) noexcept {
  headroom_allocator* const allocator = allocator_of(device);
  if (allocator == nullptr || size == 0) return nullptr;
  void* const block = headroom_allocate(allocator, size, stream);
  if (block == nullptr) std::fprintf(stderr, "headroom: %s\n", headroom_last_error());
  return block;
}

HEADROOM_API void headroom_torch_free(void* address,
                                      size_t /*size*/,
                                      int device,
                                      void* /*stream*/) noexcept {
  headroom_allocator* const allocator = allocator_of(device);
  if (allocator == nullptr || address == nullptr) return;
  if (headroom_free(allocator, address) != HEADROOM_OK) {
    std::fprintf(stderr, "headroom: %s\n", headroom_last_error());
  }
}

// For a statistics call from Python: ctypes.CDLL(path).headroom_torch_allocator(device).
HEADROOM_API headroom_allocator* headroom_torch_allocator(int device) noexcept {
  return allocator_of(device);
}

}  // extern "C"
