// The recorders on an allocator: what they keep, what they drop, and that they say so.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"
#include "headroom/base/fork.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/annotation.h"
#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/trace/hrt/hrt_reader.h"
#include "headroom/trace/record/file_recorder.h"
#include "headroom/trace/record/ring_recorder.h"

#include "tests/support/forked.h"
#include "tests/trace/scratch.h"

namespace headroom::trace {
namespace {

using memory::CachingAllocator;
using ::testing::HasSubstr;
using testing::read_file;
using testing::Scratch;

std::int64_t now_us() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

class Recorders : public ::testing::Test {
 protected:
  std::unique_ptr<device::MetaDevice> device =
      device::MetaDevice::create({.capacity_bytes = 1_GiB});
  CachingAllocator allocator{*device};
  Scratch scratch;
};

using RingRecorderTest = Recorders;
using FileRecorderTest = Recorders;

TEST_F(RingRecorderTest, KeepsWhatHappened) {
  RingRecorder ring;
  allocator.add_sink(ring);
  const std::int64_t before = now_us();
  {
    const memory::AnnotationScope layer("layer3");
    const memory::CategoryScope category(memory::Category::kActivation);
    allocator.free(allocator.allocate(3_MiB));
  }
  const Trace trace = ring.snapshot({.device = 4, .rank = 2});
  ASSERT_EQ(trace.devices.size(), 1U);
  EXPECT_EQ(trace.devices[0].device, 4);
  EXPECT_EQ(trace.devices[0].rank, 2);
  const Events& events = trace.devices[0].events;
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events.action(0), Action::kSegmentAlloc);
  EXPECT_EQ(events.action(1), Action::kAlloc);
  EXPECT_EQ(events.action(2), Action::kFreeRequested);
  EXPECT_EQ(events.action(3), Action::kFreeCompleted);
  EXPECT_EQ(events.size_bytes(0), 20_MiB);
  EXPECT_EQ(events.size_bytes(1), 3_MiB);
  const Details& details = trace.details[events.details(1)];
  EXPECT_EQ(trace.strings[details.user_metadata.value()], "layer3");
  EXPECT_EQ(details.category, memory::Category::kActivation);
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events.stack(i), 0U);
    EXPECT_GE(events.time_us(i), before - 1'000);
    EXPECT_LE(events.time_us(i), now_us() + 1'000);
    EXPECT_GE(events.time_us(i), events.time_us(i == 0 ? 0 : i - 1));
  }
}

TEST_F(RingRecorderTest, OverwritesTheOldestAndCountsThem) {
  RingRecorder ring({.capacity_events = 8});
  allocator.add_sink(ring);
  for (std::uint64_t i = 1; i <= 10; ++i) allocator.free(allocator.allocate(i * 512));
  // Each pair makes three events, the first a segment too.
  EXPECT_EQ(ring.recorded_events(), 31U);
  EXPECT_EQ(ring.dropped_events(), 23U);
  const Trace trace = ring.snapshot();
  const Events& events = trace.devices[0].events;
  ASSERT_EQ(events.size(), 8U);
  EXPECT_EQ(trace.devices[0].dropped_events, 23U);
  EXPECT_EQ(events.size_bytes(7), 10U * 512);
  EXPECT_EQ(events.size_bytes(0), 8U * 512);
  EXPECT_EQ(events.action(7), Action::kFreeCompleted);
}

TEST_F(RingRecorderTest, TakesItsSizeInBytes) {
  EXPECT_EQ(RingRecorder({.capacity_bytes = 64_KiB}).capacity(), 1024U);
  EXPECT_THROW(RingRecorder({.capacity_bytes = 63}), InvalidArgument);
  EXPECT_THROW(RingRecorder({.capacity_events = 0}), InvalidArgument);
}

TEST_F(FileRecorderTest, WritesWhatARingKeeps) {
  RingRecorder ring;
  const std::string path = scratch.path("run.hrt");
  FileRecorder recorder({.path = path});
  const auto work = [this] {
    std::vector<DeviceAddress> held;
    for (std::uint64_t i = 1; i <= 1'000; ++i) {
      held.push_back(allocator.allocate(i * 100));
      if (i % 3 != 0) {
        allocator.free(held.back());
        held.pop_back();
      }
    }
    for (const DeviceAddress address : held) allocator.free(address);
  };
  allocator.add_sink(ring);
  allocator.add_sink(recorder.channel({.device = 3}));
  work();
  allocator.remove_sink(recorder.channel({.device = 3}));
  allocator.remove_sink(ring);
  const std::vector states{FinalState{{.device = 3}, allocator.segments()}};
  ASSERT_TRUE(recorder.close(states));

  std::string note;
  const auto read = parse_hrt(read_file(path), &note);
  ASSERT_TRUE(read) << to_string(read.error());
  EXPECT_EQ(note, "");
  EXPECT_THAT(read->producer, HasSubstr("headroom"));
  const Trace kept = ring.snapshot();
  const Events& a = kept.devices[0].events;
  const Events& b = read->devices[0].events;
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a.action(i), b.action(i));
    ASSERT_EQ(a.size_bytes(i), b.size_bytes(i));
  }
  ASSERT_EQ(read->segments.size(), allocator.segments().size());
  EXPECT_EQ(read->segments[0].device, 3);
  EXPECT_EQ(read->segments[0].size_bytes, allocator.segments()[0].size_bytes);
}

