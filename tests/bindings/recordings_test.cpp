// Recordings that are always on, and the stacks that they keep (bindings/pytorch/bridge), on a cpu
// device. tests/python/stacks_test.py has Python's own stacks.
#include "bindings/pytorch/bridge/recordings.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"
#include "headroom/trace/file.h"

#include "bindings/pytorch/bridge/seen_stacks.h"
#include "tests/support/forked.h"
#include "tests/support/sanitized.h"
#include "tests/trace/scratch.h"

namespace headroom::recordings_test {
namespace {

using bridge::DeviceMemory;
using headroom::testing::has_ended_well;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using trace::testing::Scratch;

constexpr int kDevice = 3;
#if defined(__SANITIZE_THREAD__)
constexpr std::uint32_t kLess = 20;  // for a build that is as many times slower
#else
constexpr std::uint32_t kLess = 1;
#endif

DeviceMemory& recorded_memory() {
  static const bool is_set = [] {
    setenv("HEADROOM_CPU_DEVICES", "4", 1);        // NOLINT(concurrency-mt-unsafe)
    setenv("HEADROOM_CPU_CAPACITY", "256MiB", 1);  // NOLINT(concurrency-mt-unsafe)
    try {
      (void)bridge::configure({.device_kind = "cpu"});
    } catch (const Error&) {  // Another file of tests has done it.
      return true;
    }
    return true;
  }();
  EXPECT_TRUE(is_set);
  return bridge::device_memory(kDevice);
}

void take_and_give(std::size_t size) {
  void* const block = recorded_memory().allocate(size, 0, true);
  EXPECT_NE(block, nullptr);
  EXPECT_TRUE(bridge::free_block(block));
}

// What this thread is doing, as a program of two functions.
thread_local std::uint32_t t_line = 0;  // NOLINT(readability-identifier-naming)

std::uint32_t walk_test_stack() {
  if (t_line == 0) return 0;
  const std::vector<std::uint32_t> lines{
      bridge::intern_line({.name = "inner", .file = "train.py", .line = t_line}),
      bridge::intern_line({.name = "outer", .file = "train.py", .line = 7})};
  return bridge::intern_stack(lines);
}

class RecordingsTest : public ::testing::Test {
 protected:
  RecordingsTest() {
    (void)recorded_memory();
    bridge::set_stack_walker(&walk_test_stack);
  }
  ~RecordingsTest() override {
    bridge::record_stop(kDevice);
    bridge::set_stack_walker(nullptr);
    t_line = 0;
  }

