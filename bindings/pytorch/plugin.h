// The plain route's C functions: what PyTorch's pluggable allocator calls (hooks), and what Python
// asks through ctypes. docs/guide/pytorch.md has the user's side.
//
// A hook is called by PyTorch's C++ and may throw: a std::runtime_error becomes Python's
// RuntimeError. A function for ctypes never throws; it returns null or -1, and then
// headroom_torch_last_error() of the same thread has a sentence. Texts stay good until the thread's
// next call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "bindings/c/headroom.h"

// PyTorch's MempoolId_t: of a graph, of a user.
using headroom_torch_pool = std::pair<unsigned long long, unsigned long long>;

// --- Hooks ---------------------------------------------------------------------------------------

// PyTorch's own signatures, called by pointer: a stream is a cudaStream_t. That a std::function of
// void* is passed where PyTorch has one of cudaStream_t makes no difference to how it is called.
extern "C" {

// Throws std::runtime_error when memory runs out, with PyTorch's sentence and our report.
HEADROOM_API void* headroom_torch_malloc(size_t size, int device, void* stream);
HEADROOM_API void headroom_torch_free(void* address,
                                      size_t size,
                                      int device,
                                      void* stream) noexcept;
// Memory that is not ours is left alone, as PyTorch's own allocator does.
HEADROOM_API void headroom_torch_record_stream(void* address, void* stream) noexcept;
HEADROOM_API void headroom_torch_init(int device_count);
// empty_cache(), of every device.
HEADROOM_API void headroom_torch_reset() noexcept;
// The smaller of this and the limit that was set holds.
HEADROOM_API void headroom_torch_memory_fraction(double fraction, int device);
// Where the segment of an address begins, and how long it is.
HEADROOM_API void* headroom_torch_base_alloc(void* address, size_t* size) noexcept;
// A graph capture: from begin to end, allocations on the streams that the filter accepts come from
// the pool, and nothing waits for the device.
HEADROOM_API void headroom_torch_begin_allocate_to_pool(int device,
                                                        headroom_torch_pool pool,
                                                        std::function<bool(void*)> filter);
HEADROOM_API void headroom_torch_end_allocate_to_pool(int device, headroom_torch_pool pool);
// Also from the destructor of a graph, so it tells what is wrong on stderr.
HEADROOM_API void headroom_torch_release_pool(int device, headroom_torch_pool pool) noexcept;

// --- For ctypes ----------------------------------------------------------------------------------

// Whether record_stream was registered: 1 lets a freed block go as soon as the streams that were
// named for it are done, 0 (as at first) when all that were seen are.
HEADROOM_API void headroom_torch_set_record_stream_is_registered(int is_registered) noexcept;
// The C interface's handle of a device; null where it cannot be opened.
HEADROOM_API headroom_allocator* headroom_torch_allocator(int device) noexcept;

// Reads the environment, before the first allocation: 0, or -1 where it is wrong.
HEADROOM_API int headroom_torch_prepare() noexcept;
// Settings, as in HEADROOM_ALLOC_CONF.
HEADROOM_API int headroom_torch_configure(const char* settings) noexcept;
// A bound on what each device may reserve; UINT64_MAX is none.
HEADROOM_API int headroom_torch_set_limit(uint64_t bytes) noexcept;
// `after_ms` after a device last grew, keep at most `keep_bytes` cached; 0 ms: keep all. Somebody
// has to call headroom_torch_tick() now and then.
HEADROOM_API int headroom_torch_idle_trim(int64_t after_ms, uint64_t keep_bytes) noexcept;
// Completes frees that waited, and trims what was idle.
HEADROOM_API void headroom_torch_tick() noexcept;

HEADROOM_API const char* headroom_torch_report(int device) noexcept;
// JSON.
HEADROOM_API const char* headroom_torch_account(int device) noexcept;
// JSON, with the keys of torch.cuda.memory_stats().
HEADROOM_API const char* headroom_torch_stats(int device) noexcept;
HEADROOM_API double headroom_torch_get_memory_fraction(int device) noexcept;
HEADROOM_API int headroom_torch_reset_peaks(int device) noexcept;
HEADROOM_API int headroom_torch_reset_accumulated(int device) noexcept;

// A part of the program that this thread enters, and leaves: pop returns its path and the peaks of
// the device meanwhile, as JSON.
HEADROOM_API int headroom_torch_scope_push(const char* name, int device) noexcept;
HEADROOM_API const char* headroom_torch_scope_pop() noexcept;

HEADROOM_API const char* headroom_torch_last_error() noexcept;

}  // extern "C"

// --- Within the library --------------------------------------------------------------------------

namespace headroom::memory {
class Allocator;
}

namespace headroom::torch_plugin {

inline constexpr int kMostDevices = 64;

// Makes it where there is none yet; throws Error.
[[nodiscard]] memory::Allocator& allocator_of(int device);
// Null where nothing was allocated on the device.
[[nodiscard]] memory::Allocator* opened_allocator(int device) noexcept;
[[nodiscard]] bool is_forked() noexcept;
// The environment, once; throws Error where it is wrong.
void prepare();
// Sets an allocator up as the functions above were told; what they are told later, they set.
void apply_settings(memory::Allocator& allocator);

}  // namespace headroom::torch_plugin
