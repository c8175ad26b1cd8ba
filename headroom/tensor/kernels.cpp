#include "headroom/tensor/kernels.h"

#include <atomic>
#include <string>

#include "headroom/base/error.h"
#include "headroom/tensor/cpu/cpu_kernels.h"

namespace headroom::tensor {
namespace {

constexpr std::size_t kKinds = static_cast<std::size_t>(device::DeviceKind::kCuda) + 1;

// One pointer a kind: read by every op, written when a backend joins.
std::array<std::atomic<const Kernels*>, kKinds>& tables() {
  static std::array<std::atomic<const Kernels*>, kKinds> instance{};
  return instance;
}

std::atomic<const Kernels*>& table_of(device::DeviceKind kind) {
  return tables()[static_cast<std::size_t>(kind)];
}

}  // namespace

void register_kernels(device::DeviceKind kind, const Kernels& kernels) {
  // Kept for good: a launch may be under way on another thread.
  table_of(kind).store(new Kernels(kernels), std::memory_order_release);
}

const Kernels* kernels_for(device::DeviceKind kind) {
  if (kind == device::DeviceKind::kMeta) return nullptr;
  const Kernels* found = table_of(kind).load(std::memory_order_acquire);
  if (found != nullptr) return found;
  if (kind == device::DeviceKind::kCpu) return &cpu::kernels();
  throw Error("there are no kernels for " + std::string(to_string(kind)) +
              " in this build; move the tensors to cpu");
}

namespace internal {

void enqueue(Launch launch, void (*run)(void*) noexcept, void* data, void (*drop)(void*) noexcept) {
  if (auto queued = launch.device.enqueue_host(launch.stream, {.run = run, .data = data});
      !queued) {
    drop(data);
    throw Error(to_string(queued.error()));
  }
}

}  // namespace internal
}  // namespace headroom::tensor
