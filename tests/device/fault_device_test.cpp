#include "headroom/device/fault_device.h"

#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/error.h"
#include "headroom/device/meta/meta_device.h"

#include "tests/support/device_status.h"

namespace headroom::device {
namespace {

using testing::refused;
using testing::worked;
using enum StatusCode;

class FaultDeviceTest : public ::testing::Test {
 protected:
  std::unique_ptr<MetaDevice> inner = MetaDevice::create({.capacity_bytes = 1_GiB});
  FaultDevice device{*inner};
};

// Which of the next `count` segments fail: "..x." has the third fail.
std::string outcome(Device& device, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += device.allocate_segment(512) ? '.' : 'x';
  return out;
}

TEST_F(FaultDeviceTest, FailsAtThePosition) {
  EXPECT_EQ(outcome(device, 2), "..");
  device.fail_at(Call::kAllocateSegment, 3);
  EXPECT_EQ(outcome(device, 6), "..x...") << "counted from now on";
  device.fail_at(Call::kAllocateSegment, 1, kOutOfMemory, 2);
  EXPECT_EQ(outcome(device, 4), "xx..");
  device.fail_at(Call::kAllocateSegment, 2, kOutOfMemory, UINT64_MAX);
  EXPECT_EQ(outcome(device, 4), ".xxx");
  device.clear();
  EXPECT_EQ(outcome(device, 4), "....");
  device.fail_at(Call::kAllocateSegment, 2);
  device.fail_at(Call::kAllocateSegment, 4);
  EXPECT_EQ(outcome(device, 5), ".x.x.") << "plans add up";
}

TEST_F(FaultDeviceTest, OtherKindsDoNotCount) {
  device.fail_at(Call::kMapPages, 2, kFailed);
  const DeviceAddress range = device.reserve_addresses(8_MiB).value();
  const PageHandle handle = device.create_pages(2_MiB).value();
  EXPECT_EQ(outcome(device, 3), "...");
  EXPECT_TRUE(worked(device.map_pages(range, std::array{handle, handle})))
      << "two handles are one call";
  EXPECT_TRUE(refused(device.map_pages(range + 4_MiB, std::array{handle}), kFailed));
  EXPECT_FALSE(inner->owns_range(range + 4_MiB, 1)) << "it never came to the inner device";
  EXPECT_TRUE(worked(device.map_pages(range + 4_MiB, std::array{handle})));
}

TEST_F(FaultDeviceTest, PositionsOverAllKinds) {
  device.fail_at(3, kShutDown);
  EXPECT_TRUE(worked(device.memory_info()));
  EXPECT_TRUE(worked(device.create_stream()));
  EXPECT_TRUE(refused(device.create_pages(2_MiB), kShutDown));
  EXPECT_TRUE(worked(device.create_pages(2_MiB)));
}

TEST_F(FaultDeviceTest, CountsWhatItSees) {
  device.fail_at(Call::kAllocateSegment, 2, kOutOfMemory);
  EXPECT_EQ(outcome(device, 3), ".x.");
  (void)device.free_segment(1);      // refused by the inner device
  (void)device.allocate_segment(0);  // refused by the contract, before anybody sees it
  EXPECT_EQ(device.seen(), 4U);
  EXPECT_EQ(device.seen(Call::kAllocateSegment), 3U);
  EXPECT_EQ(device.seen(Call::kFreeSegment), 1U);
  EXPECT_EQ(device.failed(), 1U);
  EXPECT_EQ(device.calls(Call::kAllocateSegment), 4U);
  EXPECT_EQ(inner->calls(Call::kAllocateSegment), 2U) << "a failed call never reaches it";
  device.clear();
  EXPECT_EQ(device.seen(), 0U);
  EXPECT_EQ(device.seen(Call::kAllocateSegment), 0U);
  EXPECT_EQ(device.failed(), 0U);
}

TEST_F(FaultDeviceTest, StatusesNameTheCallAndTheCause) {
  device.fail_at(Call::kAllocateSegment, 1, kOutOfMemory);
  EXPECT_EQ(to_string(device.allocate_segment(512).error()),
            "allocate_segment: out of memory: made to fail by a FaultDevice");
  EXPECT_EQ(to_string(device.free_segment(4096).error()),
            to_string(inner->free_segment(4096).error()))
      << "the inner device's own words pass through";
}

TEST_F(FaultDeviceTest, RefusesPositionZero) {
  EXPECT_THROW(device.fail_at(0), InvalidArgument);
  EXPECT_THROW(device.fail_at(Call::kFill, 0), InvalidArgument);
  device.fail_at(Call::kAllocateSegment, 1, kFailed, 0);
  EXPECT_EQ(outcome(device, 1), ".") << "no times is no fault";
}

TEST_F(FaultDeviceTest, IsItsInnerDevice) {
  EXPECT_EQ(device.id(), inner->id());
  EXPECT_EQ(device.properties().name, inner->properties().name);
  EXPECT_EQ(device.properties().granularity_bytes, inner->properties().granularity_bytes);
  const DeviceAddress segment = device.allocate_segment(2_MiB).value();
  EXPECT_TRUE(inner->owns_range(segment, 2_MiB));
  EXPECT_TRUE(device.owns_range(segment, 2_MiB));
  EXPECT_FALSE(device.owns_range(segment, 2_MiB + 1));
  EXPECT_EQ(device.memory_info().value().free_bytes, inner->memory_info().value().free_bytes);
  EXPECT_TRUE(refused(device.measure(), kNotSupported));
}

// Every call of the enumeration can be made to fail, and fails without a trace.
TEST_F(FaultDeviceTest, FailsEveryKindOfCall) {
  const DeviceAddress segment = device.allocate_segment(2_MiB).value();
  const DeviceAddress range = device.reserve_addresses(8_MiB).value();
  const PageHandle handle = device.create_pages(2_MiB).value();
  ASSERT_TRUE(worked(device.map_pages(range, std::array{handle})));
  const StreamId stream = device.create_stream().value();
  const EventId event = device.record_event(stream).value();
  void* const pinned = device.allocate_pinned(64).value();
  const std::uint64_t free_before = inner->memory_info().value().free_bytes;

  char byte = 0;
  const HostTask task{.run = [](void*) noexcept { FAIL() << "a failed task ran"; }};
  std::vector<Call> failed;
  const auto fails = [&](Call call, const auto& make) {
    failed.push_back(call);
    device.fail_at(call, 1, kFailed);
    EXPECT_TRUE(refused(make(), kFailed)) << to_string(call);
  };
  fails(Call::kAllocateSegment, [&] { return device.allocate_segment(8); });
  fails(Call::kFreeSegment, [&] { return device.free_segment(segment); });
  fails(Call::kReserveAddresses, [&] { return device.reserve_addresses(2_MiB); });
  fails(Call::kReleaseAddresses, [&] { return device.release_addresses(range); });
  fails(Call::kCreatePages, [&] { return device.create_pages(2_MiB); });
  fails(Call::kReleasePages, [&] { return device.release_pages(handle); });
  fails(Call::kMapPages, [&] { return device.map_pages(range + 4_MiB, std::array{handle}); });
  fails(Call::kUnmapPages, [&] { return device.unmap_pages(range, 2_MiB); });
  fails(Call::kCreateStream, [&] { return device.create_stream(); });
  fails(Call::kAdoptStream, [&] { return device.adopt_stream(7); });
  fails(Call::kReleaseStream, [&] { return device.release_stream(stream); });
  fails(Call::kSynchronizeStream, [&] { return device.synchronize_stream(stream); });
  fails(Call::kIsCapturing, [&] { return device.is_capturing(stream); });
  fails(Call::kNativeStream, [&] { return device.native_stream(stream); });
  fails(Call::kRecordEvent, [&] { return device.record_event(stream); });
  fails(Call::kQueryEvent, [&] { return device.query_event(event); });
  fails(Call::kWaitEvent, [&] { return device.wait_event(stream, event); });
  fails(Call::kSynchronizeEvent, [&] { return device.synchronize_event(event); });
  fails(Call::kElapsed, [&] { return device.elapsed_ms(event, event); });
  fails(Call::kReleaseEvent, [&] { return device.release_event(event); });
  fails(Call::kCopyToDevice, [&] { return device.copy_to_device(segment, &byte, 1, stream); });
  fails(Call::kCopyToHost, [&] { return device.copy_to_host(&byte, segment, 1, stream); });
  fails(Call::kCopyWithin, [&] { return device.copy_within(segment, segment, 1, stream); });
  fails(Call::kCopyPeer, [&] { return device.copy_peer(segment, device, segment, 1, stream); });
  fails(Call::kFill, [&] { return device.fill(segment, 0, 1, stream); });
  fails(Call::kEnqueueHost, [&] { return device.enqueue_host(stream, task); });
  fails(Call::kAllocatePinned, [&] { return device.allocate_pinned(8); });
  fails(Call::kFreePinned, [&] { return device.free_pinned(pinned); });
  fails(Call::kMemoryInfo, [&] { return device.memory_info(); });
  fails(Call::kProcesses, [&] { return device.processes(); });
  fails(Call::kMeasure, [&] { return device.measure(); });
  EXPECT_EQ(failed.size(), kCallCount);
  EXPECT_EQ(device.failed(), kCallCount);

  EXPECT_EQ(inner->memory_info().value().free_bytes, free_before);
  EXPECT_TRUE(worked(device.unmap_pages(range, 2_MiB)));
  EXPECT_TRUE(worked(device.release_pages(handle)));
  EXPECT_TRUE(worked(device.release_addresses(range)));
  EXPECT_TRUE(worked(device.free_segment(segment)));
  EXPECT_TRUE(worked(device.release_event(event)));
  EXPECT_TRUE(worked(device.release_stream(stream)));
  EXPECT_TRUE(worked(device.free_pinned(pinned)));
}

}  // namespace
}  // namespace headroom::device
