#include "headroom/device/cuda/internal/driver.h"

#include <dlfcn.h>
#include <map>
#include <mutex>
#include <new>
#include <string_view>
#include <utility>

#include "headroom/base/fork.h"

namespace headroom::device::internal {
namespace {

struct Opened {
  CudaDriver functions;
  int count = 0;
  ForkMark made{};
  Result<const CudaDriver*, std::string> driver = Unexpected(std::string());
};

std::string error_name(const CudaDriver& driver, CUresult result) {
  const char* name = nullptr;
  if (driver.cuGetErrorName(result, &name) == CUDA_SUCCESS && name != nullptr) return name;
  return "error " + std::to_string(static_cast<int>(result));
}

std::string why_not_loaded() {
  const char* text = dlerror();
  const std::string_view error = text == nullptr ? "" : text;
  if (error.empty() || error.find("No such file") != std::string_view::npos) {
    return "no NVIDIA driver on this machine (libcuda.so.1 not found)";
  }
  return "the NVIDIA driver cannot be loaded (" + std::string(error) + ")";
}

// The name of the first function that is missing, or null.
const char* find_functions(void* library, CudaDriver& functions) {
  const char* missing = nullptr;
  const auto find = [&](auto& function) {
    void* found = dlsym(library, function.symbol);
    // Versions that changed how it is counted, not how it is called: an older driver's serves.
    if (found == nullptr && std::string_view(function.name) == "cuEventElapsedTime") {
      found = dlsym(library, function.name);
    }
    if (found == nullptr && missing == nullptr) missing = function.symbol;
    function.pointer = reinterpret_cast<decltype(function.pointer)>(found);
  };
#define HEADROOM_CUDA_FIND(name) find(functions.name);
  HEADROOM_CUDA_FUNCTIONS(HEADROOM_CUDA_FIND)
  const char* const missing_of_all = missing;
  HEADROOM_CUDA_LATER_FUNCTIONS(HEADROOM_CUDA_FIND)
#undef HEADROOM_CUDA_FIND
  return missing_of_all;
}

std::string open_driver(Opened& opened) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return why_not_loaded();
  if (const char* missing = find_functions(library, opened.functions)) {
    return std::string("the NVIDIA driver is too old (it has no ") + missing +
           "); the one of CUDA 12 is needed";
  }
  const CUresult started = opened.functions.cuInit(0);
  if (started == CUDA_ERROR_NO_DEVICE) return "the driver found no GPU";
  if (started == CUDA_ERROR_STUB_LIBRARY) {
    return "libcuda.so.1 is the toolkit's stub, not a driver; look at LD_LIBRARY_PATH";
  }
  if (started != CUDA_SUCCESS) {
    return "the NVIDIA driver does not start (" + error_name(opened.functions, started) + ")";
  }
  const CUresult counted = opened.functions.cuDeviceGetCount(&opened.count);
  if (counted != CUDA_SUCCESS || opened.count <= 0) {
    opened.count = 0;
    return "the driver found no GPU";
  }
  return "";
}

const Opened& opened_driver() {
  // Leaked, as the library is.
  static const Opened* const kept = [] {
    auto* opened = new Opened;
    if (std::string why = open_driver(*opened); !why.empty()) {
      opened->driver = Unexpected(std::move(why));
    } else {
      opened->driver = &opened->functions;
    }
    return opened;
  }();
  return *kept;
}

// "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY", made once and kept, because a DeviceStatus holds
// literals.
const char* describe(const CudaDriver& driver, CUresult result, const char* call) noexcept {
  try {
    static auto& mutex = *new ForkSafeMutex(ForkSafeMutex::Rank::kTable);
    static auto* const texts = new std::map<std::pair<const char*, int>, std::string>;
    const std::scoped_lock lock(mutex);
    std::string& text = (*texts)[{call, static_cast<int>(result)}];
    if (text.empty()) text = std::string(call) + ": " + error_name(driver, result);
    return text.c_str();
  } catch (const std::bad_alloc&) {
    return call;
  }
}

StatusCode to_code(CUresult result) noexcept {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return StatusCode::kOutOfMemory;
    // We always bring our own context, so one that is not valid is one that has gone.
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
      return StatusCode::kShutDown;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_CAPTURED_EVENT:
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
      return StatusCode::kInvalidArgument;
    case CUDA_ERROR_INVALID_HANDLE:
      return StatusCode::kUnknownHandle;
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NOT_PERMITTED:
      return StatusCode::kNotSupported;
    default:
      return StatusCode::kFailed;
  }
}

}  // namespace

const Result<const CudaDriver*, std::string>& cuda_driver() { return opened_driver().driver; }

int cuda_device_count() { return opened_driver().count; }

bool is_cuda_driver_forked() noexcept { return opened_driver().made.is_forked(); }

const char* sticky_text(CUresult result) noexcept {
  // Younger than the oldest cuda.h that will do.
  constexpr int kContained = 226;
  constexpr int kTensorMemoryLeak = 721;
  switch (static_cast<int>(result)) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
      return "a kernel failed earlier: CUDA_ERROR_ILLEGAL_ADDRESS (it used memory that is not "
             "there)";
    case CUDA_ERROR_MISALIGNED_ADDRESS:
      return "a kernel failed earlier: CUDA_ERROR_MISALIGNED_ADDRESS";
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
      return "a kernel failed earlier: CUDA_ERROR_INVALID_ADDRESS_SPACE";
    case CUDA_ERROR_INVALID_PC:
      return "a kernel failed earlier: CUDA_ERROR_INVALID_PC";
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
      return "a kernel failed earlier: CUDA_ERROR_ILLEGAL_INSTRUCTION";
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
      return "a kernel failed earlier: CUDA_ERROR_HARDWARE_STACK_ERROR";
    case CUDA_ERROR_ASSERT:
      return "a kernel failed earlier: CUDA_ERROR_ASSERT (an assertion of its own)";
    case CUDA_ERROR_LAUNCH_FAILED:
      return "a kernel failed earlier: CUDA_ERROR_LAUNCH_FAILED";
    case CUDA_ERROR_LAUNCH_TIMEOUT:
      return "a kernel failed earlier: CUDA_ERROR_LAUNCH_TIMEOUT (it took too long)";
    case kTensorMemoryLeak:
      return "a kernel failed earlier: CUDA_ERROR_TENSOR_MEMORY_LEAK";
    case CUDA_ERROR_ECC_UNCORRECTABLE:
      return "the GPU failed earlier: CUDA_ERROR_ECC_UNCORRECTABLE (its memory lost bits)";
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
      return "the GPU failed earlier: CUDA_ERROR_NVLINK_UNCORRECTABLE";
    case kContained:
      return "the GPU failed earlier: CUDA_ERROR_CONTAINED (its memory lost bits)";
    case CUDA_ERROR_EXTERNAL_DEVICE:
      return "the GPU failed earlier: CUDA_ERROR_EXTERNAL_DEVICE";
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
      return "the GPU failed earlier: CUDA_ERROR_MPS_CLIENT_TERMINATED";
    default:
      return nullptr;
  }
}

bool is_sticky(CUresult result) noexcept { return sticky_text(result) != nullptr; }

DeviceStatus to_status(const CudaDriver& driver, CUresult result, const char* call) noexcept {
  return {.code = to_code(result),
          .detail = is_sticky(result) ? sticky_text(result) : describe(driver, result, call),
          .native_code = static_cast<std::int64_t>(result)};
}

}  // namespace headroom::device::internal
