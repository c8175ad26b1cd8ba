// PyTorch's own caching allocator as a plug-in of `headroom bench alloc`, so that both are measured
// in one process, on one card, round by round. Only c10 is needed: no tensors, no Python.
#include <cstdint>
#include <exception>
#include <string>

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include "benchmarks/alloc/allocator_plugin.h"

namespace {

namespace caching = c10::cuda::CUDACachingAllocator;

thread_local std::string last_error_text;

// Runs `body`; says 1, or 0 with what it threw kept for last_error().
template <class Body>
int attempt(Body&& body) noexcept {
  try {
    body();
    return 1;
  } catch (const std::exception& error) {
    // The first line: a backtrace may follow.
    const std::string text = error.what();
    last_error_text = text.substr(0, text.find('\n'));
  } catch (...) {
    last_error_text = "an exception of unknown type";
  }
  return 0;
}

const char* name() { return "PyTorch " HEADROOM_TORCH_VERSION; }

int enter_thread(int device) {
  return attempt([&] { c10::cuda::set_device(static_cast<c10::DeviceIndex>(device)); });
}

int open(int device) {
  return attempt([] {
           if (!caching::get()->initialized()) caching::init(c10::cuda::device_count());
         }) != 0 &&
                 enter_thread(device) != 0
             ? 1
             : 0;
}

void* allocate(std::uint64_t size_bytes) {
  void* address = nullptr;
  attempt([&] { address = caching::raw_alloc_with_stream(size_bytes, nullptr); });
  return address;
}

int free_block(void* address) {
  return attempt([&] { caching::raw_delete(address); });
}

void empty_cache() {
  attempt([] { caching::emptyCache(); });
}

const char* last_error() { return last_error_text.c_str(); }

constexpr HeadroomAllocatorPlugin kPlugin{.version = HEADROOM_ALLOCATOR_PLUGIN_VERSION,
                                          .name = name,
                                          .open = open,
                                          .enter_thread = enter_thread,
                                          .allocate = allocate,
                                          .free = free_block,
                                          .empty_cache = empty_cache,
                                          .last_error = last_error};

}  // namespace

extern "C" __attribute__((visibility("default"))) const HeadroomAllocatorPlugin*
headroom_allocator_plugin() {
  return &kPlugin;
}
