// The seam of a backend: one entry per family of kernels, over plain arguments (kernel_args.h and
// the headers that it names). Ops decide shapes, check, and allocate the outputs. A backend says
// how much workspace a kernel needs; the op layer allocates that and hands it over. A kernel only
// fills what it is given: it allocates no device memory, and no size depends on the number of
// threads or on how busy the device is. So a `meta` device runs the same ops, asks the backend that
// it stands for, allocates the same bytes, and skips the kernels.
//
//   Kernels table{.is_host = false};
//   table.matmul = {.run = my_matmul, .workspace_bytes = my_matmul_workspace};
//   ...
//   register_kernels(DeviceKind::kCuda, table);
//
// An entry is optional where its comment says so, with the default beside it.
#pragma once

#include <cstdint>
#include <memory>

#include "headroom/device/device.h"
#include "headroom/tensor/kernel_args.h"
#include "headroom/tensor/layer_args.h"
#include "headroom/tensor/optim_args.h"

namespace headroom::tensor {

// Memory of the device for one kernel: exactly the bytes that its backend asked for, aligned to
// 512.
struct Workspace {
  void* data = nullptr;
  std::uint64_t size_bytes = 0;
};

// Where a launch goes; a host backend's kernels run inside the stream and ignore it.
struct Launch {
  device::Device& device;
  device::StreamId stream = device::StreamId::kDefault;
  Workspace workspace{};
  // The result of Kernels::create_state for the device; null without one.
  device::Attachment* state = nullptr;
};

// The answer of a launch. One that fails has queued nothing, or has queued work that does no harm;
// the op throws Error with the op's name and this status, and its outputs are freed.
using LaunchResult = device::DeviceResult<void>;

// More than this cannot be asked for: a size that 64 bits cannot count.
inline constexpr std::uint64_t kTooManyBytes = UINT64_MAX;

template <class Args>
struct Kernel {
  // Queues the work on the stream, or does it where `is_host`. Keeps no pointer to the arguments.
  // May be null in a table that is only planned with: a launch on a device then throws.
  LaunchResult (*run)(const Args&, const Launch&) = nullptr;
  // (optional) Bytes of workspace that `run` needs: a rule of the arguments' shapes and types, and
  // of what the device is (multiprocessors, architecture). Pointers in the arguments may be
  // anything. Pure: asked without the device too, when a step is planned on meta, and the answers
  // must be equal. A library inside `run` gets at most this; algorithms that need more are not
  // considered. kTooManyBytes where 64 bits do not suffice. Default: none.
  std::uint64_t (*workspace_bytes)(const Args&, const device::Properties&) = nullptr;
  // (optional) Whether `run` does all that the arguments ask; pure, and asked on meta too, like
  // workspace_bytes. Where it does not, the op layer asks for less and launches the rest by itself.
  // Default: yes.
  bool (*accepts)(const Args&, const device::Properties&) = nullptr;
};

struct Kernels {
  // Runs on the processor: a launch calls `run` inline on the default stream and queues it as a
  // host task on others, where nobody hears of a failure. Otherwise `run` itself queues its work.
  bool is_host = true;
  // (optional) A backend's own things for one device: library handles, plans cached by shape. Made
  // before the first launch there, destroyed before the device is. Throws Error. Default: none.
  std::unique_ptr<device::Attachment> (*create_state)(device::Device&) = nullptr;

  Kernel<ElementArgs> element{};
  Kernel<GenerateArgs> generate{};
  Kernel<ReduceArgs> reduce{};
  Kernel<MatmulArgs> matmul{};
  Kernel<SolveArgs> solve{};
  Kernel<SoftmaxArgs> softmax{};
  Kernel<SoftmaxArgs> softmax_backward{};
  Kernel<CrossEntropyArgs> cross_entropy{};
  Kernel<IndexArgs> gather{};
  Kernel<IndexArgs> scatter{};
  Kernel<Conv2dArgs> conv2d{};
  Kernel<Pool2dArgs> pool2d{};
  Kernel<LayerNormArgs> layer_norm{};
  Kernel<BatchNormArgs> batch_norm{};
  Kernel<DropoutArgs> dropout{};
  Kernel<AttentionArgs> attention{};
  Kernel<MultiTensorArgs> multi_tensor{};
  Kernel<StepNumberArgs> step_numbers{};
  // (optional) Fused: each is one launch for what the op layer otherwise puts together from the
  // entries above. Default: put together.
  Kernel<LayerNormArgs> residual_layer_norm{};
  // (optional) Answers at once; the stream has been waited for. Default: the kernels check for
  // themselves, against IndexArgs::bound and the classes of a cross-entropy.
  void (*check_index)(IndexCheckArgs&, const Launch&) = nullptr;
};

// From now on ops on devices of this kind use the table, and plans for them ask it.
void register_kernels(device::DeviceKind kind, const Kernels& kernels);

// Who computes, or is planned with, on a device.
struct Backend {
  const Kernels& kernels;
  bool is_planned = false;  // on meta: the table is that of the kind the device stands for
};
// A meta device that stands for a kind without a table is planned with the processor's. Throws
// Error for a real device of a kind without kernels in this build.
[[nodiscard]] Backend backend_of(const device::Device& device);

}  // namespace headroom::tensor
