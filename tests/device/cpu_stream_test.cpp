// The cpu device's streams: order within one, none between two, events to make some.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/cpu/cpu_device.h"

#include "tests/device/small_device.h"
#include "tests/support/stream_gate.h"

namespace headroom::device {
namespace {

using headroom::testing::StreamGate;

std::unique_ptr<CpuDevice> numbered_device(int index = 0) {
  return CpuDevice::create({.index = index, .capacity_bytes = 16_MiB, .granularity_bytes = 64_KiB});
}

struct Copied {
  std::vector<std::uint8_t> bytes = std::vector<std::uint8_t>(4096, 0xEE);
  [[nodiscard]] bool is_all(std::uint8_t value) const {
    return std::ranges::all_of(bytes, [&](std::uint8_t byte) { return byte == value; });
  }
};

TEST(CpuStream, AMissingWaitShowsAsWrongData) {
  const auto device = numbered_device();
  const auto memory = device->allocate_segment(4096).value();
  ASSERT_TRUE(device->fill(memory, 1, 4096, kDefault));
  const auto writer = device->create_stream().value();
  const auto reader = device->create_stream().value();
  Copied copied;
  StreamGate gate(*device, writer);
  ASSERT_TRUE(device->fill(memory, 2, 4096, writer));
  ASSERT_TRUE(device->copy_to_host(copied.bytes.data(), memory, 4096, reader));
  ASSERT_TRUE(device->synchronize_stream(reader));
  EXPECT_TRUE(copied.is_all(1)) << "the streams must not order themselves";
  gate.open();
  ASSERT_TRUE(device->synchronize_stream(writer));
}

TEST(CpuStream, AWaitForTheEventMakesItRight) {
  const auto device = numbered_device();
  const auto memory = device->allocate_segment(4096).value();
  ASSERT_TRUE(device->fill(memory, 1, 4096, kDefault));
  const auto writer = device->create_stream().value();
  const auto reader = device->create_stream().value();
  Copied copied;
  StreamGate gate(*device, writer);
  ASSERT_TRUE(device->fill(memory, 2, 4096, writer));
  const auto written = device->record_event(writer).value();
  ASSERT_TRUE(device->wait_event(reader, written));
  ASSERT_TRUE(device->release_event(written));  // the wait keeps what it needs
  ASSERT_TRUE(device->copy_to_host(copied.bytes.data(), memory, 4096, reader));
  gate.open();
  ASSERT_TRUE(device->synchronize_stream(reader));
  EXPECT_TRUE(copied.is_all(2));
}

TEST(CpuStream, TheDefaultStreamRunsOnTheCallersThread) {
  const auto device = numbered_device();
  std::thread::id ran_on;
  ASSERT_TRUE(device->enqueue_host(kDefault,
                                   {.run =
                                        [](void* id) noexcept {
                                          *static_cast<std::thread::id*>(id) =
                                              std::this_thread::get_id();
                                        },
                                    .data = &ran_on}));
  EXPECT_EQ(ran_on, std::this_thread::get_id());
  const auto event = device->record_event(kDefault).value();
  EXPECT_TRUE(device->query_event(event).value());
  EXPECT_TRUE(device->synchronize_event(event));
}

TEST(CpuStream, TheDefaultStreamWaitsInline) {
  const auto device = numbered_device();
  const auto memory = device->allocate_segment(4096).value();
  const auto stream = device->create_stream().value();
  StreamGate gate(*device, stream);
  ASSERT_TRUE(device->fill(memory, 3, 4096, stream));
  const auto event = device->record_event(stream).value();
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate.open();
  });
  ASSERT_TRUE(device->wait_event(kDefault, event));
  Copied copied;
  ASSERT_TRUE(device->copy_to_host(copied.bytes.data(), memory, 4096, kDefault));
  EXPECT_TRUE(copied.is_all(3));
  opener.join();
}

