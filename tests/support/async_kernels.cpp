#include "tests/support/async_kernels.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/base/checked.h"
#include "headroom/tensor/internal/cpu_kernels.h"

#include "tests/support/async_device.h"
#include "tests/support/async_operands.h"

namespace headroom::testing {
namespace {

using device::DeviceAddress;
using device::Properties;
using tensor::Kernel;
using tensor::Kernels;
using tensor::Launch;
using tensor::LaunchResult;
using tensor::Workspace;

// What a backend keeps with a device: made once, given to every launch.
class Handle final : public device::Attachment {
 public:
  explicit Handle(device::Device& device) : device_(&device) {}
  [[nodiscard]] bool is_of(const device::Device& device) const { return device_ == &device; }

 private:
  device::Device* device_;
};

std::unique_ptr<device::Attachment> make_handle(device::Device& device) {
  return std::make_unique<Handle>(device);
}

// --- Workspaces ---------------------------------------------------------------------------------

constexpr std::uint64_t kAlignment = 512;

// Our own part comes first, then what the processor's kernel needs, then an odd rest.
struct Parts {
  std::uint64_t own = 0;
  std::uint64_t processor = 0;
  std::uint64_t rest = 0;

  [[nodiscard]] std::uint64_t total() const {
    if (processor == tensor::kTooManyBytes) return processor;
    return own + processor + rest;
  }
};

// From the bytes that a kernel writes and from what the device is; none for a few shapes.
std::uint64_t own_bytes(std::uint64_t written, std::uint64_t family, const Properties& device) {
  if (written % 7 == 3) return 0;
  const std::uint64_t fixed = 37 * family + 5 * static_cast<std::uint64_t>(device.multiprocessors) +
                              device.architecture.size();
  return fixed + written % 1021 + std::min(written / 4, std::uint64_t{64_KiB});
}

Parts cut(std::uint64_t own, std::uint64_t processor) {
  if (processor == 0) return {.own = own};
  return {.own = round_up(own, kAlignment), .processor = processor, .rest = own % 13};
}

// --- Poison -------------------------------------------------------------------------------------

template <class T>
std::byte* near_pointer(T* pointer) {
  return reinterpret_cast<std::byte*>(AsyncDevice::near(reinterpret_cast<DeviceAddress>(pointer)));
}

void poison(std::byte* data, std::uint64_t size_bytes) {
  if (size_bytes > 0) std::memset(data, kPoison, size_bytes);
}

bool is_poison(const std::byte* data, std::uint64_t size_bytes) {
  return std::all_of(data, data + size_bytes, [](std::byte b) { return b == std::byte{kPoison}; });
}

// The elements of an extent, and nothing between them.
void poison(std::byte* data, const Extent& extent, int dim = 0) {
  if (dim == extent.shape.size()) return poison(data, extent.element_bytes);
  const std::uint64_t step = static_cast<std::uint64_t>(extent.strides[dim]) * extent.element_bytes;
  for (std::int64_t i = 0; i < extent.shape[dim]; ++i) {
    poison(data + static_cast<std::uint64_t>(i) * step, extent, dim + 1);
  }
}

void poison_written(std::byte* data, const Extent& extent) {
  if (extent.use != Use::kWritten) return;
  const bool is_dense = is_contiguous(extent.shape, extent.strides);
  is_dense ? poison(data, extent.bytes()) : poison(data, extent);
}

// --- Launches -----------------------------------------------------------------------------------

Unexpected<device::DeviceStatus> failed(const char* why) {
  return Unexpected(device::DeviceStatus{.call = "launch", .detail = why});
}

void check_handle(const Launch& where) {
  const auto* handle = dynamic_cast<const Handle*>(where.state);
  EXPECT_TRUE(handle != nullptr && handle->is_of(where.device))
      << "a launch without what the backend keeps with its device";
}

// "" where it is as asked for.
std::string wrong_with(const Workspace& given, const Parts& room, AsyncDevice& device) {
  const auto address = reinterpret_cast<DeviceAddress>(given.data);
  if (given.size_bytes != room.total()) {
    return std::to_string(given.size_bytes) + " bytes of workspace, not the " +
           std::to_string(room.total()) + " that were asked for";
  }
  if (room.total() == 0) return address == 0 ? "" : "a workspace that nobody asked for";
  if (address % kAlignment != 0) return "a workspace that is not aligned";
  return device.owns_range(address, room.total()) ? "" : "a workspace of another device";
}

// An operand that is not there, or of no elements: storages without bytes are at 0.
bool is_of_nothing(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) < 4_KiB;
}

void check_operand(AsyncDevice& device, DeviceAddress address, const Extent& extent) {
  EXPECT_TRUE(device.owns_range(address, std::max<std::uint64_t>(extent.bytes(), 1)))
      << "an operand that is not memory of the device";
}

// Makes all operands pointers of the processor; poisons those that are to be written.
template <class Args, class Visit>
void move_near(Args& args, Visit&& visit) {
  visit(args, [](auto*& pointer, const Extent& extent) {
    if (is_of_nothing(pointer)) return;
    std::byte* const at = near_pointer(pointer);
    poison_written(at, extent);
    pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(at);
  });
}

// The rows of a table in device memory, as the device has them now.
std::vector<tensor::MultiTensorEntry> near_rows(AsyncDevice& device,
                                                const tensor::MultiTensorArgs& args) {
  std::vector<tensor::MultiTensorEntry> rows(args.entries, args.entries + args.count);
  for (tensor::MultiTensorEntry& row : rows) {
    visit_operands(row, [&device](auto*& pointer, const Extent& extent) {
      if (!is_of_nothing(pointer)) {
        check_operand(device, reinterpret_cast<DeviceAddress>(pointer), extent);
      }
    });
    move_near(row, [](auto& own, auto&& use) { visit_operands(own, use); });
  }
  return rows;
}

// Near operands. The host has not looked: the table is without check_index.
bool has_good_indices(const tensor::IndexArgs& args, const Launch& where) {
  tensor::IndexCheckArgs check{
      .index = args.index, .shape = args.shape, .strides = args.index_strides, .bound = args.bound};
  tensor::cpu::check_index(check, where);
  EXPECT_FALSE(check.found) << "an index of " << check.bad << " for a size of " << args.bound;
  return !check.found;
}

template <class Args, Kernel<Args> Kernels::*kFamily, std::uint64_t kNumber>
class AsyncKernel {
 public:
  static std::uint64_t workspace_bytes(const Args& args, const Properties& device) {
    return parts(args, device).total();
  }

