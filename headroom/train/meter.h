// Meter: listens to an allocator and knows, at every moment, what its memory is for.
//
//   Meter meter(allocator);
//   runner.step();
//   meter.peak().categories;           // what was held at the peak, by category: they add up
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "headroom/base/fingerprint.h"
#include "headroom/memory/allocator.h"

namespace headroom::train {

using CategoryBytes = std::array<std::uint64_t, memory::kCategoryCount>;

[[nodiscard]] std::uint64_t total(const CategoryBytes& bytes) noexcept;

// A block came or went.
struct MemoryChange {
  bool is_alloc = true;
  memory::Category category = memory::Category::kUnknown;
  memory::AnnotationId annotation = 0;
  memory::DeviceAddress address = 0;
  std::uint64_t bytes = 0;  // of the block, as `allocated` counts it
};

// When most was allocated; of several such moments the last.
struct Peak {
  std::uint64_t allocated = 0;
  CategoryBytes categories{};
  memory::AnnotationId annotation = 0;  // of the allocation that reached it
  std::uint64_t change = 0;             // its number
};

class Meter final : public memory::EventSink {
 public:
  // Listens until it ends. With `keeps_log`, every change is kept: for runs that are short.
  explicit Meter(memory::Allocator& allocator, bool keeps_log = false);
  ~Meter() override;
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  void record(const memory::Event& event) noexcept override;

  [[nodiscard]] const CategoryBytes& now() const noexcept { return now_; }
  [[nodiscard]] const Peak& peak() const noexcept { return peak_; }
  [[nodiscard]] std::uint64_t changes() const noexcept { return changes_; }
  [[nodiscard]] const std::vector<MemoryChange>& log() const noexcept { return log_; }
  // Of the changes since it was asked last: which, where and in which order.
  [[nodiscard]] std::uint64_t take_fingerprint() noexcept {
    return std::exchange(print_, Fingerprint()).value();
  }

 private:
  memory::Allocator& allocator_;
  bool keeps_log_;
  CategoryBytes now_{};
  std::uint64_t allocated_ = 0;
  Peak peak_{};
  std::uint64_t changes_ = 0;
  std::vector<MemoryChange> log_{};
  Fingerprint print_{};
};

}  // namespace headroom::train
