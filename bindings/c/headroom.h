/* headroom's C ABI: the allocators of the process, one for each device.
 *
 *   headroom_allocator* gpu;
 *   if (headroom_open("cuda:0", &gpu) != HEADROOM_OK) puts(headroom_last_error());
 *   void* block = headroom_allocate(gpu, 1 << 20, stream);   // null: see headroom_last_error()
 *   headroom_free(gpu, block);
 *
 * Functions that can fail return a status, or null; headroom_last_error() of the same thread then
 * has a sentence. Nothing throws. Any thread may call anything. Allocators live as long as the
 * process, so that memory can be freed until its very end.
 *
 * Streams are the backend's own: a cudaStream_t, 0 for the default stream.
 */
#ifndef HEADROOM_BINDINGS_C_HEADROOM_H
#define HEADROOM_BINDINGS_C_HEADROOM_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define HEADROOM_API __attribute__((visibility("default")))
#else
#define HEADROOM_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct headroom_allocator headroom_allocator;

typedef enum headroom_status {
  HEADROOM_OK = 0,
  HEADROOM_OUT_OF_MEMORY = 1,
  HEADROOM_INVALID = 2, /* an argument, an environment variable or an address that is wrong */
  HEADROOM_FAILED = 3   /* the device failed */
} headroom_status;

/* Bytes, but for the counts. `size` is set by the caller to sizeof(headroom_stats): fields that a
 * caller does not know yet are not written. */
typedef struct headroom_stats {
  size_t size;
  uint64_t allocated, allocated_peak;
  uint64_t active, active_peak; /* allocated, or freed and still used by another stream */
  uint64_t reserved, reserved_peak;
  uint64_t live_peak; /* the sizes asked for, each rounded up to 512 */
  uint64_t allocations, retries, out_of_memory;
  uint64_t handles_created, handles_mapped, handles_unmapped;
} headroom_stats;

/* The allocator of a device (`cuda:0`, `cpu`), made when first asked for; one per device, so `cpu`
 * and `cpu:0` are the same, and the one that headroom::allocator() gives to C++. Which allocator it
 * is, and how it is set, is in HEADROOM_ALLOC_CONF, as everywhere; without it PyTorch's variables
 * count, and without those it is the paged one. HEADROOM_LIMIT (`12GiB`) bounds what it may
 * reserve. */
HEADROOM_API headroom_status headroom_open(const char* device, headroom_allocator** out);

HEADROOM_API void* headroom_allocate(headroom_allocator* allocator, size_t size, void* stream);
HEADROOM_API headroom_status headroom_free(headroom_allocator* allocator, void* address);
/* `stream` uses the block too: once freed, it is not handed out again before that has passed. */
HEADROOM_API headroom_status headroom_record_stream(headroom_allocator* allocator,
                                                    void* address,
                                                    void* stream);
/* Every stream that this allocator was given so far uses the block too, and so does the default
 * stream: for callers that do not know which streams use a block. Free while there is only the
 * default stream. */
HEADROOM_API headroom_status headroom_record_all_streams(headroom_allocator* allocator,
                                                         void* address);
/* 1 where `address` is a block of this allocator that was not freed yet, else 0. */
HEADROOM_API int headroom_owns(headroom_allocator* allocator, void* address);

/* UINT64_MAX removes the bound. */
HEADROOM_API headroom_status headroom_set_limit(headroom_allocator* allocator, uint64_t bytes);
/* Gives cached memory back to the device; returns the bytes. */
HEADROOM_API uint64_t headroom_empty_cache(headroom_allocator* allocator);
HEADROOM_API headroom_status headroom_get_stats(headroom_allocator* allocator, headroom_stats* out);
HEADROOM_API headroom_status headroom_reset_peaks(headroom_allocator* allocator);

/* Of this thread's last call that failed; empty where none did. */
HEADROOM_API const char* headroom_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
