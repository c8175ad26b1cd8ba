// Each device call of a long scenario is made to fail in turn, on every backend: the scenario
// cleans up, nothing is left on the device, and the next run works.
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/fault_device.h"

#include "tests/support/device_backends.h"
#include "tests/support/device_status.h"

namespace headroom::device {
namespace {

using testing::worked;

// A careful program: it undoes what it did, last first, whatever fails. An undo that fails is
// tried again, as a program would that cannot lose memory.
class Scenario {
 public:
  explicit Scenario(Device& device) : device_(device) {}
  ~Scenario() {
    while (!undo_.empty()) {
      for (int attempt = 0; attempt < 3; ++attempt) {
        if (undo_.back()()) break;
      }
      undo_.pop_back();
    }
  }
  Scenario(const Scenario&) = delete;
  Scenario& operator=(const Scenario&) = delete;

  // Stops at the first failure and says with what.
  std::optional<StatusCode> run() {
    for (std::uint64_t round = 1; round <= 8; ++round) {
      if (!run_round(round)) return failure_;
    }
    return std::nullopt;
  }

 private:
  template <class T>
  bool ok(const DeviceResult<T>& result) {
    if (!result) failure_ = result.error().code;
    return result.has_value();
  }

  bool run_round(std::uint64_t round) {
    const std::uint64_t page = device_.properties().granularity_bytes;
    const auto stream = device_.create_stream();
    if (!ok(stream)) return false;
    undo_.emplace_back([&d = device_, s = *stream] { return d.release_stream(s).has_value(); });

    const auto segment = device_.allocate_segment(round * 1000);
    if (!ok(segment)) return false;
    undo_.emplace_back([&d = device_, a = *segment] { return d.free_segment(a).has_value(); });

    const auto range = device_.reserve_addresses(8 * page);
    if (!ok(range)) return false;
    undo_.emplace_back([&d = device_, a = *range] { return d.release_addresses(a).has_value(); });

    std::vector<PageHandle> handles;
    for (int i = 0; i < 3; ++i) {
      const auto handle = device_.create_pages(page);
      if (!ok(handle)) return false;
      handles.push_back(*handle);
      undo_.emplace_back([&d = device_, h = *handle] { return d.release_pages(h).has_value(); });
    }
    for (const DeviceAddress at : {*range, *range + 4 * page}) {
      if (!ok(device_.map_pages(at, handles))) return false;
      undo_.emplace_back(
          [&d = device_, at, page] { return d.unmap_pages(at, 3 * page).has_value(); });
    }
    return run_work(*stream, *segment, *range, page) && remap(handles, *range, page);
  }

  bool run_work(StreamId stream, DeviceAddress segment, DeviceAddress range, std::uint64_t page) {
    // The work must be over before the memory goes; this undo comes before those of the memory.
    undo_.emplace_back([&d = device_, stream] { return d.synchronize_stream(stream).has_value(); });
    if (!ok(device_.fill(range, 1, 3 * page, stream))) return false;
    if (!ok(device_.copy_to_device(segment, host_.data(), 1000, stream))) return false;
    if (!ok(device_.copy_within(range, segment, 500, stream))) return false;
    const auto event = device_.record_event(stream);
    if (!ok(event)) return false;
    undo_.emplace_back([&d = device_, e = *event] { return d.release_event(e).has_value(); });
    if (!ok(device_.wait_event(StreamId::kDefault, *event))) return false;
    if (!ok(device_.query_event(*event))) return false;
    if (!ok(device_.synchronize_event(*event))) return false;
    const auto pinned = device_.allocate_pinned(4096);
    if (!ok(pinned)) return false;
    undo_.emplace_back([&d = device_, p = *pinned] { return d.free_pinned(p).has_value(); });
    return ok(device_.memory_info());
  }

  // Takes the pages from one place and gives them back in another order.
  bool remap(std::vector<PageHandle>& handles, DeviceAddress range, std::uint64_t page) {
    if (!ok(device_.synchronize_stream(StreamId::kDefault))) return false;
    if (!ok(device_.unmap_pages(range, 3 * page))) return false;
    std::swap(handles[0], handles[2]);
    // Once it worked, the undo of the first mapping fits this one; where it did not, that undo
    // finds nothing mapped and gives up, which is as it should be.
    return ok(device_.map_pages(range, handles));
  }

  Device& device_;
  std::vector<std::uint8_t> host_ = std::vector<std::uint8_t>(1000, 7);
  std::vector<std::function<bool()>> undo_;
  std::optional<StatusCode> failure_;
};

class FaultInjection : public testing::DeviceFixture {
 protected:
  // Nothing is left: all memory is free and every address may be reserved again.
  void expect_empty(std::uint64_t free_before, std::uint64_t position) {
    ASSERT_TRUE(has_free(free_before)) << "after failing call " << position;
    backend().expect_nothing_left(device());
  }
};
HEADROOM_DEVICE_SUITE(FaultInjection, plain_backends);

TEST_P(FaultInjection, EveryPositionInTurnLeavesNothingBehind) {
  FaultDevice faulty(device());
  const std::uint64_t free_before = free_bytes();
  std::uint64_t clean_calls = 0;
  {
    Scenario scenario(faulty);
    ASSERT_EQ(scenario.run(), std::nullopt);
    clean_calls = faulty.seen();
  }
  const std::uint64_t all_calls = faulty.seen();
  expect_empty(free_before, 0);
  ASSERT_GE(all_calls, 200U) << "some hundred calls";

  for (const StatusCode code : {StatusCode::kOutOfMemory, StatusCode::kFailed}) {
    for (std::uint64_t position = 1; position <= all_calls; ++position) {
      faulty.clear();
      faulty.fail_at(position, code);
      {
        Scenario scenario(faulty);
        const auto failure = scenario.run();
        if (position <= clean_calls) {
          ASSERT_EQ(failure, code) << "call " << position;
        } else {
          ASSERT_EQ(failure, std::nullopt) << "call " << position << " is part of the clean-up";
        }
      }
      ASSERT_EQ(faulty.failed(), 1U) << "call " << position;
      expect_empty(free_before, position);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
  faulty.clear();
  Scenario scenario(faulty);
  EXPECT_EQ(scenario.run(), std::nullopt) << "and then it works";
}

// Memory that runs out for good, from each position on: the clean-up asks for none.
TEST_P(FaultInjection, RunningOutOfMemoryForGoodLeavesNothingBehind) {
  FaultDevice faulty(device());
  const std::uint64_t free_before = free_bytes();
  for (const Call call : {Call::kAllocateSegment,
                          Call::kCreatePages,
                          Call::kMapPages,
                          Call::kReserveAddresses,
                          Call::kRecordEvent}) {
    for (std::uint64_t position = 1; position <= 8; ++position) {
      faulty.clear();
      faulty.fail_at(call, position, StatusCode::kOutOfMemory, UINT64_MAX);
      {
        Scenario scenario(faulty);
        ASSERT_EQ(scenario.run(), StatusCode::kOutOfMemory) << to_string(call) << " " << position;
      }
      expect_empty(free_before, position);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace headroom::device
