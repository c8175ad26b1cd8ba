// What a backend computes: one function per family, over plain arguments (kernel_args.h,
// layer_args.h, optim_args.h). Ops decide shapes, check, and allocate outputs and workspaces; a
// kernel only fills them. It allocates no device memory, and nothing it is given depends on the
// number of threads or the processor's features, so a `meta` device can run the same ops and skip
// the kernels.
//
// A backend joins by register_kernels(kind, table).
#pragma once

#include "headroom/device/device.h"
#include "headroom/tensor/kernel_args.h"
#include "headroom/tensor/layer_args.h"
#include "headroom/tensor/optim_args.h"

namespace headroom::tensor {

// Where a launch goes; a host backend's kernels run inside the stream and ignore it.
struct Launch {
  device::Device& device;
  device::StreamId stream = device::StreamId::kDefault;
};

struct Kernels {
  // Runs on the processor: launch() calls it inline on the default stream and queues it as a host
  // task on others. Otherwise the kernel itself queues its work on the stream.
  bool is_host = true;
  void (*element)(const ElementArgs&, Launch) = nullptr;
  void (*generate)(const GenerateArgs&, Launch) = nullptr;
  void (*reduce)(const ReduceArgs&, Launch) = nullptr;
  void (*matmul)(const MatmulArgs&, Launch) = nullptr;
  void (*solve)(const SolveArgs&, Launch) = nullptr;
  void (*softmax)(const SoftmaxArgs&, Launch) = nullptr;
  void (*softmax_backward)(const SoftmaxArgs&, Launch) = nullptr;
  void (*cross_entropy)(const CrossEntropyArgs&, Launch) = nullptr;
  void (*gather)(const IndexArgs&, Launch) = nullptr;
  void (*scatter)(const IndexArgs&, Launch) = nullptr;
  void (*conv2d)(const Conv2dArgs&, Launch) = nullptr;
  void (*pool2d)(const Pool2dArgs&, Launch) = nullptr;
  void (*layer_norm)(const LayerNormArgs&, Launch) = nullptr;
  void (*batch_norm)(const BatchNormArgs&, Launch) = nullptr;
  void (*dropout)(const DropoutArgs&, Launch) = nullptr;
  void (*attention)(const AttentionArgs&, Launch) = nullptr;
  void (*list)(const ListArgs&, Launch) = nullptr;
  // Answers at once; the stream has been waited for. Null where the kernels check for themselves.
  void (*check_index)(IndexCheckArgs&, Launch) = nullptr;
};

void register_kernels(device::DeviceKind kind, const Kernels& kernels);
// Null for meta. Throws Error for a kind without kernels in this build.
[[nodiscard]] const Kernels* kernels_for(device::DeviceKind kind);

namespace internal {
// Queues a host task that runs `kernel(args)`.
void enqueue(Launch launch, void (*run)(void*) noexcept, void* data, void (*drop)(void*) noexcept);
}  // namespace internal

// Runs a kernel on the device's current stream; skips it on meta.
template <class Args>
void launch(Launch where, void (*Kernels::*member)(const Args&, Launch), const Args& args) {
  const Kernels* kernels = kernels_for(where.device.id().kind);
  if (kernels == nullptr) return;
  const auto kernel = kernels->*member;
  if (!kernels->is_host || where.stream == device::StreamId::kDefault) {
    kernel(args, where);
    return;
  }
  struct Task {
    decltype(kernel) function;
    Args args;
    Launch where;
  };
  internal::enqueue(
      where,
      [](void* data) noexcept {
        const auto* task = static_cast<Task*>(data);
        task->function(task->args, task->where);
        delete task;
      },
      new Task{kernel, args, where},
      [](void* data) noexcept { delete static_cast<Task*>(data); });
}

}  // namespace headroom::tensor
