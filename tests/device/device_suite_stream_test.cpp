// The device contract, for every backend: streams, events and host tasks.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/device.h"

#include "tests/support/device_backends.h"
#include "tests/support/device_status.h"
#include "tests/support/stream_gate.h"

namespace headroom::device {
namespace {

using testing::refused;
using testing::StreamGate;
using testing::worked;
using enum StatusCode;

class DeviceStreams : public testing::DeviceFixture {
 protected:
  // Everything that queues work on a stream or asks about it, but recording an event.
  void expect_refused_everywhere(StreamId stream) {
    Device& device = this->device();
    const DeviceAddress segment = device.allocate_segment(1_KiB).value();
    const EventId event = device.record_event(StreamId::kDefault).value();
    std::array<char, 8> host{};
    const HostTask task{.run = [](void*) noexcept { FAIL() << "a refused task ran"; }};
    EXPECT_TRUE(refused(device.synchronize_stream(stream), kUnknownHandle));
    EXPECT_TRUE(refused(device.is_capturing(stream), kUnknownHandle));
    EXPECT_TRUE(refused(device.native_stream(stream), kUnknownHandle));
    EXPECT_TRUE(refused(device.record_event(stream, {.is_timed = true}), kUnknownHandle));
    EXPECT_TRUE(refused(device.wait_event(stream, event), kUnknownHandle));
    EXPECT_TRUE(refused(device.copy_to_device(segment, host.data(), 8, stream), kUnknownHandle));
    EXPECT_TRUE(refused(device.copy_to_host(host.data(), segment, 8, stream), kUnknownHandle));
    EXPECT_TRUE(refused(device.copy_within(segment, segment + 8, 8, stream), kUnknownHandle));
    EXPECT_TRUE(refused(device.copy_peer(segment, device, segment + 8, 8, stream), kUnknownHandle));
    EXPECT_TRUE(refused(device.fill(segment, 1, 8, stream), kUnknownHandle));
    EXPECT_TRUE(refused(device.enqueue_host(stream, task), kUnknownHandle));
    EXPECT_TRUE(refused(device.release_stream(stream), kUnknownHandle));
    EXPECT_TRUE(worked(device.release_event(event)));
    EXPECT_TRUE(worked(device.free_segment(segment)));
  }
};
HEADROOM_DEVICE_SUITE(DeviceStreams, all_backends);

HostTask set_flag(std::atomic<bool>& flag) {
  return {.run = [](void* data) noexcept { static_cast<std::atomic<bool>*>(data)->store(true); },
          .data = &flag};
}

TEST_P(DeviceStreams, IdsAreNeverGivenOutTwice) {
  Device& device = this->device();
  auto other = make();
  std::set<StreamId> seen{StreamId::kDefault};
  for (int i = 0; i < 20; ++i) {
    const StreamId stream = device.create_stream({.priority = -i}).value();
    EXPECT_TRUE(seen.insert(stream).second);
    EXPECT_TRUE(seen.insert(other->create_stream().value()).second) << "nor on another device";
    EXPECT_TRUE(worked(device.release_stream(stream)));
  }
}

TEST_P(DeviceStreams, TheDefaultStreamIsAlwaysThere) {
  Device& device = this->device();
  EXPECT_TRUE(worked(device.synchronize_stream(StreamId::kDefault)));
  EXPECT_FALSE(device.is_capturing(StreamId::kDefault).value());
  EXPECT_TRUE(refused(device.release_stream(StreamId::kDefault), kInvalidArgument));
  EXPECT_TRUE(worked(device.synchronize_stream(StreamId::kDefault)));
}

TEST_P(DeviceStreams, ANativeStreamAdoptedIsTheSameStream) {
  Device& device = this->device();
  const StreamId one = device.create_stream().value();
  const StreamId two = device.create_stream().value();
  const NativeStream native = device.native_stream(one).value();
  EXPECT_NE(native, device.native_stream(two).value());
  EXPECT_NE(native, device.native_stream(StreamId::kDefault).value());
  for (const StreamId stream : {StreamId::kDefault, one, two}) {
    EXPECT_EQ(device.adopt_stream(device.native_stream(stream).value()).value(), stream);
  }
  EXPECT_TRUE(worked(device.release_stream(one)));
  EXPECT_TRUE(worked(device.release_stream(two)));
}

TEST_P(DeviceStreams, TimedEventsSayWhatTimePassedBetweenThem) {
  Device& device = this->device();
  const StreamId stream = device.create_stream().value();
  for (const StreamId on : {StreamId::kDefault, stream}) {
    const EventId begin = device.record_event(on, {.is_timed = true}).value();
    std::atomic<bool> ran{false};
    ASSERT_TRUE(worked(device.enqueue_host(on, set_flag(ran))));
    const EventId end = device.record_event(on, {.is_timed = true}).value();
    const double elapsed = device.elapsed_ms(begin, end).value();
    EXPECT_TRUE(ran) << "it waits for both";
    EXPECT_GE(elapsed, 0);
    EXPECT_EQ(device.elapsed_ms(end, begin).value(), -elapsed);
    EXPECT_EQ(device.elapsed_ms(end, end).value(), 0);
    EXPECT_TRUE(device.query_event(end).value()) << "it is an event like any other";
    const EventId plain = device.record_event(on).value();
    EXPECT_TRUE(refused(device.elapsed_ms(begin, plain), kInvalidArgument));
    EXPECT_TRUE(refused(device.elapsed_ms(plain, end), kInvalidArgument));
    for (const EventId event : {begin, plain, end})
      EXPECT_TRUE(worked(device.release_event(event)));
    EXPECT_TRUE(refused(device.elapsed_ms(begin, end), kUnknownHandle));
  }
  EXPECT_TRUE(worked(device.release_stream(stream)));
}

TEST_P(DeviceStreams, AnAttachmentGoesBeforeTheDevice) {
  struct Handles final : Attachment {
    Handles(Device& of, bool& has_gone) : device(of), gone(has_gone) {}
    ~Handles() override { gone = device.synchronize_stream(StreamId::kDefault).has_value(); }
    Device& device;
    bool& gone;
  };
  bool gone = false;
  {
    auto other = make();
    EXPECT_EQ(other->attachment(), nullptr);
    Attachment& kept = other->attach(std::make_unique<Handles>(*other, gone));
    EXPECT_EQ(other->attachment(), &kept);
    EXPECT_FALSE(gone);
  }
  EXPECT_TRUE(gone) << "destroyed, while the device still worked";
}

TEST_P(DeviceStreams, AdoptingGivesTheSameIdForTheSameStream) {
  Device& device = this->device();
  EXPECT_EQ(device.adopt_stream(0).value(), StreamId::kDefault);
  if (!backend().adopts_any_number) return;
  const NativeStream native = 0x5500'1234'5678;
  const auto first = device.adopt_stream(native);
  if (!first) {
    EXPECT_TRUE(refused(first, kNotSupported)) << "nobody else makes streams there";
    return;
  }
  EXPECT_EQ(device.adopt_stream(native).value(), *first);
  EXPECT_NE(device.adopt_stream(native + 8).value(), *first);
  EXPECT_TRUE(worked(device.synchronize_stream(*first)));
  EXPECT_TRUE(worked(device.release_stream(*first)));
}

TEST_P(DeviceStreams, AReleasedStreamTakesOnlyEvents) {
  Device& device = this->device();
  const StreamId stream = device.create_stream().value();
  EXPECT_FALSE(device.is_capturing(stream).value());
  const EventId before = device.record_event(stream).value();
  ASSERT_TRUE(worked(device.release_stream(stream)));
  expect_refused_everywhere(stream);

  const auto after = device.record_event(stream);
  ASSERT_TRUE(worked(after)) << "blocks may go on naming the stream";
  for (const EventId event : {before, *after}) {
    EXPECT_TRUE(worked(device.wait_event(StreamId::kDefault, event)));
    EXPECT_TRUE(worked(device.synchronize_event(event)));
    EXPECT_TRUE(device.query_event(event).value());
    EXPECT_TRUE(worked(device.release_event(event)));
  }
}

TEST_P(DeviceStreams, AStreamMayGoWhileItsBlocksLive) {
  Device& device = this->device();
  const DeviceAddress segment = device.allocate_segment(4_KiB).value();
  const StreamId stream = device.create_stream().value();
  device.block_allocated(segment, 4_KiB, stream);
  ASSERT_TRUE(worked(device.fill(segment, 3, 4_KiB, stream)));
  ASSERT_TRUE(worked(device.release_stream(stream)));
  const EventId event = device.record_event(stream).value();
  ASSERT_TRUE(worked(device.synchronize_event(event)));
  device.block_freed(segment, 4_KiB, stream);
  EXPECT_TRUE(worked(device.free_segment(segment)));
}

TEST_P(DeviceStreams, StreamsOfOthersAreUnknown) {
  auto other = make();
  const StreamId foreign = other->create_stream().value();
  expect_refused_everywhere(foreign);
  EXPECT_TRUE(refused(device().record_event(foreign), kUnknownHandle));
  EXPECT_TRUE(worked(other->synchronize_stream(foreign))) << "unharmed";

  const StreamId never = StreamId{UINT64_MAX};
  expect_refused_everywhere(never);
  EXPECT_TRUE(refused(device().record_event(never), kUnknownHandle));
}

// --- Events ----------------------------------------------------------------------------------

TEST_P(DeviceStreams, EventsCompleteAndAreReleased) {
  Device& device = this->device();
  const StreamId stream = device.create_stream().value();
  std::set<EventId> seen{EventId::kNone};
  for (int i = 0; i < 20; ++i) {
    const EventId event = device.record_event(i % 2 == 0 ? stream : StreamId::kDefault).value();
    EXPECT_TRUE(seen.insert(event).second) << "an id comes once";
    EXPECT_TRUE(worked(device.synchronize_event(event)));
    EXPECT_TRUE(device.query_event(event).value());
    EXPECT_TRUE(worked(device.wait_event(stream, event))) << "of the past";
    EXPECT_TRUE(worked(device.release_event(event)));
    EXPECT_TRUE(refused(device.query_event(event), kUnknownHandle));
  }
}

TEST_P(DeviceStreams, EventsOfOthersAreUnknown) {
  Device& device = this->device();
  auto other = make();
  const EventId foreign = other->record_event(StreamId::kDefault).value();
  const EventId released = device.record_event(StreamId::kDefault).value();
  ASSERT_TRUE(worked(device.release_event(released)));
  for (const EventId event : {foreign, released, EventId::kNone, EventId{UINT64_MAX}}) {
    EXPECT_TRUE(refused(device.query_event(event), kUnknownHandle));
    EXPECT_TRUE(refused(device.wait_event(StreamId::kDefault, event), kUnknownHandle));
    EXPECT_TRUE(refused(device.synchronize_event(event), kUnknownHandle));
    EXPECT_TRUE(refused(device.release_event(event), kUnknownHandle));
  }
  EXPECT_TRUE(worked(other->release_event(foreign))) << "unharmed";
}

TEST_P(DeviceStreams, SynchronizingAStreamCompletesItsEvents) {
  Device& device = this->device();
  const StreamId stream = device.create_stream().value();
  std::vector<EventId> events;
  std::atomic<bool> ran = false;
  for (int i = 0; i < 10; ++i) events.push_back(device.record_event(stream).value());
  ASSERT_TRUE(worked(device.enqueue_host(stream, set_flag(ran))));
  ASSERT_TRUE(worked(device.synchronize_stream(stream)));
  EXPECT_TRUE(ran);
  for (const EventId event : events) {
    EXPECT_TRUE(device.query_event(event).value());
    EXPECT_TRUE(worked(device.release_event(event)));
  }
}

// --- Host tasks ------------------------------------------------------------------------------

TEST_P(DeviceStreams, HostTasksRunInOrder) {
  Device& device = this->device();
  struct Step {
    std::vector<int>* log;
    int number;
  };
  for (const StreamId stream : {StreamId::kDefault, device.create_stream().value()}) {
    std::vector<int> log;
    std::vector<Step> steps;
    for (int i = 0; i < 100; ++i) steps.push_back({&log, i});
    for (Step& step : steps) {
      const HostTask task{.run =
                              [](void* data) noexcept {
                                const auto* s = static_cast<Step*>(data);
                                s->log->push_back(s->number);
                              },
                          .data = &step};
      ASSERT_TRUE(worked(device.enqueue_host(stream, task)));
    }
    ASSERT_TRUE(worked(device.synchronize_stream(stream)));
    ASSERT_EQ(log.size(), 100U);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(log[static_cast<std::size_t>(i)], i);
  }
}

TEST_P(DeviceStreams, HostTasksMayCallTheDevice) {
  Device& device = this->device();
  struct Work {
    Device* device;
    StreamId stream;
    std::atomic<bool> worked = false;
  };
  for (const StreamId stream : {StreamId::kDefault, device.create_stream().value()}) {
    Work work{.device = &device, .stream = stream};
    const HostTask task{.run =
                            [](void* data) noexcept {
                              auto& w = *static_cast<Work*>(data);
                              const auto segment = w.device->allocate_segment(4_KiB);
                              const auto event = w.device->record_event(w.stream);
                              const auto made = w.device->create_stream();
                              w.worked =
                                  segment && event && made && w.device->release_event(*event) &&
                                  w.device->release_stream(*made) &&
                                  w.device->free_segment(*segment) && w.device->memory_info();
                            },
                        .data = &work};
    ASSERT_TRUE(worked(device.enqueue_host(stream, task)));
    ASSERT_TRUE(worked(device.synchronize_stream(stream)));
    EXPECT_TRUE(work.worked);
  }
}

TEST_P(DeviceStreams, RefusesANullTask) {
  EXPECT_TRUE(refused(device().enqueue_host(StreamId::kDefault, {}), kInvalidArgument));
}

// --- What only shows where work takes time ---------------------------------------------------

class DeviceAsync : public testing::DeviceFixture {};
HEADROOM_DEVICE_SUITE(DeviceAsync, async_backends);

TEST_P(DeviceAsync, EventsWaitForWhatWasQueuedBefore) {
  Device& device = this->device();
  const StreamId stream = device.create_stream().value();
  const EventId before = device.record_event(stream).value();
  StreamGate gate(device, stream);
  const EventId after = device.record_event(stream).value();
  gate.wait_until_reached();
  EXPECT_TRUE(device.query_event(before).value());
  EXPECT_FALSE(device.query_event(after).value());
  gate.open();
  EXPECT_TRUE(worked(device.synchronize_event(after)));
  EXPECT_TRUE(device.query_event(after).value());
}

TEST_P(DeviceAsync, StreamsDoNotWaitForOneAnother) {
  Device& device = this->device();
  const StreamId held = device.create_stream().value();
  const StreamId free = device.create_stream().value();
  StreamGate gate(device, held);
  std::atomic<bool> ran = false;
  ASSERT_TRUE(worked(device.enqueue_host(free, set_flag(ran))));
  ASSERT_TRUE(worked(device.synchronize_stream(free)));
  EXPECT_TRUE(ran);
  ran = false;
  ASSERT_TRUE(worked(device.enqueue_host(StreamId::kDefault, set_flag(ran))));
  ASSERT_TRUE(worked(device.synchronize_stream(StreamId::kDefault)));
  EXPECT_TRUE(ran) << "nor does the default stream";
}

TEST_P(DeviceAsync, AWaitHoldsOnlyWhatIsQueuedAfterIt) {
  Device& device = this->device();
  const StreamId first = device.create_stream().value();
  const StreamId second = device.create_stream().value();
  StreamGate gate(device, first);
  const EventId event = device.record_event(first).value();
  std::atomic<bool> early = false;
  std::atomic<bool> late = false;
  ASSERT_TRUE(worked(device.enqueue_host(second, set_flag(early))));
  const EventId early_done = device.record_event(second).value();
  ASSERT_TRUE(worked(device.wait_event(second, event)));
  ASSERT_TRUE(worked(device.enqueue_host(second, set_flag(late))));
  const EventId late_done = device.record_event(second).value();
  // An event that is waited for may be released: the wait stands.
  ASSERT_TRUE(worked(device.release_event(event)));
  ASSERT_TRUE(worked(device.synchronize_event(early_done)));
  EXPECT_TRUE(early);
  EXPECT_FALSE(late);
  EXPECT_FALSE(device.query_event(late_done).value());
  gate.open();
  ASSERT_TRUE(worked(device.synchronize_event(late_done)));
  EXPECT_TRUE(late);
}

TEST_P(DeviceAsync, AReleasedStreamFinishesItsWork) {
  Device& device = this->device();
  const StreamId stream = device.create_stream().value();
  StreamGate gate(device, stream);
  std::atomic<bool> ran = false;
  ASSERT_TRUE(worked(device.enqueue_host(stream, set_flag(ran))));
  const EventId before = device.record_event(stream).value();
  ASSERT_TRUE(worked(device.release_stream(stream))) << "at once, though work is queued";
  const EventId after = device.record_event(stream).value();
  EXPECT_FALSE(device.query_event(before).value());
  EXPECT_FALSE(device.query_event(after).value());
  EXPECT_FALSE(ran);
  gate.open();
  ASSERT_TRUE(worked(device.synchronize_event(after)));
  EXPECT_TRUE(ran);
  EXPECT_TRUE(device.query_event(before).value());
}

TEST_P(DeviceAsync, CopiesWaitForTheirStream) {
  Device& device = this->device();
  const DeviceAddress segment = device.allocate_segment(4_KiB).value();
  const StreamId stream = device.create_stream().value();
  const auto first_byte = [&] {
    std::uint8_t byte = 0;
    EXPECT_TRUE(worked(device.copy_to_host(&byte, segment, 1, StreamId::kDefault)));
    EXPECT_TRUE(worked(device.synchronize_stream(StreamId::kDefault)));
    return int{byte};
  };
  ASSERT_TRUE(worked(device.fill(segment, 1, 4_KiB, StreamId::kDefault)));
  // Pinned: a driver may read other memory when the copy is queued.
  auto* const source = static_cast<std::uint8_t*>(device.allocate_pinned(4_KiB).value());
  std::fill_n(source, 4_KiB, std::uint8_t{2});
  StreamGate gate(device, stream);
  ASSERT_TRUE(worked(device.copy_to_device(segment, source, 4_KiB, stream)));
  EXPECT_EQ(first_byte(), 1) << "the copy is still queued";
  std::fill_n(source, 4_KiB, std::uint8_t{3});  // read when the copy runs
  gate.open();
  ASSERT_TRUE(worked(device.synchronize_stream(stream)));
  EXPECT_EQ(first_byte(), 3);
}

TEST_P(DeviceAsync, MemoryCallsDoNotWaitForQueuedWork) {
  Device& device = this->device();
  const std::uint64_t page = this->page();
  const StreamId stream = device.create_stream().value();
  StreamGate gate(device, stream);
  gate.wait_until_reached();
  // None of these returns before the gate opens if it waits for the stream.
  const DeviceAddress segment = device.allocate_segment(4_KiB).value();
  const DeviceAddress range = device.reserve_addresses(2 * page).value();
  const PageHandle handle = device.create_pages(page).value();
  EXPECT_TRUE(worked(device.map_pages(range, std::array{handle, handle})));
  EXPECT_TRUE(worked(device.unmap_pages(range, 2 * page)));
  EXPECT_TRUE(worked(device.release_pages(handle)));
  EXPECT_TRUE(worked(device.release_addresses(range)));
  gate.open();
  EXPECT_TRUE(worked(device.free_segment(segment))) << "this one may wait";
}

}  // namespace
}  // namespace headroom::device