  // Less than the processor does, so that the op layer has to do some of it.
  static bool accepts(const Args& args, const Properties& device) {
    const auto rule = (tensor::cpu::kernels().*kFamily).accepts;
    if (rule != nullptr && !rule(args, device)) return false;
    if constexpr (std::is_same_v<Args, tensor::MatmulArgs>) {
      return args.n % 2 == 0 || !(args.adds || tensor::has_epilogue(args));
    }
    if constexpr (std::is_same_v<Args, tensor::LayerNormArgs>) {
      return args.width % 2 == 0 || !args.adds_x_grad;
    }
    return true;
  }

  static LaunchResult run(const Args& args, const Launch& where) {
    auto& device = dynamic_cast<AsyncDevice&>(where.device);
    check_handle(where);
    if (device.launches().next_fails()) {
      return failed("made to fail by a test");
    }
    EXPECT_TRUE(accepts(args, device.properties())) << "more than the kernel accepts";
    const Parts room = parts(args, device.properties());
    if (const std::string wrong = wrong_with(where.workspace, room, device); !wrong.empty()) {
      ADD_FAILURE() << wrong;
      return failed("a wrong workspace");
    }
    if (room.total() > 0 && room.processor == 0) device.launches().count_more_workspace();
    Task task{.args = args, .room = room, .where = where};
    visit(task.args, [&device](auto*& pointer, const Extent& extent) {
      if (is_of_nothing(pointer)) return;
      check_operand(device, reinterpret_cast<DeviceAddress>(pointer), extent);
    });
    if (AsyncLog* const log = device.log()) {
      log->add_launch(where.stream, [&device, task] { return queue(device, task); });
    }
    return queue(device, task);
  }

 private:
  struct Task {
    Args args;
    Parts room;
    Launch where;
  };

  static LaunchResult queue(AsyncDevice& device, const Task& task) {
    auto own = std::make_unique<Task>(task);
    const auto queued =
        device.enqueue_launch(task.where.stream, {.run = &run_and_delete, .data = own.get()});
    if (queued) (void)own.release();
    return queued;
  }

