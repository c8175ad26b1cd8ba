// What the suite runs rows with: the backend of the run, layouts, recorded events. A backend joins
// by tests/support/test_device.h.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/memory/event.h"
#include "headroom/tensor.h"

#include "tests/tensor/op_table.h"

namespace headroom::testing {

// A device of its own, with an allocator.
class World {
 public:
  explicit World(std::unique_ptr<device::Device> device)
      : device_(std::move(device)),
        allocator_(std::make_unique<memory::CachingAllocator>(*device_)) {}

  [[nodiscard]] device::Device& device() const { return *device_; }
  [[nodiscard]] memory::Allocator& allocator() const { return *allocator_; }
  [[nodiscard]] std::int64_t allocated_bytes() const {
    return allocator_->statistics().allocated_bytes.all.current;
  }

 private:
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<memory::CachingAllocator> allocator_;
};

struct TensorBackend {
  std::string name;
  std::function<World()> make;
  std::function<World()> make_meta;  // the meta device that stands for it
  // Workspaces so far that the processor would not have asked for: the table counts those it would.
  std::function<std::uint64_t(const World&)> more_workspaces = [](const World&) { return 0; };
  // Makes a launch from now on fail (1 is the next; 0 for none). Null where none can.
  std::function<void(const World&, std::uint64_t position)> fail_launch{};
};
inline std::ostream& operator<<(std::ostream& out, const TensorBackend& b) { return out << b.name; }

[[nodiscard]] const std::vector<TensorBackend>& tensor_backends();

enum class Layout : std::uint8_t { kContiguous, kTransposed, kStepped };

// Numbers for an input, as the type can hold them.
[[nodiscard]] Array draw(const Input& input, DType dtype, std::uint64_t seed);
// A tensor with these values, laid out in this way.
[[nodiscard]] Tensor put(const Array& values, DType dtype, Layout layout, const Place& place);
[[nodiscard]] Array take(const Tensor& tensor);

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
  [[nodiscard]] int count(memory::Action action) const;

 private:
  memory::Allocator& allocator_;
  std::vector<std::string> lines_{};
  std::vector<memory::Action> actions_{};
  std::vector<std::uint64_t> addresses_{};
};

}  // namespace headroom::testing
