// PyTorch's pluggable allocator over headroom's: the functions that headroom_torch.py hands to it.
//
//   import headroom_torch
//   headroom_torch.install()      # before the first tensor on a GPU
//
// PyTorch calls headroom_torch_record_stream only where it was registered. Without it nobody says
// which streams use a block, so a block that is freed waits for every stream seen so far.
//
// PyTorch takes a null pointer for an allocation that worked, so the report of one that did not is
// written to stderr. HEADROOM_STATS=FILE writes the statistics of every device there at the end.
//
// The allocator is the paged one unless HEADROOM_ALLOC_CONF says otherwise. PyTorch's variables are
// ignored: they are there for PyTorch's own allocator, and say nothing about this one.
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

#include "headroom/base/fork.h"
#include "headroom/memory/api.h"

#include "bindings/c/headroom.h"

// Tests plug the cpu device in: its streams are threads.
#ifndef HEADROOM_TORCH_DEVICE
#define HEADROOM_TORCH_DEVICE "cuda"
#endif

namespace {

constexpr int kMostDevices = 64;

// PyTorch says which streams use a block.
std::atomic<bool> g_is_told_of_streams{false};  // NOLINT(readability-identifier-naming)

// The child of a fork holds nothing: its frees are nobody's loss, and its numbers nobody's.
const headroom::ForkMark g_loaded{};  // NOLINT(readability-identifier-naming)

void tell_last_error() noexcept { std::fprintf(stderr, "headroom: %s\n", headroom_last_error()); }

std::array<std::atomic<headroom_allocator*>, kMostDevices>& allocators() {
  static std::array<std::atomic<headroom_allocator*>, kMostDevices> instance{};
  return instance;
}

void write_stats() noexcept {
  const char* const path = std::getenv("HEADROOM_STATS");
  if (g_loaded.is_forked() || path == nullptr || *path == '\0') return;
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

// Once, before the first allocator is made.
void leave_pytorch_its_variables() {
  try {
    std::string names;
    for (const std::string& name : headroom::ignore_pytorch_variables()) {
      names += (names.empty() ? "" : ", ") + name;
    }
    if (names.empty()) return;
    std::fprintf(stderr,
                 "headroom: ignored: %s (for PyTorch's own allocator; HEADROOM_ALLOC_CONF sets "
                 "headroom's)\n",
                 names.c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "headroom: %s\n", error.what());
  }
}

headroom_allocator* open_device(int device) {
  static std::once_flag before_all;
  std::call_once(before_all, leave_pytorch_its_variables);
  headroom_allocator* made = nullptr;
  const std::string name = HEADROOM_TORCH_DEVICE ":" + std::to_string(device);
  if (headroom_open(name.c_str(), &made) != HEADROOM_OK) {
    tell_last_error();
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

// The device that a block belongs to, of those that have handed out blocks.
headroom_allocator* owner_of(void* address) noexcept {
  for (const auto& opened : allocators()) {
    headroom_allocator* const allocator = opened.load(std::memory_order_acquire);
    if (allocator != nullptr && headroom_owns(allocator, address) != 0) return allocator;
  }
  return nullptr;
}

}  // namespace

extern "C" {

HEADROOM_API void* headroom_torch_malloc(size_t size, int device, void* stream) noexcept {
  headroom_allocator* const allocator = allocator_of(device);
  if (allocator == nullptr || size == 0) return nullptr;
  void* const block = headroom_allocate(allocator, size, stream);
  if (block == nullptr) tell_last_error();
  return block;
}

HEADROOM_API void headroom_torch_free(void* address,
                                      size_t /*size*/,
                                      int device,
                                      void* /*stream*/) noexcept {
  headroom_allocator* const allocator = allocator_of(device);
  if (allocator == nullptr || address == nullptr || g_loaded.is_forked()) return;
  if (!g_is_told_of_streams.load(std::memory_order_relaxed) &&
      headroom_record_all_streams(allocator, address) != HEADROOM_OK) {
    tell_last_error();  // and the block stays: better lost than written over while it is read
    return;
  }
  if (headroom_free(allocator, address) != HEADROOM_OK) tell_last_error();
}

// For set_record_stream_fn. Memory that is not ours is left alone, as PyTorch's own allocator does.
HEADROOM_API void headroom_torch_record_stream(void* address, void* stream) noexcept {
  g_is_told_of_streams.store(true, std::memory_order_relaxed);
  headroom_allocator* const allocator = owner_of(address);
  if (allocator == nullptr) return;
  if (headroom_record_stream(allocator, address, stream) != HEADROOM_OK) tell_last_error();
}

// Whether the function above was registered: 1 lets a freed block go as soon as the streams that
// were named for it are done, 0 (as at first) when all that were seen are.
HEADROOM_API void headroom_torch_set_record_stream_is_registered(int is_registered) noexcept {
  g_is_told_of_streams.store(is_registered != 0, std::memory_order_relaxed);
}

// For a statistics call from Python: ctypes.CDLL(path).headroom_torch_allocator(device).
HEADROOM_API headroom_allocator* headroom_torch_allocator(int device) noexcept {
  return allocator_of(device);
}

}  // extern "C"
