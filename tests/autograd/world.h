// A device of its own with an allocator, and what tests of gradients ask.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "headroom/autograd.h"
#include "headroom/memory/caching/caching_allocator.h"

namespace headroom::testing {

class World {
 public:
  // The device of this run (tests/support/test_device.h), and the meta device that stands for it.
  enum class Kind : std::uint8_t { kReal, kMeta };
  explicit World(Kind kind = Kind::kReal);

  [[nodiscard]] memory::CachingAllocator& allocator() const { return *allocator_; }
  [[nodiscard]] TensorOptions f32(bool requires_grad = false) const {
    return {.dtype = DType::kF32, .device = *allocator_, .requires_grad = requires_grad};
  }
  [[nodiscard]] TensorOptions f64(bool requires_grad = false) const {
    return {.dtype = DType::kF64, .device = *allocator_, .requires_grad = requires_grad};
  }
  [[nodiscard]] std::int64_t allocated_bytes() const {
    return allocator_->statistics().allocated_bytes.all.current;
  }
  [[nodiscard]] std::int64_t peak_bytes() const {
    return allocator_->statistics().allocated_bytes.all.peak;
  }
  // Since the allocator was made.
  [[nodiscard]] std::int64_t allocations() const {
    const auto statistics = allocator_->statistics();
    return statistics.allocation.small_pool.allocated + statistics.allocation.large_pool.allocated;
  }
  [[nodiscard]] std::int64_t category_bytes(memory::Category category) const {
    return allocator_->statistics().category_bytes[static_cast<std::size_t>(category)].current;
  }

 private:
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<memory::CachingAllocator> allocator_;
};

// Events without what differs between two devices that do the same: addresses are numbered in the
// order of their first appearance.
class EventLog final : public memory::EventSink {
 public:
  explicit EventLog(memory::Allocator& allocator) : allocator_(allocator) {
    allocator_.add_sink(*this);
  }
  ~EventLog() override { allocator_.remove_sink(*this); }
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  void record(const memory::Event& event) noexcept override;
  [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }
  [[nodiscard]] const std::vector<memory::Event>& events() const { return events_; }

 private:
  memory::Allocator& allocator_;
  std::vector<std::string> lines_{};
  std::vector<memory::Event> events_{};
  std::vector<std::uint64_t> addresses_{};
};

// Of one number from several tensors.
using Function = std::function<Tensor(const std::vector<Tensor>&)>;

// Compares the gradient of `function` by every element of f64 inputs of these shapes with central
// differences.
void expect_gradients(const Function& function,
                      const std::vector<Shape>& shapes,
                      double tolerance = 1e-6);

// "" where it throws nothing.
[[nodiscard]] std::string message_of(const std::function<void()>& action);

}  // namespace headroom::testing
