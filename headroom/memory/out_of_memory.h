// The error that explains itself.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "headroom/base/result.h"
#include "headroom/device/types.h"
#include "headroom/memory/account.h"
#include "headroom/memory/config.h"

namespace headroom::memory {

enum class FailureReason : std::uint8_t {
  kOutOfMemory,  // after the whole ladder
  kRejected,     // by policy, before anything was tried (throw_on_cudamalloc_oom)
  kTooLarge,     // 1 EiB or more
  kDevice,       // the device failed; `status` says how
};

// The facts known when an allocation failed. pytorch_message(report) says it in PyTorch's words.
struct OutOfMemoryReport {
  FailureReason reason = FailureReason::kOutOfMemory;
  Account account{};
  Explanation explanation{};
  // Facts for PyTorch's message beyond the account: the release whose words they are, and of what
  // is cached the part in private pools, which counts as allocated there.
  PyTorchVersion version{};
  std::uint64_t cached_private_bytes = 0;
  std::optional<std::uint64_t> expandable_reserve_bytes{};  // of a segment, where configured
  // The whole report, at most 80 columns wide.
  std::string text{};
};

struct AllocationFailure {
  FailureReason reason = FailureReason::kOutOfMemory;
  device::DeviceStatus status{};
  // Null only when there was no host memory left to write it.
  std::shared_ptr<const OutOfMemoryReport> report{};
};

template <class T>
using AllocationResult = Result<T, AllocationFailure>;

class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(std::shared_ptr<const OutOfMemoryReport> report) noexcept
      : report_(std::move(report)) {}

  [[nodiscard]] const char* what() const noexcept override { return report_->text.c_str(); }
  [[nodiscard]] const OutOfMemoryReport& report() const noexcept { return *report_; }

 private:
  std::shared_ptr<const OutOfMemoryReport> report_;
};

}  // namespace headroom::memory
