// record_memory_history and its kin: on an allocator of one's own, and on the process's.
#include "headroom/trace/record/history.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/annotation.h"
#include "headroom/memory/api.h"
#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/memory/out_of_memory.h"
#include "headroom/trace/file.h"
#include "headroom/trace/hrt/hrt_reader.h"

#include "tests/trace/scratch.h"

namespace headroom::trace {
namespace {

using ::testing::HasSubstr;
using testing::read_file;
using testing::Scratch;

class HistoryTest : public ::testing::Test {
 protected:
  std::unique_ptr<device::MetaDevice> device =
      device::MetaDevice::create({.capacity_bytes = 256_MiB});
  memory::CachingAllocator allocator{*device, {.config = {.text = "max_split_size_mb:64"}}};
  Scratch scratch;
};

TEST_F(HistoryTest, ASnapshotIsTheEventsAndTheStateTheyLeft) {
  History history;
  history.attach(allocator);
  const DeviceAddress held = allocator.allocate(3_MiB);
  {
    const memory::IterationScope iteration(12);
    const memory::PhaseScope phase(memory::Phase::kForward);
    allocator.free(allocator.allocate(1_MiB));
  }
  const Trace trace = history.snapshot();
  EXPECT_EQ(trace.origin, Origin::kHeadroom);
  EXPECT_EQ(trace.settings_string(), "max_split_size_mb:64");
  ASSERT_EQ(trace.devices.size(), 1U);
  EXPECT_EQ(trace.devices[0].events.size(), 6U);
  EXPECT_EQ(trace.devices[0].dropped_events, 0U);

  ASSERT_EQ(trace.segments.size(), 2U);
  std::uint64_t allocated = 0;
  for (const Segment& segment : trace.segments) allocated += segment.allocated_bytes.value();
  EXPECT_EQ(allocated, 3_MiB);

  std::vector<std::string> names;
  for (const Annotation& annotation : trace.annotations) {
    names.push_back(std::string(trace.strings[annotation.name]) +
                    (annotation.is_start ? " START" : " END"));
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{
                "iteration 12 START", "forward START", "forward END", "iteration 12 END"}));
  const Entry alloc = trace.devices[0].events[3];
  ASSERT_EQ(alloc.action, Action::kAlloc);
  EXPECT_EQ(trace.strings[trace.details[alloc.details].user_metadata.value()], "forward");
  EXPECT_LE(trace.annotations[1].time_us, alloc.time_us + 1);
  EXPECT_GE(trace.annotations[2].time_us + 1, alloc.time_us);
  ASSERT_TRUE(history.stop());
  allocator.free(held);
}

TEST_F(HistoryTest, DumpsByName) {
  History history;
  history.attach(allocator);
  allocator.free(allocator.allocate(1_MiB));
  const std::string path = scratch.path("snapshot.hrt");
  ASSERT_TRUE(history.dump(path));
  EXPECT_EQ(parse_hrt(read_file(path)).value().event_count(), 4U);
  EXPECT_FALSE(history.dump(path)) << "an existing file is kept";
  const std::string pickle = scratch.path("snapshot.pickle.zst");
  ASSERT_TRUE(history.dump(pickle));
  const auto read = read_trace(pickle);
  ASSERT_TRUE(read) << to_string(read.error());
  EXPECT_EQ(read->format, Format::kPickle);
  EXPECT_EQ(read->trace.event_count(), 4U);
  EXPECT_EQ(read->trace.segments.size(), history.snapshot().segments.size());
  EXPECT_FALSE(history.dump(scratch.path("snapshot.doc"))) << "no such format";
}

TEST_F(HistoryTest, WritesAFileWithTheFinalState) {
  const std::string path = scratch.path("run.hrt");
  const DeviceAddress held = allocator.allocate(1_MiB);
  {
    History history({.file = path});
    history.attach(allocator);
    allocator.free(allocator.allocate(3_MiB));
    const memory::PhaseScope phase(memory::Phase::kBackward);
    ASSERT_TRUE(history.stop());
    allocator.free(allocator.allocate(3_MiB));  // after it
  }
  std::string note;
  const auto read = parse_hrt(read_file(path), &note);
  ASSERT_TRUE(read) << to_string(read.error());
  EXPECT_EQ(note, "");
  EXPECT_EQ(read->event_count(), 4U);
  EXPECT_EQ(read->segments.size(), 2U);
  EXPECT_EQ(read->annotations.size(), 1U);
  EXPECT_EQ(read->settings_string(), "max_split_size_mb:64");
  allocator.free(held);
}

TEST_F(HistoryTest, TwoDevicesHaveTwoNumbers) {
  const auto other_device = device::MetaDevice::create({.capacity_bytes = 1_GiB});
  memory::CachingAllocator other(*other_device);
  History history;
  history.attach(allocator);
  history.attach(other);
  other.free(other.allocate(1));
  const Trace trace = history.snapshot();
  ASSERT_EQ(trace.devices.size(), 2U);
  EXPECT_EQ(trace.devices[0].device, 0);
  EXPECT_EQ(trace.devices[1].device, 1);
  EXPECT_EQ(trace.devices[1].events.size(), 4U);
  ASSERT_TRUE(history.stop());
}

// --- Out of memory -------------------------------------------------------------------------------

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  return names;
}

