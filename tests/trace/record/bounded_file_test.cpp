// A recording that may not exceed a size: what stays in its file, and what the file says of it.
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/memory/paged/paged_allocator.h"
#include "headroom/trace/hrt/hrt_reader.h"
#include "headroom/trace/record/file_recorder.h"

#include "tests/trace/scratch.h"

namespace headroom::trace {
namespace {

using ::testing::HasSubstr;
using testing::read_file;
using testing::Scratch;

Trace recorded(const std::string& path) {
  auto trace = parse_hrt(read_file(path));
  EXPECT_TRUE(trace) << to_string(trace.error());
  return trace ? std::move(*trace) : Trace();
}

// Blocks that a recording's events hold at its end, by address; says where an event makes no sense.
std::map<DeviceAddress, std::uint64_t> held_after(const Events& events) {
  std::map<DeviceAddress, std::uint64_t> held;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const DeviceAddress address = events.address(i);
    if (events.action(i) == Action::kAlloc) {
      EXPECT_TRUE(held.emplace(address, events.size_bytes(i)).second) << i << " is held already";
    } else if (events.action(i) == Action::kFreeCompleted) {
      EXPECT_EQ(held.erase(address), 1U) << i << " is not held";
    }
  }
  return held;
}

// Bytes of the device that a recording's events hold at its end.
std::int64_t reserved_after(const Events& events) {
  std::int64_t reserved = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const auto size = static_cast<std::int64_t>(events.size_bytes(i));
    const Action action = events.action(i);
    if (action == Action::kSegmentAlloc || action == Action::kSegmentMap) reserved += size;
    if (action == Action::kSegmentFree || action == Action::kSegmentUnmap) reserved -= size;
  }
  return reserved;
}

class BoundedFileTest : public ::testing::Test {
 protected:
  // Random blocks that come and go beside one that stays.
  void run(memory::Allocator& allocator, FileRecorder& recorder, int rounds) {
    if (kept_.empty()) kept_.push_back(allocator.allocate(77_MiB));
    for (int i = 0; i < rounds; ++i) {
      const std::size_t slot = random_() % 400;
      if (blocks_.size() <= slot) blocks_.resize(slot + 1, 0);
      if (blocks_[slot] != 0) allocator.free(blocks_[slot]);
      blocks_[slot] = allocator.allocate(1 + random_() % 6'000'000);
      if (i % 97 == 0) allocator.trim(1_MiB);
      if (i % 4'000 == 0) {
        recorder.flush();
        most_bytes_ = std::max(most_bytes_, size_on_disk());
      }
    }
    recorder.flush();
  }

  [[nodiscard]] std::uint64_t size_on_disk() const {
    std::uint64_t bytes = std::filesystem::file_size(path_);
    std::error_code none;
    const auto fresh = std::filesystem::file_size(path_ + ".new", none);
    return none ? bytes : bytes + fresh;
  }

  void holds_what_is_live(const memory::Allocator& allocator, const Events& events) {
    std::map<DeviceAddress, std::uint64_t> live;
    std::int64_t reserved = 0;
    for (const memory::SegmentInfo& segment : allocator.segments()) {
      reserved += static_cast<std::int64_t>(segment.size_bytes);
      for (const memory::BlockInfo& block : segment.blocks) {
        if (block.state == memory::BlockState::kAllocated) {
          live.emplace(block.address, block.requested_bytes);
        }
      }
    }
    EXPECT_EQ(held_after(events), live);
    EXPECT_EQ(reserved_after(events), reserved);
  }

