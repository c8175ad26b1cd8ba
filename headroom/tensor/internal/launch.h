// A launch: the workspace that the backend asks for, the kernel on the device's current stream, and
// its status as an Error that names the op.
#pragma once

#include <optional>

#include "headroom/tensor/kernels.h"
#include "headroom/tensor/storage.h"
#include "headroom/tensor/stream.h"

namespace headroom::tensor {
namespace internal {

// The backend's state for the device; makes it the first time.
[[nodiscard]] device::Attachment* state_of(const Kernels& kernels, device::Device& device);
[[noreturn]] void refuse_workspace(const char* op);
[[noreturn]] void refuse_kernel(const char* op, const device::Device& device);
[[noreturn]] void fail_launch(const char* op, const device::DeviceStatus& status);
// Queues a host task; drops the data and throws where the stream takes none.
void enqueue(const char* op,
             const Launch& where,
             void (*run)(void*) noexcept,
             void* data,
             void (*drop)(void*) noexcept);

// On a stream of a host backend that is not run inline.
template <class Args>
void run_later(const char* op, const Kernel<Args>& kernel, const Args& args, const Launch& where) {
  struct Task {
    LaunchResult (*run)(const Args&, const Launch&);
    Args args;
    Launch where;
  };
  enqueue(
      op,
      where,
      [](void* data) noexcept {
        const auto* task = static_cast<Task*>(data);
        (void)task->run(task->args, task->where);
        delete task;
      },
      new Task{kernel.run, args, where},
      [](void* data) noexcept { delete static_cast<Task*>(data); });
}

}  // namespace internal

// Whether the backend that the device has, or stands for, does all that the arguments ask in one
// launch.
template <class Args>
[[nodiscard]] bool accepts(const memory::Allocator& allocator,
                           Kernel<Args> Kernels::*family,
                           const Args& args) {
  const device::Device& device = allocator.device();
  const Kernel<Args>& kernel = backend_of(device).kernels.*family;
  return kernel.accepts == nullptr || kernel.accepts(args, device.properties());
}

// Runs a kernel of a family on the current stream of the allocator's device; on meta, allocates its
// workspace and skips it.
template <class Args>
void launch(const char* op,
            memory::Allocator& allocator,
            Kernel<Args> Kernels::*family,
            const Args& args) {
  device::Device& device = allocator.device();
  const Backend backend = backend_of(device);
  const Kernel<Args>& kernel = backend.kernels.*family;
  Launch where{.device = device, .stream = current_stream_id(device)};
  std::optional<Storage> workspace;
  if (kernel.workspace_bytes != nullptr) {
    const std::uint64_t wanted = kernel.workspace_bytes(args, device.properties());
    if (wanted > 0) {
      if (wanted == kTooManyBytes) internal::refuse_workspace(op);
      workspace.emplace(allocator, wanted, where.stream, memory::Category::kWorkspace);
      where.workspace = {.data = reinterpret_cast<void*>(workspace->address()),
                         .size_bytes = wanted};
    }
  }
  if (backend.is_planned) return;
  if (kernel.run == nullptr) internal::refuse_kernel(op, device);
  if (backend.kernels.create_state != nullptr) {
    where.state = internal::state_of(backend.kernels, device);
  }
  if (backend.kernels.is_host && where.stream != device::StreamId::kDefault) {
    internal::run_later(op, kernel, args, where);
    return;
  }
  if (const LaunchResult done = kernel.run(args, where); !done) {
    internal::fail_launch(op, done.error());
  }
}

}  // namespace headroom::tensor
