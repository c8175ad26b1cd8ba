// PyTorch's plug-in and record_stream (#21), on cpu devices, whose streams are threads.
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/device.h"
#include "headroom/device/registry.h"
#include "headroom/memory/allocator_choice.h"
#include "headroom/memory/api.h"

#include "bindings/c/headroom.h"
#include "bindings/pytorch/plugin.h"
#include "tests/support/device_status.h"
#include "tests/support/stream_gate.h"

namespace headroom {
namespace {

using device::Call;
using device::Device;
using device::DeviceAddress;
using device::StreamId;
using headroom::testing::StreamGate;
using headroom::testing::worked;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Each kind of test has a device of its own: which streams a device has seen is part of the test.
constexpr int kShared = 0;
constexpr int kSingleStream = 1;
constexpr int kOther = 2;
constexpr int kLarge = 3;
constexpr int kUnused = 5;

Device& cpu(int index) {
  static const int done = setenv("HEADROOM_CPU_DEVICES", "6", 1);  // NOLINT(concurrency-mt-unsafe)
  EXPECT_EQ(done, 0);
  return *device::registry().find({.kind = device::DeviceKind::kCpu, .index = index}).value();
}

void* native(std::uintptr_t number) { return reinterpret_cast<void*>(number); }
DeviceAddress address_of(const void* block) { return reinterpret_cast<DeviceAddress>(block); }

// Each byte is its neighbour: quick, with a sanitizer too.
bool is_all(const std::vector<std::uint8_t>& bytes, std::uint8_t value) {
  return bytes.front() == value &&
         std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

class TorchPlugin : public ::testing::TestWithParam<std::size_t> {
 protected:
  static constexpr int kDevice = kShared;
  static constexpr std::uintptr_t kSide = 0x51de;

  void SetUp() override {
    side_ = device_.adopt_stream(kSide).value();
    headroom_torch_set_record_stream_is_registered(0);
  }
  void TearDown() override { EXPECT_TRUE(worked(device_.synchronize_stream(side_))); }

  // The plug-in sees a stream when something is allocated there.
  static void show(std::uintptr_t stream) {
    void* const block = headroom_torch_malloc(512, kDevice, native(stream));
    headroom_torch_free(block, 512, kDevice, native(stream));
  }

  // What the side stream reads of a block filled with 0x11, when the block was freed before and its
  // memory asked for again and filled with 0x22. The gate holds the stream meanwhile.
  std::uint8_t read_on_side(std::size_t bytes, bool is_recorded) {
    void* const block = headroom_torch_malloc(bytes, kDevice, nullptr);
    EXPECT_TRUE(worked(device_.fill(address_of(block), 0x11, bytes, StreamId::kDefault)));
    std::vector<std::uint8_t> read(bytes);
    StreamGate gate(device_, side_);
    EXPECT_TRUE(worked(device_.copy_to_host(read.data(), address_of(block), bytes, side_)));
    if (is_recorded) headroom_torch_record_stream(block, native(kSide));
    headroom_torch_free(block, bytes, kDevice, nullptr);

    void* const next = headroom_torch_malloc(bytes, kDevice, nullptr);
    EXPECT_TRUE(worked(device_.fill(address_of(next), 0x22, bytes, StreamId::kDefault)));
    gate.open();
    EXPECT_TRUE(worked(device_.synchronize_stream(side_)));
    headroom_torch_free(next, bytes, kDevice, nullptr);
    EXPECT_TRUE(is_all(read, read.front()));
    return read.front();
  }

  Device& device_ = cpu(kDevice);
  StreamId side_{};
};

// Slab blocks and one of half a page. Larger ones have pages that move, and the default stream,
// which runs inline, may then wait for the gate: they have a test of their own.
INSTANTIATE_TEST_SUITE_P(Bytes, TorchPlugin, ::testing::Values(512U, 64U << 10U, 1U << 20U));

TEST_P(TorchPlugin, ABlockThatWasRecordedWaitsForTheStream) {
  headroom_torch_set_record_stream_is_registered(1);
  EXPECT_EQ(read_on_side(GetParam(), true), 0x11);
}

TEST_P(TorchPlugin, WhereStreamsAreRecordedABlockWithoutARecordWaitsForNone) {
  headroom_torch_set_record_stream_is_registered(1);
  EXPECT_EQ(read_on_side(GetParam(), false), 0x22)
      << "the program's mistake, as with PyTorch's own";
}

TEST_P(TorchPlugin, WhereStreamsAreNotRecordedABlockWaitsForEveryStreamSeen) {
  show(kSide);
  EXPECT_EQ(read_on_side(GetParam(), false), 0x11);
}

TEST_P(TorchPlugin, ABlockOfAnotherStreamWaitsForTheDefaultStreamToo) {
  show(kSide);
  const std::uint64_t before = device_.calls(Call::kRecordEvent);
  void* const block = headroom_torch_malloc(GetParam(), kDevice, native(kSide));
  headroom_torch_free(block, GetParam(), kDevice, native(kSide));
  EXPECT_GT(device_.calls(Call::kRecordEvent), before);
}

TEST_P(TorchPlugin, TheFirstRecordShowsThatPyTorchTells) {
  show(kSide);
  EXPECT_EQ(read_on_side(GetParam(), true), 0x11);
  EXPECT_EQ(read_on_side(GetParam(), false), 0x22);
}

TEST_P(TorchPlugin, WhatWaitedIsUsedAgainOnceTheStreamsHavePassed) {
  show(kSide);
  headroom_allocator* const allocator = headroom_torch_allocator(kDevice);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(read_on_side(GetParam(), false), 0x11);
  headroom_empty_cache(allocator);
  headroom_stats stats{};
  stats.size = sizeof(stats);
  ASSERT_EQ(headroom_get_stats(allocator, &stats), HEADROOM_OK);
  EXPECT_EQ(stats.active, 0U);
  EXPECT_EQ(stats.reserved, 0U);
}

TEST_F(TorchPlugin, LargeBlocksWaitInEitherMode) {
  constexpr std::size_t kBytes = 8 << 20;
  constexpr std::uintptr_t kMain = 0x3a1;
  Device& device = cpu(kLarge);
  const StreamId main = device.adopt_stream(kMain).value();
  const StreamId side = device.adopt_stream(kSide).value();
  headroom_torch_free(
      headroom_torch_malloc(512, kLarge, native(kSide)), 512, kLarge, native(kSide));
  for (const int is_registered : {0, 1, 0, 1}) {
    headroom_torch_set_record_stream_is_registered(is_registered);
    void* const block = headroom_torch_malloc(kBytes, kLarge, native(kMain));
    EXPECT_TRUE(worked(device.fill(address_of(block), 0x11, kBytes, main)));
    EXPECT_TRUE(worked(device.synchronize_stream(main)));
    std::vector<std::uint8_t> read(kBytes);
    StreamGate gate(device, side);
    EXPECT_TRUE(worked(device.copy_to_host(read.data(), address_of(block), kBytes, side)));
    if (is_registered != 0) headroom_torch_record_stream(block, native(kSide));
    headroom_torch_free(block, kBytes, kLarge, native(kMain));
    void* const next = headroom_torch_malloc(kBytes, kLarge, native(kMain));
    EXPECT_NE(next, block);
    EXPECT_TRUE(worked(device.fill(address_of(next), 0x22, kBytes, main)));
    gate.open();
    EXPECT_TRUE(worked(device.synchronize_stream(side)));
    EXPECT_TRUE(worked(device.synchronize_stream(main)));
    EXPECT_TRUE(is_all(read, 0x11));
    headroom_torch_free(next, kBytes, kLarge, native(kMain));
  }
}

TEST_P(TorchPlugin, AProgramWithOneStreamPaysNothing) {
  Device& device = cpu(kSingleStream);
  void* const first = headroom_torch_malloc(GetParam(), kSingleStream, nullptr);
  headroom_torch_free(first, GetParam(), kSingleStream, nullptr);
  const std::uint64_t before = device.calls(Call::kRecordEvent);
  for (int i = 0; i < 10; ++i) {
    void* const block = headroom_torch_malloc(GetParam(), kSingleStream, nullptr);
    EXPECT_EQ(block, first) << "it was free at once";
    headroom_torch_free(block, GetParam(), kSingleStream, nullptr);
  }
  EXPECT_EQ(device.calls(Call::kRecordEvent), before);
}

TEST_P(TorchPlugin, TheDeviceOfABlockIsFoundByItsAddress) {
  headroom_torch_set_record_stream_is_registered(1);
  void* const here = headroom_torch_malloc(GetParam(), kDevice, nullptr);
  void* const there = headroom_torch_malloc(GetParam(), kOther, nullptr);
  const std::uint64_t here_before = device_.calls(Call::kRecordEvent);
  const std::uint64_t there_before = cpu(kOther).calls(Call::kRecordEvent);
  headroom_torch_record_stream(there, native(kSide));
  headroom_torch_free(here, GetParam(), kDevice, nullptr);
  headroom_torch_free(there, GetParam(), kOther, nullptr);
  EXPECT_EQ(device_.calls(Call::kRecordEvent), here_before);
  EXPECT_EQ(cpu(kOther).calls(Call::kRecordEvent), there_before + 1);
}

TEST_F(TorchPlugin, MemoryOfOthersIsLeftAlone) {
  ::testing::internal::CaptureStderr();
  int elsewhere = 0;
  headroom_torch_record_stream(&elsewhere, native(kSide));
  headroom_torch_record_stream(nullptr, native(kSide));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), IsEmpty());
}

TEST_F(TorchPlugin, ABlockFreedTwiceIsToldInEitherMode) {
  show(kSide);
  for (const int is_registered : {0, 1}) {
    headroom_torch_set_record_stream_is_registered(is_registered);
    void* const block = headroom_torch_malloc(1 << 20, kDevice, nullptr);
    headroom_torch_free(block, 1 << 20, kDevice, nullptr);
    ::testing::internal::CaptureStderr();
    headroom_torch_free(block, 1 << 20, kDevice, nullptr);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("headroom: "));
  }
}

