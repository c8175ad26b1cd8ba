// Native stacks: who allocated, by function and line. Compiled with debug information.
#include <array>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/cpu/cpu_device.h"
#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/trace/hrt/hrt_reader.h"
#include "headroom/trace/record/file_recorder.h"
#include "headroom/trace/record/internal/stack_interner.h"
#include "headroom/trace/record/internal/symboliser.h"
#include "headroom/trace/record/ring_recorder.h"
#include "headroom/trace/record/symbols.h"

#include "tests/trace/scratch.h"

// Outside our namespaces: frames of the library itself are left out of stacks.
namespace model {

using headroom::memory::CachingAllocator;

unsigned line_of_the_large_allocation = 0;

__attribute__((noinline)) std::uint64_t make_activations(CachingAllocator& allocator) {
  line_of_the_large_allocation = __LINE__ + 1;
  const std::uint64_t address = allocator.allocate(headroom::operator""_MiB(32));
  return address + 0 * line_of_the_large_allocation;
}

__attribute__((noinline)) std::uint64_t make_weights(CachingAllocator& allocator) {
  const std::uint64_t address = allocator.allocate(4096);
  return address + 0 * line_of_the_large_allocation;
}

// In an optimised build a call at the end would take the place of its caller's frame.
__attribute__((noinline)) void step(CachingAllocator& allocator) {
  const std::uint64_t weights = make_weights(allocator);
  const std::uint64_t activations = make_activations(allocator);
  allocator.free(activations);
  allocator.free(weights);
  line_of_the_large_allocation += 0;
}

}  // namespace model

namespace headroom::trace {
namespace {

using ::testing::HasSubstr;
using testing::read_file;
using testing::Scratch;

struct Seen {
  std::string function;
  std::string file;
  std::int64_t line = 0;
};

std::vector<Seen> frames_of(const Trace& trace, StackId stack) {
  std::vector<Seen> out;
  for (const std::uint32_t id : trace.stacks.frame_ids(stack)) {
    const Frame& frame = trace.stacks.frame(id);
    out.push_back({std::string(trace.strings[frame.name]),
                   std::string(trace.strings[frame.file]),
                   frame.line});
  }
  return out;
}

// The stack of the largest allocation.
std::vector<Seen> largest(const Trace& trace) {
  const Events& events = trace.devices.at(0).events;
  std::size_t at = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (events.action(i) != Action::kAlloc) continue;
    if (events.action(at) != Action::kAlloc || events.size_bytes(i) > events.size_bytes(at)) at = i;
  }
  return frames_of(trace, events.stack(at));
}

void expect_large_allocation(const std::vector<Seen>& frames) {
  ASSERT_GE(frames.size(), 3U);
  EXPECT_THAT(frames[0].function, HasSubstr("model::make_activations"));
  EXPECT_THAT(frames[0].file, HasSubstr("stack_test.cpp"));
  EXPECT_EQ(frames[0].line, model::line_of_the_large_allocation);
  EXPECT_THAT(frames[1].function, HasSubstr("model::step"));
}

class Stacks : public ::testing::Test {
 protected:
  std::unique_ptr<device::CpuDevice> device =
      device::CpuDevice::create({.capacity_bytes = 256_MiB});
  memory::CachingAllocator allocator{*device};
  Scratch scratch;
};

TEST_F(Stacks, NameTheFunctionAndTheLineOfTheLargestAllocation) {
#if !defined(HEADROOM_TEST_HAS_LIBDW)
  GTEST_SKIP() << "built without libdw";
#endif
  RingRecorder ring({.stacks = {.mode = StackMode::kOnAllocation}});
  allocator.add_sink(ring);
  model::step(allocator);
  expect_large_allocation(largest(ring.snapshot()));
}

TEST_F(Stacks, AreTheSameByTheUnwinder) {
#if !defined(HEADROOM_TEST_HAS_LIBDW)
  GTEST_SKIP() << "built without libdw";
#endif
  RingRecorder ring(
      {.stacks = {.mode = StackMode::kOnAllocation, .method = StackMethod::kUnwinder}});
  allocator.add_sink(ring);
  model::step(allocator);
  expect_large_allocation(largest(ring.snapshot()));
}

TEST_F(Stacks, OfAFileAreNamedWhenItIsClosed) {
#if !defined(HEADROOM_TEST_HAS_LIBDW)
  GTEST_SKIP() << "built without libdw";
#endif
  const std::string path = scratch.path("run.hrt");
  FileRecorder recorder({.path = path, .stacks = {.mode = StackMode::kOnAll}});
  allocator.add_sink(recorder.channel({}));
  model::step(allocator);
  allocator.remove_sink(recorder.channel({}));
  ASSERT_TRUE(recorder.close());
  const auto read = parse_hrt(read_file(path));
  ASSERT_TRUE(read) << to_string(read.error());
  expect_large_allocation(largest(*read));
  for (std::size_t i = 0; i < read->devices[0].events.size(); ++i) {
    EXPECT_NE(read->devices[0].events.stack(i), 0U) << "frees have stacks too";
  }
}

TEST_F(Stacks, OfAFileThatWasNeverClosedAreNamedWhenRead) {
#if !defined(HEADROOM_TEST_HAS_LIBDW)
  GTEST_SKIP() << "built without libdw";
#endif
  const std::string path = scratch.path("run.hrt");
  FileRecorder recorder({.path = path, .stacks = {.mode = StackMode::kOnAllocation}});
  allocator.add_sink(recorder.channel({}));
  model::step(allocator);
  allocator.remove_sink(recorder.channel({}));
  recorder.flush();
  auto read = parse_hrt(read_file(path));
  ASSERT_TRUE(read) << to_string(read.error());
  const auto raw = largest(*read);
  ASSERT_FALSE(raw.empty());
  EXPECT_THAT(raw[0].function, ::testing::MatchesRegex(".*tests\\+0x[0-9a-f]+"));
  EXPECT_GT(symbolise(*read), 0U);
  expect_large_allocation(largest(*read));
}

TEST_F(Stacks, StopAtTheirDepth) {
  RingRecorder ring({.stacks = {.mode = StackMode::kOnAllocation, .depth = 3, .symbolise = false}});
  allocator.add_sink(ring);
  model::step(allocator);
  EXPECT_EQ(largest(ring.snapshot()).size(), 3U);
}

TEST_F(Stacks, AreKeptWhereTheModeSays) {
  RingRecorder ring({.stacks = {.mode = StackMode::kOnAllocation, .symbolise = false}});
  allocator.add_sink(ring);
  model::step(allocator);
  const Trace trace = ring.snapshot();
  const Events& events = trace.devices[0].events;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const bool is_free =
        events.action(i) == Action::kFreeRequested || events.action(i) == Action::kFreeCompleted;
    EXPECT_EQ(events.stack(i) == 0, is_free) << i;
  }
}