  template <class Allocator>
  void stays_small_and_whole(int rounds) {
    const auto device = device::MetaDevice::create({.capacity_bytes = 8_GiB});
    Allocator allocator(*device);
    FileRecorder recorder({.path = path_, .max_bytes = 1_MiB});
    allocator.add_sink(recorder.channel({.device = 3}));
    run(allocator, recorder, rounds);
    allocator.remove_sink(recorder.channel({.device = 3}));
    EXPECT_EQ(recorder.dropped_events(), 0U);
    {
      const Trace running = recorded(path_);
      ASSERT_EQ(running.devices.size(), 1U);
      EXPECT_EQ(running.devices[0].device, 3);
      // The file was made anew, and is still all that happened to what is there.
      EXPECT_LT(running.devices[0].events.size(), static_cast<std::size_t>(rounds) * 2);
      EXPECT_GT(running.devices[0].events.size(), 10'000U);
      holds_what_is_live(allocator, running.devices[0].events);
    }
    ASSERT_TRUE(recorder.close({{{{.device = 3}, allocator.segments()}}}));
    EXPECT_LE(std::max(most_bytes_, size_on_disk()), 1_MiB);
    EXPECT_FALSE(std::filesystem::exists(path_ + ".new"));
    const Trace closed = recorded(path_);
    holds_what_is_live(allocator, closed.devices[0].events);
    EXPECT_FALSE(closed.segments.empty());
  }

  Scratch scratch_;
  const std::string path_ = scratch_.path("run.hrt");
  std::mt19937 random_{7};
  std::vector<memory::DeviceAddress> kept_;
  std::vector<memory::DeviceAddress> blocks_;
  std::uint64_t most_bytes_ = 0;
};

TEST_F(BoundedFileTest, OldestEventsMakeRoomAndLeaveWhatIsHeld) {
  stays_small_and_whole<memory::CachingAllocator>(100'000);
}

TEST_F(BoundedFileTest, PagesThatAreMappedAndUnmappedInPartsStayRight) {
  stays_small_and_whole<memory::PagedAllocator>(100'000);
}

TEST_F(BoundedFileTest, AFileThatIsNeverFullIsAsAnyOther) {
  const auto device = device::MetaDevice::create({.capacity_bytes = 8_GiB});
  memory::CachingAllocator allocator(*device);
  FileRecorder recorder({.path = path_, .max_bytes = 1_GiB});
  allocator.add_sink(recorder.channel({}));
  run(allocator, recorder, 2'000);
  ASSERT_TRUE(recorder.close());
  EXPECT_GT(recorded(path_).devices[0].events.size(), 5'000U);
}

TEST_F(BoundedFileTest, MarksThatMakeNoEventsAreBoundedToo) {
  FileRecorder recorder({.path = path_, .max_bytes = 1_MiB});
  for (int i = 0; i < 400'000; ++i) {
    recorder.mark("iteration", i % 2 == 0);
    if (i % 50 == 0) recorder.flush();
  }
  ASSERT_TRUE(recorder.close());
  EXPECT_LE(size_on_disk(), 1_MiB);
  const Trace trace = recorded(path_);
  EXPECT_GT(trace.annotations.size(), 1'000U);
  EXPECT_LT(trace.annotations.size(), 400'000U);
}

TEST_F(BoundedFileTest, ASizeThatIsTooSmallIsRefused) {
  EXPECT_THROW(FileRecorder({.path = path_, .max_bytes = 1_MiB - 1}), InvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(BoundedFileTest, WhatCannotBeMadeAnewEndsWithItsReasonAndStaysReadable) {
  const auto device = device::MetaDevice::create({.capacity_bytes = 8_GiB});
  memory::CachingAllocator allocator(*device);
  std::vector<std::string> told;
  FileRecorder recorder({.path = path_,
                         .max_bytes = 1_MiB,
                         .on_failure = [&told](const std::string& why) { told.push_back(why); }});
  std::filesystem::create_directory(path_ + ".new");
  allocator.add_sink(recorder.channel({}));
  run(allocator, recorder, 100'000);
  const auto closed = recorder.close();
  ASSERT_FALSE(closed);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_THAT(told[0], HasSubstr("cannot write " + path_ + ": cannot create " + path_ + ".new"));
  EXPECT_EQ(closed.error().message, told[0]);
  EXPECT_GT(recorded(path_).devices[0].events.size(), 10'000U);
  std::filesystem::remove(path_ + ".new");
}

// --- Stacks of somebody else ---------------------------------------------------------------------

// Stack n is n frames deep.
class Counting final : public StackSource {
 public:
  [[nodiscard]] std::uint32_t current() const noexcept override { return now; }
  [[nodiscard]] std::vector<NamedFrame> frames_of(std::uint32_t stack) const override {
    ++asked;
    std::vector<NamedFrame> frames{{.name = "step" + std::to_string(stack), .file = "train.py"}};
    for (std::uint32_t i = 1; i < depth(stack); ++i) {
      frames.push_back({.name = "f", .file = "model.py", .line = i});
    }
    return frames;
  }
  [[nodiscard]] static std::uint32_t depth(std::uint32_t stack) { return 1 + stack % 20; }

  std::uint32_t now = 0;
  mutable int asked = 0;
};

TEST_F(BoundedFileTest, NamedStacksComeBackWithWhatTookMemory) {
  const auto device = device::MetaDevice::create({.capacity_bytes = 1_GiB});
  memory::CachingAllocator allocator(*device);
  Counting stacks;
  FileRecorder recorder({.path = path_, .stack_source = &stacks});
  allocator.add_sink(recorder.channel({}));
  for (const std::uint32_t stack : {3U, 0U, 3U, 2U}) {
    stacks.now = stack;
    const auto block = allocator.allocate(3_MiB);
    stacks.now = 9;
    allocator.free(block);
  }
  ASSERT_TRUE(recorder.close());
  EXPECT_EQ(stacks.asked, 2) << "once for each stack";
  const Trace trace = recorded(path_);
  std::vector<std::size_t> depths;
  const Events& events = trace.devices[0].events;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const auto frames = trace.stacks.frame_ids(events.stack(i));
    if (events.action(i) != Action::kAlloc) continue;
    depths.push_back(frames.size());
    if (depths.size() != 1) continue;
    const Frame& innermost = trace.stacks.frame(frames[0]);
    EXPECT_EQ(trace.strings[innermost.name], "step3");
    EXPECT_EQ(trace.strings[innermost.file], "train.py");
    EXPECT_EQ(trace.stacks.frame(frames[2]).line, 2);
  }
  EXPECT_THAT(depths, ::testing::ElementsAre(4, 0, 4, 3));
}

TEST_F(BoundedFileTest, StacksWithoutEndLeaveRoomForEvents) {
  const auto device = device::MetaDevice::create({.capacity_bytes = 1_GiB});
  memory::CachingAllocator allocator(*device);
  Counting stacks;
  FileRecorder recorder({.path = path_, .stack_source = &stacks, .max_bytes = 1_MiB});
  allocator.add_sink(recorder.channel({}));
  for (std::uint32_t i = 1; i <= 100'000; ++i) {
    stacks.now = i;
    allocator.free(allocator.allocate(512 * (1 + i % 700)));
    if (i % 8'000 != 0) continue;
    recorder.flush();
    most_bytes_ = std::max(most_bytes_, size_on_disk());
  }
  ASSERT_TRUE(recorder.close({{{{}, allocator.segments()}}}));
  EXPECT_LE(std::max(most_bytes_, size_on_disk()), 1_MiB);
  const Trace trace = recorded(path_);
  EXPECT_GT(trace.stacks.size(), 1'000U);
  EXPECT_LT(trace.stacks.size(), 50'000U);
}

}  // namespace
}  // namespace headroom::trace