  template <class F>
  static void visit(Args& args, F&& use) {
    if constexpr (std::is_same_v<Args, tensor::IndexArgs>) {
      visit_operands(args, kFamily == &Kernels::gather, use);
    } else {
      visit_operands(args, use);
    }
  }

  static Parts parts(const Args& args, const Properties& device) {
    std::uint64_t written = 0;
    Args copy = args;
    visit(copy, [&written](auto*&, const Extent& extent) {
      if (extent.use != Use::kRead) written += extent.bytes();
    });
    const auto rule = (tensor::cpu::kernels().*kFamily).workspace_bytes;
    return cut(own_bytes(written, kNumber, device), rule != nullptr ? rule(args, device) : 0);
  }

  static void run_and_delete(void* data) noexcept {
    const std::unique_ptr<Task> task(static_cast<Task*>(data));
    move_near(task->args, [](Args& args, auto&& use) { visit(args, use); });
    [[maybe_unused]] std::vector<tensor::MultiTensorEntry> rows;
    if constexpr (std::is_same_v<Args, tensor::MultiTensorArgs>) {
      rows = near_rows(dynamic_cast<AsyncDevice&>(task->where.device), task->args);
      task->args.entries = rows.data();
    }
    const Parts& room = task->room;
    Launch& where = task->where;
    if constexpr (std::is_same_v<Args, tensor::IndexArgs>) {
      if (!has_good_indices(task->args, where)) return;
    }
    std::byte* const own = near_pointer(where.workspace.data);
    std::byte* const rest = own + room.own + room.processor;
    poison(own, room.total());
    where.workspace = {.data = room.processor > 0 ? own + room.own : nullptr,
                       .size_bytes = room.processor};
    where.state = nullptr;
    (void)(tensor::cpu::kernels().*kFamily).run(task->args, where);
    EXPECT_TRUE(is_poison(own, room.own) && is_poison(rest, room.rest))
        << "a kernel wrote past its workspace";
    poison(own, room.total());
  }
};

template <class Args, Kernel<Args> Kernels::*kFamily, std::uint64_t kNumber>
constexpr Kernel<Args> entry() {
  using Own = AsyncKernel<Args, kFamily, kNumber>;
  return {.run = &Own::run, .workspace_bytes = &Own::workspace_bytes, .accepts = &Own::accepts};
}

}  // namespace

const Kernels& async_kernels() {
  using namespace tensor;  // NOLINT(google-build-using-namespace): the table's own words
  static const Kernels kTable{
      .is_host = false,
      .create_state = make_handle,
      .element = entry<ElementArgs, &Kernels::element, 1>(),
      .generate = entry<GenerateArgs, &Kernels::generate, 2>(),
      .reduce = entry<ReduceArgs, &Kernels::reduce, 3>(),
      .matmul = entry<MatmulArgs, &Kernels::matmul, 4>(),
      .solve = entry<SolveArgs, &Kernels::solve, 5>(),
      .softmax = entry<SoftmaxArgs, &Kernels::softmax, 6>(),
      .softmax_backward = entry<SoftmaxArgs, &Kernels::softmax_backward, 7>(),
      .cross_entropy = entry<CrossEntropyArgs, &Kernels::cross_entropy, 8>(),
      .gather = entry<IndexArgs, &Kernels::gather, 9>(),
      .scatter = entry<IndexArgs, &Kernels::scatter, 10>(),
      .conv2d = entry<Conv2dArgs, &Kernels::conv2d, 11>(),
      .pool2d = entry<Pool2dArgs, &Kernels::pool2d, 12>(),
      .layer_norm = entry<LayerNormArgs, &Kernels::layer_norm, 13>(),
      .batch_norm = entry<BatchNormArgs, &Kernels::batch_norm, 14>(),
      .dropout = entry<DropoutArgs, &Kernels::dropout, 15>(),
      .attention = entry<AttentionArgs, &Kernels::attention, 16>(),
      .multi_tensor = entry<MultiTensorArgs, &Kernels::multi_tensor, 17>(),
      .step_numbers = entry<StepNumberArgs, &Kernels::step_numbers, 18>(),
      .residual_layer_norm = entry<LayerNormArgs, &Kernels::residual_layer_norm, 19>()};
  return kTable;
}

}  // namespace headroom::testing