TEST(CpuStream, AnEventIsCompleteWhenItsWorkIs) {
  const auto device = numbered_device();
  const auto stream = device->create_stream().value();
  const auto before = device->record_event(stream).value();
  StreamGate gate(*device, stream);
  const auto after = device->record_event(stream).value();
  EXPECT_TRUE(device->query_event(before).value());
  EXPECT_FALSE(device->query_event(after).value());
  gate.open();
  ASSERT_TRUE(device->synchronize_event(after));
  EXPECT_TRUE(device->query_event(after).value());
  ASSERT_TRUE(device->release_event(after));
  EXPECT_EQ(device->query_event(after).error(), StatusCode::kUnknownHandle);
}

TEST(CpuStream, TasksOfAStreamRunInOrder) {
  const auto device = numbered_device();
  const auto stream = device->create_stream().value();
  struct Step {
    std::vector<int>* order;
    int number;
  };
  std::vector<int> order;
  std::vector<Step> steps(1000);
  for (int i = 0; i < 1000; ++i) {
    steps[static_cast<std::size_t>(i)] = {&order, i};
    ASSERT_TRUE(device->enqueue_host(stream,
                                     {.run =
                                          [](void* data) noexcept {
                                            auto* step = static_cast<Step*>(data);
                                            step->order->push_back(step->number);
                                          },
                                      .data = &steps[static_cast<std::size_t>(i)]}));
  }
  ASSERT_TRUE(device->synchronize_stream(stream));
  std::vector<int> expected(1000);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

TEST(CpuStream, AReleasedStreamFinishesItsWorkAndTakesNoMore) {
  const auto device = numbered_device();
  const auto memory = device->allocate_segment(4096).value();
  const auto stream = device->create_stream().value();
  StreamGate gate(*device, stream);
  ASSERT_TRUE(device->fill(memory, 4, 4096, stream));
  ASSERT_TRUE(device->release_stream(stream));

  const auto event = device->record_event(stream).value();
  EXPECT_FALSE(device->query_event(event).value());
  EXPECT_EQ(device->fill(memory, 5, 4096, stream).error(), StatusCode::kUnknownHandle);
  EXPECT_EQ(device->wait_event(stream, event).error(), StatusCode::kUnknownHandle);
  EXPECT_EQ(device->synchronize_stream(stream).error(), StatusCode::kUnknownHandle);
  EXPECT_EQ(device->is_capturing(stream).error(), StatusCode::kUnknownHandle);
  EXPECT_EQ(device->release_stream(stream).error(), StatusCode::kUnknownHandle);

  gate.open();
  ASSERT_TRUE(device->synchronize_event(event));
  Copied copied;
  ASSERT_TRUE(device->copy_to_host(copied.bytes.data(), memory, 4096, kDefault));
  EXPECT_TRUE(copied.is_all(4));

  // Long after the thread has ended, and another stream has come, the id still means something.
  for (int i = 0; i < 100; ++i) {
    const auto other = device->create_stream().value();
    ASSERT_NE(other, stream);
    ASSERT_TRUE(device->release_stream(other));
  }
  EXPECT_TRUE(device->query_event(device->record_event(stream).value()).value());
}

TEST(CpuStream, StreamsAndEventsOfAnotherDeviceAreUnknown) {
  const auto one = numbered_device(0);
  const auto two = numbered_device(1);
  const auto stream = one->create_stream().value();
  const auto event = one->record_event(stream).value();
  const auto memory = two->allocate_segment(512).value();
  EXPECT_EQ(two->fill(memory, 0, 512, stream).error(), StatusCode::kUnknownHandle);
  EXPECT_EQ(two->record_event(stream).error(), StatusCode::kUnknownHandle);
  EXPECT_EQ(two->release_stream(stream).error(), StatusCode::kUnknownHandle);
  const auto refused = two->wait_event(kDefault, event);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), StatusCode::kUnknownHandle);
  EXPECT_NE(to_string(refused.error()).find("not an event of this device"), std::string::npos);
  EXPECT_EQ(two->query_event(event).error(), StatusCode::kUnknownHandle);
  EXPECT_EQ(two->release_event(event).error(), StatusCode::kUnknownHandle);
  EXPECT_TRUE(one->release_event(event));
}

