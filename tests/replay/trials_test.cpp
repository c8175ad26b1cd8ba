// What the search for settings is made of: jobs in order, and what a program takes at least.
#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/replay/internal/halves.h"
#include "headroom/replay/internal/in_order.h"
#include "headroom/replay/internal/live_floor.h"
#include "headroom/replay/player.h"

#include "tests/replay/program_of.h"
#include "tests/replay/traffic.h"
#include "tests/support/seed.h"

namespace headroom::replay::internal {
namespace {

using ::testing::ElementsAre;

using headroom::testing::seed_text;
using headroom::testing::test_seed;

// --- Jobs in order -------------------------------------------------------------------------------

std::vector<std::string> sequence_of(std::size_t count, std::size_t ahead, int threads) {
  std::vector<std::string> out;
  run_in_order({.count = count,
                .ahead = ahead,
                .begin = [&](std::size_t i) { out.push_back("begin " + std::to_string(i)); },
                // The earlier ones take longer.
                .work =
                    [&](std::size_t i) {
                      std::this_thread::sleep_for(std::chrono::microseconds(200 * (count - i)));
                    },
                .end = [&](std::size_t i) { out.push_back("end " + std::to_string(i)); },
                .watch = {}},
               threads);
  return out;
}

TEST(RunInOrder, TheSequenceIsOneWhateverTheThreads) {
  EXPECT_THAT(
      sequence_of(4, 2, 1),
      ElementsAre("begin 0", "begin 1", "end 0", "begin 2", "end 1", "begin 3", "end 2", "end 3"));
  for (const std::size_t ahead : {1U, 3U, 16U}) {
    const auto one = sequence_of(20, ahead, 1);
    EXPECT_EQ(one.size(), 40U);
    for (const int threads : {2, 5, 32}) EXPECT_EQ(sequence_of(20, ahead, threads), one);
  }
}

TEST(RunInOrder, EveryJobIsWorkedOnOnceBetweenItsBeginAndItsEnd) {
  constexpr std::size_t kCount = 200;
  std::array<std::atomic<int>, kCount> state{};
  run_in_order({.count = kCount,
                .ahead = 7,
                .begin = [&](std::size_t i) { EXPECT_EQ(state[i]++, 0); },
                .work = [&](std::size_t i) { EXPECT_EQ(state[i]++, 1); },
                .end = [&](std::size_t i) { EXPECT_EQ(state[i]++, 2); },
                .watch = {}},
               4);
  for (const auto& one : state) EXPECT_EQ(one, 3);
}

TEST(RunInOrder, NoJobsAreNoWork) { EXPECT_TRUE(sequence_of(0, 4, 3).empty()); }

TEST(RunInOrder, ManyAreAtWorkAtOnce) {
  std::mutex mutex;
  int at_work = 0;
  int most = 0;
  const auto count = [&](int change) {
    const std::scoped_lock lock(mutex);
    at_work += change;
    most = std::max(most, at_work);
  };
  const auto work = [&](std::size_t /*job*/) {
    count(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    count(-1);
  };
  const auto nothing = [](std::size_t /*job*/) {};
  run_in_order(
      {.count = 12, .ahead = 3, .begin = nothing, .work = work, .end = nothing, .watch = {}}, 8);
  EXPECT_EQ(most, 3);
}

TEST(RunInOrder, AnErrorEndsItAndIsThrown) {
  for (const int threads : {1, 4}) {
    std::atomic<std::size_t> begun = 0;
    const auto run = [&] {
      run_in_order({.count = 1000,
                    .ahead = 4,
                    .begin = [&](std::size_t) { ++begun; },
                    .work =
                        [](std::size_t i) {
                          if (i == 10) throw std::runtime_error("ten");
                        },
                    .end = [](std::size_t) {},
                    .watch = {}},
                   threads);
    };
    EXPECT_THROW(run(), std::runtime_error);
    EXPECT_LT(begun, 30U);
  }
}

TEST(RunInOrder, TheCallersThreadWatches) {
  int looks = 0;
  const auto caller = std::this_thread::get_id();
  const auto nothing = [](std::size_t /*job*/) {};
  run_in_order(
      {.count = 50,
       .ahead = 4,
       .begin = nothing,
       .work = [](std::size_t) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); },
       .end = nothing,
       .watch =
           [&] {
             EXPECT_EQ(std::this_thread::get_id(), caller);
             ++looks;
           }},
      3);
  EXPECT_GT(looks, 0);
}

// --- The floor -----------------------------------------------------------------------------------

memory::AllocatorConfig random_config(std::mt19937& random) {
  memory::AllocatorConfig config;
  for (std::uint64_t& one : config.roundup_power2_divisions) one = (1U << random() % 7) & ~1U;
  config.expandable_segments = random() % 2 == 0;
  if (random() % 2 == 0) config.max_split_bytes = (32ULL << random() % 6) * 1_MiB;
  if (random() % 3 == 0) config.large_segment_bytes = (32ULL << random() % 5) * 1_MiB;
  return config;
}

TEST(LiveFloor, NothingTakesLess) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed_text(seed));
  std::mt19937 random(seed);
  testing::Traffic graphs(seed);
  graphs.sample_graphs(30, 3e5, 0.7);
  testing::Traffic lengths(seed + 1);
  lengths.vary_lengths(6, 4, 512);
  const std::array<const Program*, 4> programs{&graphs.program(),
                                               &lengths.program(),
                                               &program_of("streams"),
                                               &program_of("resnet50_gc_tight")};
  for (const Program* program : programs) {
    LiveFloor floor(*program);
    const std::unique_ptr<Halves> halves = Halves::split(*program);
    for (int i = 0; i < 25; ++i) {
      ReplayOptions options = with_settings(*program, random_config(random));
      options.limit_bytes.reset();
      options.config.memory_fraction = 1;
      options.outside_bytes = 0;
      const ReplayResult result = replay::replay(*program, options);
      EXPECT_LE(floor.bytes_under(options.config), result.peak_reserved)
          << to_string(options.config);
      if (halves == nullptr) continue;
      EXPECT_LE(floor.bytes_under(options.config), halves->least_reserved(options));
      EXPECT_LE(halves->least_reserved(options), result.peak_reserved) << to_string(options.config);
    }
  }
}

TEST(LiveFloor, IsWhatIsLiveAsItIsRounded) {
  testing::Traffic traffic(3);
  traffic.sample_graphs(10, 1e5, 0.5);
  const Program& program = traffic.program();
  LiveFloor floor(program);
  const std::uint64_t factory = floor.bytes_under({});
  EXPECT_GE(factory, program.peak_live);
  EXPECT_LE(factory, program.peak_live + 512 * program.slot_count);
  memory::AllocatorConfig coarse;
  coarse.roundup_power2_divisions.fill(2);
  EXPECT_GT(floor.bytes_under(coarse), factory + factory / 50);
  EXPECT_EQ(floor.bytes_under({}), factory);
}

TEST(LiveFloor, IsNoneWhereTheRecordingStartsInTheMiddle) {
  const Program& program = program_of("gpt2_partial");
  ASSERT_FALSE(program.is_whole());
  EXPECT_EQ(LiveFloor(program).bytes_under({}), 0U);
}

}  // namespace
}  // namespace headroom::replay::internal
