// The CUDA driver as somebody else in the process uses it: streams, captures and kernels that our
// device did not make. Opened at run time and declared by hand, so that the tests compile without
// cuda.h and run wherever there is a driver.
#pragma once

#include <cstdint>
#include <dlfcn.h>
#include <stdexcept>
#include <string>

namespace headroom::testing {

class NativeCuda {
 public:
  // Throws std::runtime_error when a function is missing.
  NativeCuda() : library_(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {
    find("cuDevicePrimaryCtxRetain", retain);
    find("cuDevicePrimaryCtxRelease_v2", release);
    find("cuDevicePrimaryCtxGetState", state);
    find("cuCtxGetCurrent", get_current);
    find("cuCtxSetCurrent", set_current);
    find("cuCtxSynchronize", synchronize);
    find("cuStreamCreate", create_stream);
    find("cuStreamDestroy_v2", destroy_stream);
    find("cuStreamQuery", query_stream);
    find("cuStreamBeginCapture_v2", begin_capture);
    find("cuStreamEndCapture", end_capture);
    find("cuGraphDestroy", destroy_graph);
    find("cuModuleLoadData", load_module);
    find("cuModuleGetFunction", get_function);
    find("cuLaunchKernel", launch);
  }

  using Handle = void*;
  static constexpr unsigned kNonBlocking = 1;
  static constexpr int kCaptureGlobal = 0;  // the mode that forbids most

  int (*retain)(Handle* context, int device) = nullptr;
  int (*release)(int device) = nullptr;
  int (*state)(int device, unsigned* flags, int* is_active) = nullptr;
  int (*get_current)(Handle* context) = nullptr;
  int (*set_current)(Handle context) = nullptr;
  int (*synchronize)() = nullptr;
  int (*create_stream)(Handle* stream, unsigned flags) = nullptr;
  int (*destroy_stream)(Handle stream) = nullptr;
  int (*query_stream)(Handle stream) = nullptr;
  int (*begin_capture)(Handle stream, int mode) = nullptr;
  int (*end_capture)(Handle stream, Handle* graph) = nullptr;
  int (*destroy_graph)(Handle graph) = nullptr;
  int (*load_module)(Handle* module, const void* image) = nullptr;
  int (*get_function)(Handle* function, Handle module, const char* name) = nullptr;
  int (*launch)(Handle function,
                unsigned grid_x,
                unsigned grid_y,
                unsigned grid_z,
                unsigned block_x,
                unsigned block_y,
                unsigned block_z,
                unsigned shared_bytes,
                Handle stream,
                void** parameters,
                void** extra) = nullptr;

  // Whether the device's primary context exists.
  [[nodiscard]] bool has_context(int device) const {
    unsigned flags = 0;
    int is_active = 0;
    return state(device, &flags, &is_active) == 0 && is_active != 0;
  }

 private:
  template <class Pointer>
  void find(const char* name, Pointer& pointer) {
    if (library_ != nullptr) pointer = reinterpret_cast<Pointer>(dlsym(library_, name));
    if (pointer == nullptr) throw std::runtime_error(std::string("the driver has no ") + name);
  }

  void* library_;
};

// The primary context of the first GPU, current in this thread while it lives, as in a program
// that uses the CUDA runtime.
class NativeContext {
 public:
  explicit NativeContext(const NativeCuda& cuda) : cuda_(cuda) {
    void* context = nullptr;
    if (cuda_.get_current(&before_) != 0 || cuda_.retain(&context, 0) != 0 ||
        cuda_.set_current(context) != 0) {
      throw std::runtime_error("no primary context");
    }
  }
  NativeContext(const NativeContext&) = delete;
  NativeContext& operator=(const NativeContext&) = delete;
  ~NativeContext() {
    (void)cuda_.set_current(before_);
    (void)cuda_.release(0);
  }

 private:
  const NativeCuda& cuda_;
  void* before_ = nullptr;
};

}  // namespace headroom::testing