  void start(std::uint64_t max_bytes = 16_MiB, bool has_stacks = true) {
    bridge::record_start(kDevice, path_, max_bytes, has_stacks);
  }
  [[nodiscard]] trace::Trace recorded() const {
    auto file = trace::read_trace(path_);
    EXPECT_TRUE(file) << to_string(file.error());
    return file ? std::move(file->trace) : trace::Trace();
  }
  // Of each allocation: the lines of its stack, innermost first.
  [[nodiscard]] static std::vector<std::vector<std::int64_t>> lines_of(const trace::Trace& trace) {
    std::vector<std::vector<std::int64_t>> all;
    const trace::Events& events = trace.devices.at(0).events;
    for (std::size_t i = 0; i < events.size(); ++i) {
      if (events.action(i) != trace::Action::kAlloc) continue;
      std::vector<std::int64_t>& lines = all.emplace_back();
      for (const std::uint32_t frame : trace.stacks.frame_ids(events.stack(i))) {
        lines.push_back(trace.stacks.frame(frame).line);
      }
    }
    return all;
  }
  [[nodiscard]] std::string refusal(int device, const std::string& path, std::uint64_t max_bytes) {
    try {
      bridge::record_start(device, path, max_bytes, true);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  }

  Scratch scratch_;
  const std::string path_ = scratch_.path("run.hrt");
};

TEST_F(RecordingsTest, KeepTheStacksOfAllocations) {
  start();
  EXPECT_TRUE(bridge::is_recording(kDevice));
  for (const std::uint32_t line : {5U, 0U, 6U, 5U}) {
    t_line = line;
    take_and_give(3_KiB);
  }
  bridge::record_stop(kDevice);
  EXPECT_FALSE(bridge::is_recording(kDevice));
  t_line = 9;
  take_and_give(3_KiB);
  const trace::Trace trace = recorded();
  EXPECT_EQ(trace.devices[0].device, kDevice);
  EXPECT_THAT(lines_of(trace),
              ElementsAre(ElementsAre(5, 7), ElementsAre(), ElementsAre(6, 7), ElementsAre(5, 7)));
  EXPECT_FALSE(trace.segments.empty()) << "the final state is missing";
}

TEST_F(RecordingsTest, StayWithinTheirSize) {
  start(1_MiB);
  std::uint64_t largest = 0;
  for (std::uint32_t i = 0; i < 300'000; ++i) {
    t_line = 1 + i % 1000;
    take_and_give(1 + (i * 7919) % 500'000);
    if (i % 5'000 == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      largest = std::max<std::uint64_t>(largest, std::filesystem::file_size(path_));
    }
  }
  bridge::record_stop(kDevice);
  EXPECT_LE(std::max<std::uint64_t>(largest, std::filesystem::file_size(path_)), 1_MiB);
  const trace::Trace trace = recorded();
  EXPECT_GT(trace.devices[0].events.size(), 10'000U);
  EXPECT_THAT(lines_of(trace).back(), ElementsAre(1000, 7));
}

TEST_F(RecordingsTest, BeginAndEndAThousandTimes) {
  for (std::uint32_t i = 1; i <= 1000 / kLess; ++i) {
    start(1_MiB);
    t_line = i;
    take_and_give(2_KiB);
    bridge::record_stop(kDevice);
    if (i % 25 == 0) {
      EXPECT_THAT(lines_of(recorded()), ElementsAre(ElementsAre(i, 7)));
    }
    std::filesystem::remove(path_);
  }
}

TEST_F(RecordingsTest, ThreadsKeepTheirOwnStacksWhileRecordingsComeAndGo) {
  std::atomic<bool> is_done{false};
  std::vector<std::thread> threads;
  for (std::uint32_t n = 1; n <= 3; ++n) {
    threads.emplace_back([n, &is_done] {
      t_line = n;
      while (!is_done) take_and_give(n * 1_KiB);
    });
  }
  for (int round = 0; round < 20; ++round) {
    start(1_MiB, round % 4 != 3);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    bridge::record_stop(kDevice);
    const trace::Trace trace = recorded();
    std::filesystem::remove(path_);
    const trace::Events& events = trace.devices.at(0).events;
    for (std::size_t i = 0; i < events.size(); ++i) {
      const auto frames = trace.stacks.frame_ids(events.stack(i));
      if (events.action(i) != trace::Action::kAlloc || frames.empty()) continue;
      ASSERT_EQ(static_cast<std::uint64_t>(trace.stacks.frame(frames[0]).line),
                events.size_bytes(i) / 1_KiB);
    }
  }
  is_done = true;
  for (std::thread& thread : threads) thread.join();
}

// Whoever walks stacks may run code of the program's, which asks the allocator for more.
TEST_F(RecordingsTest, AWalkerIsCalledWithoutALock) {
  bridge::set_stack_walker([]() -> std::uint32_t {
    if (t_line == 99) return 0;
    const std::uint32_t line = std::exchange(t_line, 99);
    take_and_give(1_KiB);
    (void)recorded_memory().stats();
    t_line = line;
    return walk_test_stack();
  });
  start();
  t_line = 4;
  take_and_give(8_KiB);
  bridge::record_stop(kDevice);
  EXPECT_THAT(lines_of(recorded()), ElementsAre(ElementsAre(), ElementsAre(4, 7)));
}

TEST_F(RecordingsTest, RefuseWithAReason) {
  start();
  EXPECT_THAT(refusal(kDevice, scratch_.path("other.hrt"), 16_MiB),
              AllOf(HasSubstr("device 3 is being recorded already, into"), HasSubstr("run.hrt")));
  bridge::record_stop(kDevice);
  bridge::record_stop(kDevice);
  EXPECT_THAT(refusal(kDevice, path_, 16_MiB), HasSubstr("run.hrt exists: remove it, or put %p"));
  EXPECT_THAT(refusal(kDevice, scratch_.path("no/such.hrt"), 16_MiB), HasSubstr("cannot create"));
  EXPECT_THAT(refusal(kDevice, scratch_.path("small.hrt"), 1000), HasSubstr("at least 1 MiB"));
  EXPECT_THAT(refusal(999, scratch_.path("none.hrt"), 16_MiB), HasSubstr("999"));
  EXPECT_FALSE(bridge::is_recording(kDevice));
}

TEST_F(RecordingsTest, EndWithOneLineWhereTheDiskIsFull) {
  const auto work = [](std::uint32_t rounds) {
    for (std::uint32_t i = 0; i < rounds; ++i) take_and_give(1 + (i * 7919) % 500'000);
  };
  work(5'000);  // the memory of a device on the processor is a file too
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{.rlim_cur = 200'000, .rlim_max = limit.rlim_max};
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);  // the write fails instead
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  ::testing::internal::CaptureStderr();
  start();
  work(200'000);
  bridge::record_stop(kDevice);
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  (void)std::signal(SIGXFSZ, old_handler);
  EXPECT_THAT(told, HasSubstr("headroom: the recording ends here: cannot write " + path_));
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
  EXPECT_GT(recorded().devices[0].events.size(), 100U) << "what was written stays";
  std::filesystem::remove(path_);
  start();
  bridge::record_stop(kDevice);
}

TEST_F(RecordingsTest, TheChildOfAForkLeavesTheFileAlone) {
  if (headroom::testing::kIsSanitized) {
    GTEST_SKIP()
        << "the sanitizer's own allocator does not survive a fork beside a thread that writes";
  }
  start();
  t_line = 5;
  take_and_give(1_KiB);
  const pid_t child = testing::fork_and([this] {
    const bool is_refused = recorded_memory().allocate(1_KiB, 0, true) == nullptr;
    const std::string why = refusal(kDevice, scratch_.path("child.hrt"), 16_MiB);
    bridge::record_stop(kDevice);
    return is_refused && why.find("fork") != std::string::npos ? 0 : 1;
  });
  EXPECT_TRUE(has_ended_well(child));
  take_and_give(1_KiB);
  bridge::record_stop(kDevice);
  EXPECT_FALSE(std::filesystem::exists(scratch_.path("child.hrt")));
  EXPECT_THAT(lines_of(recorded()), ElementsAre(ElementsAre(5, 7), ElementsAre(5, 7)));
}

TEST(SeenStacks, FindWhatWasAddedAndNothingElse) {
  bridge::SeenStacks seen;
  const auto words_of = [](std::uint64_t i) {
    return std::vector<std::uint64_t>(1 + i % 30, i * 16);
  };
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    const auto words = words_of(i);
    const std::uint64_t hash = bridge::SeenStacks::hash_of(words);
    ASSERT_EQ(seen.find(words, hash), bridge::SeenStacks::kUnknown);
    seen.add(words, hash, i);
  }
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    const auto words = words_of(i);
    ASSERT_EQ(seen.find(words, bridge::SeenStacks::hash_of(words)), i);
  }
  EXPECT_EQ(seen.size(), 20'000U);
  seen.clear();
  EXPECT_EQ(seen.find(words_of(3), bridge::SeenStacks::hash_of(words_of(3))),
            bridge::SeenStacks::kUnknown);
}

TEST(NamedStacks, EqualOnesHaveOneNumber) {
  const std::string name = "f";
  const std::uint32_t line = bridge::intern_line({.name = name, .file = "a.py", .line = 3});
  EXPECT_NE(line, 0U);
  EXPECT_EQ(bridge::intern_line({.name = "f", .file = "a.py", .line = 3}), line);
  const std::uint32_t other = bridge::intern_line({.name = "f", .file = "a.py", .line = 4});
  EXPECT_NE(other, line);
  const std::vector<std::uint32_t> one{line, other};
  const std::vector<std::uint32_t> turned{other, line};
  EXPECT_EQ(bridge::intern_stack(one), bridge::intern_stack(one));
  EXPECT_NE(bridge::intern_stack(one), bridge::intern_stack(turned));
}

}  // namespace
}  // namespace headroom::recordings_test
