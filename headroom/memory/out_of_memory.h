// The error that explains itself.
#pragma once

#include <memory>
#include <new>
#include <string>

#include "headroom/memory/account.h"

namespace headroom::memory {

// What was known when an allocation failed.
struct OutOfMemoryReport {
  Account account{};
  Explanation explanation{};
  // Set when the allocation was refused before anything was tried (throw_on_cudamalloc_oom).
  bool is_rejection = false;
  // PyTorch's own message for the same situation, for tools that parse it.
  std::string pytorch_text{};
  // The whole report, at most 80 columns wide.
  std::string text{};
};

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