TEST_F(FileRecorderTest, IsReadableWhileItRecords) {
  const std::string path = scratch.path("run.hrt");
  FileRecorder recorder({.path = path});
  allocator.add_sink(recorder.channel({}));
  allocator.free(allocator.allocate(512));
  recorder.flush();
  std::string note;
  const auto read = parse_hrt(read_file(path), &note);
  ASSERT_TRUE(read) << to_string(read.error());
  EXPECT_EQ(read->event_count(), 4U);
  EXPECT_THAT(note, HasSubstr("not closed"));
  allocator.remove_sink(recorder.channel({}));
}

TEST_F(FileRecorderTest, WritesBeforeItsIntervalIsOver) {
  const std::string path = scratch.path("run.hrt");
  FileRecorder recorder({.path = path, .interval = std::chrono::milliseconds(10)});
  allocator.add_sink(recorder.channel({}));
  allocator.free(allocator.allocate(512));
  std::size_t events = 0;
  for (int i = 0; i < 1'000 && events == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    events = parse_hrt(read_file(path)).value().event_count();
  }
  EXPECT_EQ(events, 4U);
  allocator.remove_sink(recorder.channel({}));
}

TEST_F(FileRecorderTest, CountsWhatItsQueueHadNoRoomFor) {
  const std::string path = scratch.path("run.hrt");
  FileRecorder recorder(
      {.path = path, .queue_events = 16, .interval = std::chrono::milliseconds(600'000)});
  // As if the writing thread never got to it: nothing rings before the queue is full.
  memory::EventSink& sink = recorder.channel({});
  for (std::uint64_t i = 0; i < 100'000; ++i) sink.record({.address = i, .sequence = i});
  ASSERT_TRUE(recorder.close());
  const auto read = parse_hrt(read_file(path));
  ASSERT_TRUE(read);
  EXPECT_GT(recorder.dropped_events(), 0U);
  EXPECT_EQ(read->devices[0].dropped_events, recorder.dropped_events());
  EXPECT_EQ(read->event_count() + recorder.dropped_events(), 100'000U);
}

TEST_F(FileRecorderTest, KeepsMarksAndSettings) {
  const std::string path = scratch.path("run.hrt");
  FileRecorder recorder({.path = path});
  recorder.set_settings(Value{Value::Dict{{"PYTORCH_CUDA_ALLOC_CONF", Value{std::string("a:1")}}}});
  recorder.mark("forward", true);
  recorder.mark("forward", false);
  ASSERT_TRUE(recorder.close());
  const auto read = parse_hrt(read_file(path));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->settings_string(), "a:1");
  ASSERT_EQ(read->annotations.size(), 2U);
  EXPECT_EQ(read->strings[read->annotations[0].name], "forward");
  EXPECT_TRUE(read->annotations[0].is_start);
  EXPECT_FALSE(read->annotations[1].is_start);
  EXPECT_NEAR(
      static_cast<double>(read->annotations[1].time_us), static_cast<double>(now_us()), 6e7);
}

// The child may go on allocating and end; the file is the parent's.
TEST_F(FileRecorderTest, IsLeftAloneByTheChildOfAFork) {
  const std::string path = scratch.path("run.hrt");
  auto recorder = std::make_unique<FileRecorder>(FileOptions{.path = path});
  allocator.add_sink(recorder->channel({}));
  allocator.free(allocator.allocate(512));
  recorder->flush();
  EXPECT_TRUE(headroom::testing::is_true_in_child([&] {
    bool is_refused = false;
    try {
      (void)recorder->channel({});
    } catch (const Forked&) {
      is_refused = true;
    }
    recorder->mark("in the child", true);
    recorder->flush();
    const bool is_empty = recorder->written_bytes() == 0 && recorder->dropped_events() == 0;
    recorder.reset();
    return is_refused && is_empty;
  }));
  allocator.free(allocator.allocate(512));
  allocator.remove_sink(recorder->channel({}));
  ASSERT_TRUE(recorder->close());
  EXPECT_EQ(parse_hrt(read_file(path)).value().event_count(), 7U);
}

TEST_F(FileRecorderTest, DoesNotReplaceAFile) {
  const std::string path = scratch.path("run.hrt");
  std::ofstream(path) << "mine";
  EXPECT_THROW(FileRecorder({.path = path}), Error);
  EXPECT_EQ(read_file(path).size(), 4U);
  EXPECT_NO_THROW(FileRecorder({.path = path, .overwrite = true}));
  EXPECT_THROW(FileRecorder({.path = scratch.path("no/such/folder/run.hrt")}), Error);
}

TEST_F(FileRecorderTest, SaysWhenTheDiskIsFull) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  FileRecorder recorder({.path = "/dev/full", .overwrite = true});
  recorder.channel({}).record({});
  const auto closed = recorder.close();
  ASSERT_FALSE(closed);
  EXPECT_THAT(closed.error().message, HasSubstr("/dev/full"));
}

}  // namespace
}  // namespace headroom::trace
