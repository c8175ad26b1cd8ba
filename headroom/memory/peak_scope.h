// PeakScope: the peaks between its construction and now, whatever else is reset or nested.
//
//   PeakScope scope(allocator);
//   step();
//   log(scope.peak_allocated());
#pragma once

#include <cstdint>

#include "headroom/memory/core.h"

namespace headroom::memory {

class PeakScope {
 public:
  explicit PeakScope(Allocator& allocator);
  ~PeakScope();
  PeakScope(const PeakScope&) = delete;
  PeakScope& operator=(const PeakScope&) = delete;

  [[nodiscard]] std::uint64_t peak_allocated() const;
  [[nodiscard]] std::uint64_t peak_reserved() const;
  [[nodiscard]] std::uint64_t peak_live() const;

 private:
  friend class AllocatorCore;
  [[nodiscard]] AllocatorCore::Peaks read() const;

  AllocatorCore& core_;
  AllocatorCore::Peaks peaks_{};
};

}  // namespace headroom::memory