// A recording read where its modules are others keeps what it has.
TEST_F(Stacks, OfAnotherBuildStayAsTheyAre) {
  internal::Symboliser symboliser;
  EXPECT_TRUE(symboliser.find({.path = "/proc/self/exe", .build_id = "00", .offset = 1}).empty());
  EXPECT_TRUE(symboliser.find({.path = "/no/such/file", .offset = 1}).empty());
  EXPECT_TRUE(symboliser.find({.path = "/dev/null", .offset = 1}).empty());
}

TEST(StackInterner, GivesOneNumberToOneStack) {
  internal::StackInterner interner;
  const auto intern = [&interner](std::span<const std::uint64_t> stack) {
    const std::uint64_t hash = internal::StackInterner::hash_of(stack);
    const std::uint32_t known = interner.find(stack, hash);
    return known != 0 ? known : interner.add(stack, hash);
  };
  std::vector<std::vector<std::uint64_t>> stacks;
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    stacks.push_back(std::vector<std::uint64_t>(i % 21, i));
    if (i % 21 != 0) stacks.back().back() = 7;
  }
  std::vector<std::uint32_t> ids;
  for (const auto& stack : stacks) ids.push_back(intern(stack));
  for (std::size_t i = 0; i < stacks.size(); ++i) {
    EXPECT_EQ(intern(stacks[i]), ids[i]);
    EXPECT_TRUE(std::ranges::equal(interner[ids[i]], stacks[i]));
  }
  // The same hash, another stack.
  const std::array<std::uint64_t, 2> a{1, 2};
  const std::array<std::uint64_t, 2> b{1, 3};
  const std::uint32_t first = interner.add(a, 42);
  EXPECT_EQ(interner.find(b, 42), 0U);
  EXPECT_EQ(interner.find(a, 42), first);
}

}  // namespace
}  // namespace headroom::trace
