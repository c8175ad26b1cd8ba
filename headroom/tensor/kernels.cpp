#include "headroom/tensor/kernels.h"

#include <array>
#include <atomic>
#include <deque>
#include <mutex>
#include <string>

#include "headroom/base/error.h"
#include "headroom/tensor/internal/cpu_kernels.h"
#include "headroom/tensor/internal/launch.h"

namespace headroom::tensor {
namespace {

using device::DeviceKind;

constexpr std::size_t kKinds = static_cast<std::size_t>(DeviceKind::kCuda) + 1;

// One pointer per kind: read by every op, written when a backend joins.
std::array<std::atomic<const Kernels*>, kKinds>& tables() {
  static std::array<std::atomic<const Kernels*>, kKinds> instance{};
  return instance;
}

std::atomic<const Kernels*>& table_of(DeviceKind kind) {
  return tables()[static_cast<std::size_t>(kind)];
}

const Kernels* find_table(DeviceKind kind) {
  const Kernels* found = table_of(kind).load(std::memory_order_acquire);
  if (found == nullptr && kind == DeviceKind::kCpu) return &cpu::kernels();
  return found;
}

}  // namespace

void register_kernels(DeviceKind kind, const Kernels& kernels) {
  // Kept for good: a launch may be under way on another thread.
  static std::mutex mutex;
  static auto* const kept = new std::deque<Kernels>;
  const std::scoped_lock lock(mutex);
  table_of(kind).store(&kept->emplace_back(kernels), std::memory_order_release);
}

Backend backend_of(const device::Device& device) {
  const DeviceKind kind = device.id().kind;
  if (kind == DeviceKind::kMeta) {
    const Kernels* planned = find_table(device.properties().stands_for);
    return {.kernels = planned != nullptr ? *planned : cpu::kernels(), .is_planned = true};
  }
  const Kernels* found = find_table(kind);
  if (found == nullptr) {
    throw Error("there are no kernels for " + std::string(to_string(kind)) +
                " in this build; move the tensors to cpu");
  }
  return {.kernels = *found};
}

namespace internal {

device::Attachment* state_of(const Kernels& kernels, device::Device& device) {
  if (device::Attachment* made = device.attachment(); made != nullptr) return made;
  // One is made, whoever asks: handles take memory and time.
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  if (device::Attachment* made = device.attachment(); made != nullptr) return made;
  return &device.attach(kernels.create_state(device));
}

void refuse_workspace(const char* op) {
  throw InvalidArgument(std::string(op) + ": a workspace of more bytes than 64 bits can count");
}

void refuse_kernel(const char* op, const device::Device& device) {
  throw Error(std::string(op) + ": there is no kernel for it on " +
              std::string(to_string(device.id().kind)) + " in this build; move the tensors to cpu");
}

void fail_launch(const char* op, const device::DeviceStatus& status) {
  throw Error(std::string(op) + ": " + to_string(status));
}

void enqueue(const char* op,
             const Launch& where,
             void (*run)(void*) noexcept,
             void* data,
             void (*drop)(void*) noexcept) {
  if (auto queued = where.device.enqueue_host(where.stream, {.run = run, .data = data}); !queued) {
    drop(data);
    fail_launch(op, queued.error());
  }
}

}  // namespace internal
}  // namespace headroom::tensor