TEST(CpuStream, ANumberFromOutsideIsOneStream) {
  const auto device = numbered_device();
  const auto stream = device->adopt_stream(0xABCD).value();
  EXPECT_EQ(device->adopt_stream(0xABCD).value(), stream);
  EXPECT_NE(device->adopt_stream(0xABCE).value(), stream);
  EXPECT_EQ(device->adopt_stream(0).value(), kDefault);
  ASSERT_TRUE(device->release_stream(stream));
  EXPECT_NE(device->adopt_stream(0xABCD).value(), stream) << "ids are not given out twice";
}

TEST(CpuStream, AFreedSegmentStaysUntilQueuedWorkHasPassedIt) {
  const auto device = numbered_device();
  const auto stream = device->create_stream().value();
  const auto memory = device->allocate_segment(4_MiB).value();
  StreamGate gate(*device, stream);
  ASSERT_TRUE(device->fill(memory, 6, 4_MiB, stream));  // would fault if the memory were gone
  ASSERT_TRUE(device->free_segment(memory));            // and this does not wait
  EXPECT_EQ(device->memory_info().value().free_bytes, 16_MiB);
  EXPECT_EQ(device->fill(memory, 7, 1, stream).error(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(device->release_stream(stream));
  gate.open();
}

TEST(CpuStream, ATaskMayFreeAndReleaseAndRecord) {
  struct Shared {
    CpuDevice* device;
    StreamId stream;
    DeviceAddress memory;
    bool is_fine = false;
    StatusCode wait = StatusCode::kFailed;
  };
  const auto device = numbered_device();
  Shared shared{.device = device.get(),
                .stream = device->create_stream().value(),
                .memory = device->allocate_segment(4096).value()};
  ASSERT_TRUE(device->fill(shared.memory, 1, 4096, shared.stream));
  ASSERT_TRUE(device->enqueue_host(shared.stream,
                                   {.run =
                                        [](void* data) noexcept {
                                          auto* s = static_cast<Shared*>(data);
                                          const auto waited =
                                              s->device->synchronize_stream(s->stream);
                                          if (!waited) s->wait = waited.error().code;
                                          s->is_fine =
                                              s->device->free_segment(s->memory).has_value() &&
                                              s->device->record_event(s->stream).has_value() &&
                                              s->device->create_stream().has_value() &&
                                              s->device->release_stream(s->stream).has_value();
                                        },
                                    .data = &shared}));
  const auto event = device->record_event(shared.stream).value();
  ASSERT_TRUE(device->synchronize_event(event));
  EXPECT_TRUE(shared.is_fine);
  EXPECT_EQ(shared.wait, StatusCode::kInvalidArgument) << "waiting for oneself never ends";
}

TEST(CpuStream, DestroyingTheDeviceRunsWhatIsQueued) {
  std::atomic<int> ran{0};
  {
    const auto device = numbered_device();
    const auto one = device->create_stream().value();
    const auto two = device->create_stream().value();
    const auto count = [](void* data) noexcept {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      static_cast<std::atomic<int>*>(data)->fetch_add(1);
    };
    for (int i = 0; i < 50; ++i) {
      ASSERT_TRUE(device->enqueue_host(one, {.run = count, .data = &ran}));
      ASSERT_TRUE(device->wait_event(two, device->record_event(one).value()));
      ASSERT_TRUE(device->enqueue_host(two, {.run = count, .data = &ran}));
      ASSERT_TRUE(device->wait_event(one, device->record_event(two).value()));
    }
    ASSERT_TRUE(device->release_stream(two));
  }
  EXPECT_EQ(ran.load(), 100);
}

}  // namespace
}  // namespace headroom::device