// Threads with a stream each hand blocks to one another's streams without a record.
TEST_F(TorchPlugin, ManyThreadsReadWhatTheyWroteWithoutARecord) {
  constexpr std::uintptr_t kThreads = 4;
  constexpr std::size_t kBytes = 32 << 10;
  std::array<StreamId, kThreads> streams{};
  for (std::uintptr_t i = 0; i < kThreads; ++i) {
    show(kSide + i);
    streams[i] = device_.adopt_stream(kSide + i).value();
  }
  const auto work = [&](std::uintptr_t self) {
    const StreamId reader = streams[(self + 1) % kThreads];
    for (int round = 0; round < 200; ++round) {
      const auto value = static_cast<std::uint8_t>(self * 50 + static_cast<unsigned>(round) % 50);
      void* const block = headroom_torch_malloc(kBytes, kDevice, native(kSide + self));
      EXPECT_TRUE(worked(device_.fill(address_of(block), value, kBytes, streams[self])));
      const auto filled = device_.record_event(streams[self]).value();
      EXPECT_TRUE(worked(device_.wait_event(reader, filled)));
      std::vector<std::uint8_t> read(kBytes);
      EXPECT_TRUE(worked(device_.copy_to_host(read.data(), address_of(block), kBytes, reader)));
      headroom_torch_free(block, kBytes, kDevice, native(kSide + self));
      void* const next = headroom_torch_malloc(kBytes, kDevice, native(kSide + self));
      EXPECT_TRUE(worked(device_.fill(address_of(next), 0xff, kBytes, streams[self])));
      EXPECT_TRUE(worked(device_.synchronize_stream(reader)));
      EXPECT_TRUE(is_all(read, value));
      headroom_torch_free(next, kBytes, kDevice, native(kSide + self));
      EXPECT_TRUE(worked(device_.release_event(filled)));
    }
  };
  std::vector<std::thread> threads;
  for (std::uintptr_t i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
}

// --- The other hooks, and what Python asks (#26) -------------------------------------------------

// A device of its own: limits and peaks are part of the test.
constexpr int kHooks = 4;
constexpr headroom_torch_pool kGraph{7, 0};

std::string failure_of(std::size_t bytes) {
  try {
    (void)headroom_torch_malloc(bytes, kHooks, nullptr);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

class TorchPluginHooks : public ::testing::Test {
 protected:
  void SetUp() override { headroom_torch_set_record_stream_is_registered(1); }
  void TearDown() override {
    EXPECT_EQ(headroom_torch_set_limit(UINT64_MAX), 0);
    headroom_torch_memory_fraction(1, kHooks);
    headroom_torch_reset();
  }

  Device& device_ = cpu(kHooks);  // first: it says how many devices there are
  memory::Allocator& allocator_ = torch_plugin::allocator_of(kHooks);
};

TEST_F(TorchPluginHooks, OutOfMemoryThrowsPyTorchsSentenceAndTheReport) {
  ASSERT_EQ(headroom_torch_set_limit(64_MiB), 0);
  for (int i = 0; i < 100; ++i) {
    const std::string text = failure_of(3_GiB);
    EXPECT_THAT(text, ::testing::StartsWith("CUDA out of memory. Tried to allocate 3.00 GiB.\n\n"));
    EXPECT_THAT(text, HasSubstr("limit"));
  }
  void* const block = headroom_torch_malloc(1_MiB, kHooks, nullptr);
  EXPECT_NE(block, nullptr) << "after a hundred failures";
  headroom_torch_free(block, 1_MiB, kHooks, nullptr);
}

TEST_F(TorchPluginHooks, ADeviceThatIsNotThereIsAnErrorAndNoNullPointer) {
  EXPECT_THROW((void)headroom_torch_malloc(512, 63, nullptr), std::runtime_error);
  EXPECT_THROW((void)headroom_torch_malloc(512, 64, nullptr), std::runtime_error);
  EXPECT_THROW((void)headroom_torch_malloc(0, -1, nullptr), std::runtime_error);
  EXPECT_EQ(headroom_torch_malloc(0, kHooks, nullptr), nullptr) << "as PyTorch's own";
}

TEST_F(TorchPluginHooks, TheSmallerOfFractionAndLimitHolds) {
  const std::uint64_t total = device_.memory_info().value().total_bytes;
  ASSERT_EQ(headroom_torch_set_limit(64_MiB), 0);
  headroom_torch_memory_fraction(0.5, kHooks);
  EXPECT_EQ(allocator_.limit(), 64_MiB);
  headroom_torch_memory_fraction(1, kHooks);
  EXPECT_EQ(allocator_.limit(), 64_MiB) << "a fraction of 1 removes only a fraction";
  ASSERT_EQ(headroom_torch_set_limit(UINT64_MAX), 0);
  headroom_torch_memory_fraction(0.5, kHooks);
  EXPECT_NEAR(static_cast<double>(allocator_.limit().value()), static_cast<double>(total) / 2, 1);
  EXPECT_DOUBLE_EQ(headroom_torch_get_memory_fraction(kHooks), 0.5);
  EXPECT_THROW(headroom_torch_memory_fraction(1.5, kHooks), std::runtime_error);
}

TEST_F(TorchPluginHooks, ACaptureHasMemoryOfItsOwnOnTheStreamsOfItsFilter) {
  constexpr std::uintptr_t kCaptured = 0xca9;
  void* const before = headroom_torch_malloc(4_MiB, kHooks, native(kCaptured));
  headroom_torch_free(before, 4_MiB, kHooks, native(kCaptured));
  headroom_torch_begin_allocate_to_pool(
      kHooks, kGraph, [](void* stream) { return stream == native(kCaptured); });
  EXPECT_TRUE(allocator_.is_capturing());
  void* const inside = headroom_torch_malloc(4_MiB, kHooks, native(kCaptured));
  void* const beside = headroom_torch_malloc(4_MiB, kHooks, nullptr);
  const auto pool_of = [&](void* block) { return allocator_.locate(address_of(block))->pool; };
  EXPECT_EQ(pool_of(inside), (memory::PoolId{.graph = 7}));
  EXPECT_TRUE(pool_of(beside).is_default());
  headroom_torch_end_allocate_to_pool(kHooks, kGraph);
  EXPECT_FALSE(allocator_.is_capturing());
  headroom_torch_free(inside, 4_MiB, kHooks, native(kCaptured));
  headroom_torch_free(beside, 4_MiB, kHooks, nullptr);
  void* const after = headroom_torch_malloc(4_MiB, kHooks, native(kCaptured));
  EXPECT_NE(after, inside) << "the graph will write there again when it is replayed";
  EXPECT_TRUE(pool_of(after).is_default());
  headroom_torch_free(after, 4_MiB, kHooks, native(kCaptured));
  headroom_torch_release_pool(kHooks, kGraph);
  EXPECT_EQ(allocator_.pool_use_count({.graph = 7}), 0);
}

TEST_F(TorchPluginHooks, APoolThatCannotBeOpenedIsAnErrorAndLeavesNoCapture) {
  headroom_torch_begin_allocate_to_pool(kHooks, kGraph, {});
  EXPECT_THROW(headroom_torch_begin_allocate_to_pool(kHooks, kGraph, {}), std::runtime_error);
  headroom_torch_end_allocate_to_pool(kHooks, kGraph);
  EXPECT_FALSE(allocator_.is_capturing());
  EXPECT_THROW(headroom_torch_end_allocate_to_pool(kHooks, kGraph), std::runtime_error);
  EXPECT_FALSE(allocator_.is_capturing());
  headroom_torch_release_pool(kHooks, kGraph);
  ::testing::internal::CaptureStderr();
  headroom_torch_release_pool(kHooks, kGraph);  // told, where PyTorch's destructor cannot throw
  (void)::testing::internal::GetCapturedStderr();
}

TEST_F(TorchPluginHooks, AnAddressInsideABlockHasItsSegmentForABase) {
  auto* const block = static_cast<char*>(headroom_torch_malloc(3_MiB, kHooks, nullptr));
  std::size_t bytes = 0;
  auto* const base = static_cast<char*>(headroom_torch_base_alloc(block + 1_MiB, &bytes));
  EXPECT_LE(base, block);
  EXPECT_GE(base + bytes, block + 3_MiB);
  int elsewhere = 0;
  EXPECT_EQ(headroom_torch_base_alloc(&elsewhere, &bytes), &elsewhere);
  EXPECT_EQ(bytes, 0U);
  headroom_torch_free(block, 3_MiB, kHooks, nullptr);
}

TEST_F(TorchPluginHooks, EmptyCacheGivesBackWhatIsCached) {
  headroom_torch_free(headroom_torch_malloc(8_MiB, kHooks, nullptr), 8_MiB, kHooks, nullptr);
  EXPECT_GT(allocator_.statistics().reserved_bytes.all.current, 0);
  headroom_torch_reset();
  EXPECT_EQ(allocator_.statistics().reserved_bytes.all.current, 0);
}

TEST_F(TorchPluginHooks, AScopeHasItsPathAndThePeaksInsideIt) {
  void* const outer_block = headroom_torch_malloc(2_MiB, kHooks, nullptr);
  ASSERT_EQ(headroom_torch_scope_push("layer\"1", kHooks), 0);
  void* const block = headroom_torch_malloc(8_MiB, kHooks, nullptr);
  headroom_torch_free(block, 8_MiB, kHooks, nullptr);
  ASSERT_EQ(headroom_torch_scope_push("attention", kHooks), 0);
  EXPECT_THAT(
      headroom_torch_scope_pop(),
      ::testing::StartsWith(R"({"path": "layer\"1/attention", "peak_allocated": 2097152,)"));
  EXPECT_THAT(headroom_torch_scope_pop(),
              ::testing::StartsWith(R"({"path": "layer\"1", "peak_allocated": 10485760,)"));
  EXPECT_EQ(headroom_torch_scope_pop(), nullptr);
  EXPECT_THAT(headroom_torch_last_error(), HasSubstr("none open"));
  EXPECT_EQ(headroom_torch_scope_push("", kHooks), -1);
  headroom_torch_free(outer_block, 2_MiB, kHooks, nullptr);
}

TEST_F(TorchPluginHooks, QuestionsAboutADeviceThatWasNeverUsedMakeNoAllocator) {
  EXPECT_THAT(headroom_torch_stats(kUnused), HasSubstr("\"allocated_bytes.all.current\": 0"));
  EXPECT_DOUBLE_EQ(headroom_torch_get_memory_fraction(kUnused), 1);
  EXPECT_EQ(headroom_torch_reset_peaks(kUnused), 0);
  EXPECT_EQ(torch_plugin::opened_allocator(kUnused), nullptr);
  EXPECT_EQ(headroom_torch_report(63), nullptr);
  EXPECT_THAT(headroom_torch_last_error(), HasSubstr("cpu:63"));
}

TEST_F(TorchPluginHooks, ReportsAndStatisticsAreOfTheDevice) {
  void* const block = headroom_torch_malloc(8_MiB, kHooks, nullptr);
  EXPECT_THAT(headroom_torch_report(kHooks), HasSubstr("8MiB"));
  EXPECT_THAT(headroom_torch_account(kHooks), HasSubstr("\"live_bytes\": 8388608"));
  EXPECT_THAT(headroom_torch_stats(kHooks), HasSubstr("\"allocated_bytes.all.current\": 8388608"));
  headroom_torch_free(block, 8_MiB, kHooks, nullptr);
}

TEST_F(TorchPluginHooks, WhatIsIdleIsTrimmedWhenSomebodyLooks) {
  headroom_torch_free(headroom_torch_malloc(64_MiB, kHooks, nullptr), 64_MiB, kHooks, nullptr);
  ASSERT_EQ(headroom_torch_idle_trim(1, 0), 0);
  for (int i = 0; i < 1000 && allocator_.statistics().reserved_bytes.all.current > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    headroom_torch_tick();
  }
  EXPECT_EQ(allocator_.statistics().reserved_bytes.all.current, 0);
  ASSERT_EQ(headroom_torch_idle_trim(0, 0), 0);
  headroom_torch_free(headroom_torch_malloc(64_MiB, kHooks, nullptr), 64_MiB, kHooks, nullptr);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  headroom_torch_tick();
  EXPECT_GT(allocator_.statistics().reserved_bytes.all.current, 0) << "turned off again";
}

TEST_F(TorchPluginHooks, SettingsAreReadStrictly) {
  EXPECT_EQ(headroom_torch_configure("page_mb:nonsense"), -1);
  EXPECT_THAT(headroom_torch_last_error(), HasSubstr("page_mb"));
}

// --- The environment (#22) -----------------------------------------------------------------------

constexpr int kIsPaged = 10;
constexpr int kIsNative = 11;
constexpr int kFailed = 12;

// Ends the process with the allocator that the plug-in made as its exit code.
[[noreturn]] void exit_with_allocator(const std::map<std::string, std::string>& variables) {
  for (const char* name : {"HEADROOM_ALLOC_CONF",
                           "PYTORCH_CUDA_ALLOC_CONF",
                           "PYTORCH_HIP_ALLOC_CONF",
                           "PYTORCH_ALLOC_CONF"}) {
    unsetenv(name);  // NOLINT(concurrency-mt-unsafe)
  }
  for (const auto& [name, value] : variables) {
    setenv(name.c_str(), value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
  }
  (void)cpu(kShared);
  try {
    for (int i = 0; i < 3; ++i) (void)headroom_torch_malloc(512, kShared, nullptr);
    (void)headroom_torch_malloc(512, kOther, nullptr);
  } catch (const std::runtime_error& error) {
    std::fprintf(stderr, "headroom: %s\n", error.what());
    std::_Exit(kFailed);
  }
  const memory::AllocatorChoice choice = allocator("cpu:0").settings();
  std::_Exit(choice.paged && choice.config.memory_fraction == 1 ? kIsPaged : kIsNative);
}

struct EnvironmentRow {
  const char* name;
  std::map<std::string, std::string> variables;
  int exit_code;
  const char* stderr_pattern;
};

class TorchPluginDeathTest : public ::testing::TestWithParam<EnvironmentRow> {};

TEST_P(TorchPluginDeathTest, OnlyHeadroomsVariableChoosesTheAllocator) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_with_allocator(GetParam().variables),
              ::testing::ExitedWithCode(GetParam().exit_code),
              GetParam().stderr_pattern);
}

INSTANTIATE_TEST_SUITE_P(
    Environment,
    TorchPluginDeathTest,
    ::testing::Values(
        EnvironmentRow{"Nothing", {}, kIsPaged, "^$"},
        EnvironmentRow{"PyTorchsSettings",
                       {{"PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"}},
                       kIsPaged,
                       "^headroom: ignored: PYTORCH_CUDA_ALLOC_CONF \\(for PyTorch's own "
                       "allocator; HEADROOM_ALLOC_CONF sets headroom's\\)\n$"},
        EnvironmentRow{"TextThatPyTorchRefuses",
                       {{"PYTORCH_ALLOC_CONF", "nonsense"}, {"PYTORCH_HIP_ALLOC_CONF", ""}},
                       kIsPaged,
                       "^headroom: ignored: PYTORCH_HIP_ALLOC_CONF, PYTORCH_ALLOC_CONF [^\n]*\n$"},
        EnvironmentRow{"AFractionOfTheCard",
                       {{"PYTORCH_ALLOC_CONF", "per_process_memory_fraction:0.5"}},
                       kIsPaged,
                       "^headroom: ignored: PYTORCH_ALLOC_CONF [^\n]*\n$"},
        EnvironmentRow{"Ours", {{"HEADROOM_ALLOC_CONF", "backend:native"}}, kIsNative, "^$"},
        EnvironmentRow{"OursBesidePyTorchs",
                       {{"HEADROOM_ALLOC_CONF", "max_split_size_mb:64"},
                        {"PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"}},
                       kIsNative,
                       "^headroom: ignored: PYTORCH_CUDA_ALLOC_CONF [^\n]*\n$"},
        EnvironmentRow{"OursMisspelt",
                       {{"HEADROOM_ALLOC_CONF", "backend:page"}},
                       kFailed,
                       "^headroom: HEADROOM_ALLOC_CONF: backend: found 'page'"}),
    [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace headroom
