// A device of its own with the default allocator, for a training step; and its events, comparable
// between devices.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/memory/allocator_choice.h"

#include "tests/support/test_device.h"

namespace headroom::testing {

class TrainWorld {
 public:
  // The device of this run (tests/support/test_device.h), and the meta device that stands for it.
  enum class Kind : std::uint8_t { kReal, kMeta };
  explicit TrainWorld(Kind kind, std::uint64_t capacity_bytes = 2_GiB)
      : device_(make_device(kind, capacity_bytes)), allocator_(memory::make_allocator(*device_)) {}

  [[nodiscard]] memory::Allocator& allocator() { return *allocator_; }
  [[nodiscard]] std::uint64_t peak_allocated() const {
    return static_cast<std::uint64_t>(allocator_->statistics().allocated_bytes.all.peak);
  }
  [[nodiscard]] std::uint64_t peak_reserved() const {
    return static_cast<std::uint64_t>(allocator_->statistics().reserved_bytes.all.peak);
  }
  [[nodiscard]] std::uint64_t allocated() const {
    return static_cast<std::uint64_t>(allocator_->statistics().allocated_bytes.all.current);
  }

 private:
  static std::unique_ptr<device::Device> make_device(Kind kind, std::uint64_t capacity_bytes) {
    if (kind == Kind::kReal) return make_test_device(8, capacity_bytes);
    return make_test_meta(8, capacity_bytes);
  }

  std::unique_ptr<device::Device> device_;
  std::unique_ptr<memory::Allocator> allocator_;
};

// Events without what differs between two devices that do the same: addresses are numbered in the
// order of their first appearance.
struct TrainEvent {
  memory::Action action;
  memory::Category category;
  std::uint32_t annotation;
  std::uint64_t size_bytes;
  std::size_t place;

  friend bool operator==(const TrainEvent&, const TrainEvent&) = default;
};

class TrainEvents final : public memory::EventSink {
 public:
  explicit TrainEvents(memory::Allocator& allocator) : allocator_(allocator) {
    allocator_.add_sink(*this);
  }
  ~TrainEvents() override { allocator_.remove_sink(*this); }
  TrainEvents(const TrainEvents&) = delete;
  TrainEvents& operator=(const TrainEvents&) = delete;

  void record(const memory::Event& event) noexcept override {
    // Which pages move is decided by how far the streams are.
    const bool is_of_pages = event.action == memory::Action::kSegmentMap ||
                             event.action == memory::Action::kSegmentUnmap;
    if (is_of_pages && runs_async()) return;
    const auto [at, is_new] = places_.try_emplace(event.address, places_.size());
    events_.push_back(
        {event.action, event.category, event.annotation, event.size_bytes, at->second});
  }
  [[nodiscard]] const std::vector<TrainEvent>& events() const { return events_; }

 private:
  memory::Allocator& allocator_;
  std::unordered_map<std::uint64_t, std::size_t> places_{};
  std::vector<TrainEvent> events_{};
};

}  // namespace headroom::testing