TEST_F(HistoryTest, OutOfMemoryLeavesASnapshotAndNeverReplacesOne) {
  const std::string number = std::to_string(::getpid());
  History history({.out_of_memory_path = scratch.path("oom-%p.hrt")});
  history.attach(allocator);
  allocator.free(allocator.allocate(1_MiB));
  EXPECT_THROW((void)allocator.allocate(1_GiB), memory::OutOfMemory);
  EXPECT_FALSE(allocator.try_allocate(2_GiB));
  EXPECT_EQ(files_in(scratch.path("")),
            (std::vector<std::string>{"oom-" + number + "-1.hrt", "oom-" + number + ".hrt"}));
  const Trace trace = parse_hrt(read_file(scratch.path("oom-" + number + ".hrt"))).value();
  const Events& events = trace.devices.at(0).events;
  EXPECT_EQ(events.action(events.size() - 1), Action::kOutOfMemory);
}

TEST_F(HistoryTest, TheEnvironmentAsksForASnapshot) {
  ::setenv("HEADROOM_OOM_SNAPSHOT", scratch.path("oom.hrt").c_str(), 1);
  History history;
  ::unsetenv("HEADROOM_OOM_SNAPSHOT");
  history.attach(allocator);
  EXPECT_THROW((void)allocator.allocate(1_GiB), memory::OutOfMemory);
  EXPECT_EQ(files_in(scratch.path("")), std::vector<std::string>{"oom.hrt"});
}

TEST_F(HistoryTest, ASnapshotThatCannotBeWrittenDoesNotHideTheFailure) {
  History history({.out_of_memory_path = scratch.path("no/such/folder/oom.hrt")});
  history.attach(allocator);
  ::testing::internal::CaptureStderr();
  EXPECT_THROW((void)allocator.allocate(1_GiB), memory::OutOfMemory);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("no snapshot"));
}

// --- The process's own allocators ----------------------------------------------------------------

TEST_F(HistoryTest, TheProcessRecordsAllocatorsThereAreAndThoseToCome) {
  ::setenv("HEADROOM_CPU_DEVICES", "2", 1);  // nothing in this program has asked for devices yet
  EXPECT_FALSE(is_recording());
  const DeviceAddress before = headroom::allocator("cpu:0").allocate(2_MiB);
  EXPECT_EQ(headroom::snapshot().event_count(), 0U);
  EXPECT_FALSE(headroom::snapshot().segments.empty());

  record_memory_history();
  EXPECT_TRUE(is_recording());
  headroom::allocator("cpu:0").free(before);
  headroom::allocator("cpu:1").free(headroom::allocator("cpu:1").allocate(1));
  const Trace trace = headroom::snapshot();
  ASSERT_EQ(trace.devices.size(), 2U);
  EXPECT_EQ(trace.devices[0].events.size(), 2U);
  EXPECT_EQ(trace.devices[1].events.size(), 4U);

  const std::string path = scratch.path("snapshot.hrt");
  dump_snapshot(path);
  EXPECT_EQ(parse_hrt(read_file(path)).value().event_count(), 6U);
  EXPECT_THROW(dump_snapshot(path), Error);
  stop_recording();
  EXPECT_FALSE(is_recording());
  EXPECT_THROW(record_memory_history({.file = scratch.path("no/folder/run.hrt")}), Error);
  EXPECT_FALSE(is_recording());
}

}  // namespace
}  // namespace headroom::trace
