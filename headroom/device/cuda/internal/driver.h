// CudaDriver: the functions of libcuda.so.1 that we call, found at run time by name.
//
// cuda.h gives the types and, by its macros, the version of each function (cuMemAlloc is
// cuMemAlloc_v2); nothing is linked. A function keeps its name, so that an error can say which call
// it came from.
#pragma once

#include <cstdint>
#include <cuda.h>
#include <string>

#include "headroom/base/result.h"
#include "headroom/device/types.h"

namespace headroom::device::internal {

template <class Pointer>
struct CudaFunction;
template <class... Parameters>
struct CudaFunction<CUresult (*)(Parameters...)> {
  const char* name;    // "cuMemAlloc"
  const char* symbol;  // "cuMemAlloc_v2"
  CUresult (*pointer)(Parameters...) = nullptr;

  CUresult operator()(Parameters... parameters) const noexcept { return pointer(parameters...); }
};

// clang-format off
#define HEADROOM_CUDA_FUNCTIONS(X)                                                               \
  X(cuInit) X(cuGetErrorName) X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetName)              \
  X(cuDeviceTotalMem) X(cuDeviceGetAttribute) X(cuDeviceGetPCIBusId)                             \
  X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease) X(cuDevicePrimaryCtxGetState)         \
  X(cuCtxGetCurrent) X(cuCtxPushCurrent) X(cuCtxPopCurrent) X(cuCtxSynchronize)                  \
  X(cuThreadExchangeStreamCaptureMode)                                                           \
  X(cuMemAlloc) X(cuMemFree) X(cuMemGetInfo)                                                     \
  X(cuMemHostAlloc) X(cuMemFreeHost) X(cuMemHostGetDevicePointer)                                \
  X(cuMemGetAllocationGranularity) X(cuMemAddressReserve) X(cuMemAddressFree)                    \
  X(cuMemCreate) X(cuMemRelease) X(cuMemMap) X(cuMemUnmap) X(cuMemSetAccess)                     \
  X(cuMemExportToShareableHandle) X(cuMemImportFromShareableHandle)                              \
  X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) X(cuMemcpyDtoDAsync) X(cuMemcpyPeerAsync)            \
  X(cuMemsetD8Async)                                                                             \
  X(cuStreamCreateWithPriority) X(cuStreamDestroy) X(cuStreamSynchronize) X(cuStreamGetId)       \
  X(cuStreamGetCtx) X(cuStreamIsCapturing) X(cuStreamWaitEvent) X(cuStreamWaitValue32)           \
  X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord) X(cuEventQuery) X(cuEventSynchronize)      \
  X(cuEventElapsedTime)                                                                          \
  X(cuLaunchHostFunc) X(cuLaunchKernel)                                                          \
  X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction)
// clang-format on

// Those of later drivers, which may be missing: to be asked for before they are called.
#if CUDA_VERSION >= 12050
#define HEADROOM_CUDA_LATER_FUNCTIONS(X) X(cuCtxRecordEvent)
#else
#define HEADROOM_CUDA_LATER_FUNCTIONS(X)
#endif

#define HEADROOM_CUDA_TEXT(name) #name
#define HEADROOM_CUDA_SYMBOL(name) HEADROOM_CUDA_TEXT(name)

struct CudaDriver {
// NOLINTBEGIN(bugprone-macro-parentheses): a declared name has no parentheses
#define HEADROOM_CUDA_MEMBER(name) \
  CudaFunction<decltype(&::name)> name{#name, HEADROOM_CUDA_SYMBOL(name)};
  // NOLINTEND(bugprone-macro-parentheses)
  HEADROOM_CUDA_FUNCTIONS(HEADROOM_CUDA_MEMBER)
  HEADROOM_CUDA_LATER_FUNCTIONS(HEADROOM_CUDA_MEMBER)
#undef HEADROOM_CUDA_MEMBER
};

// The driver, opened and started on the first call, with at least one device; or why not, in one
// line. Never closed: a static object may still free its memory while the program ends.
[[nodiscard]] const Result<const CudaDriver*, std::string>& cuda_driver();
[[nodiscard]] int cuda_device_count();
// Whether the process was forked after the driver was started: then it works no more.
[[nodiscard]] bool is_cuda_driver_forked() noexcept;

// Whether the context is lost, and nothing but a new process helps.
[[nodiscard]] bool is_sticky(CUresult result) noexcept;
// "a kernel failed earlier: ..." for a sticky error.
[[nodiscard]] const char* sticky_text(CUresult result) noexcept;

// The status of a failed driver call; `call` is its name. Sticky errors are kFailed.
[[nodiscard]] DeviceStatus to_status(const CudaDriver& driver,
                                     CUresult result,
                                     const char* call) noexcept;

}  // namespace headroom::device::internal
