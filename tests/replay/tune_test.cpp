// The search for settings, on recordings of PyTorch and on what can be known without one.
#include "headroom/replay/tune.h"

#include <array>
#include <map>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/error.h"
#include "headroom/replay/internal/tune_space.h"

#include "tests/replay/program_of.h"
#include "tests/support/seed.h"
#include "tests/trace/samples.h"

namespace headroom::replay {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using headroom::testing::seed_text;
using headroom::testing::test_seed;

TuneResult tune_one(const std::string& name, const TuneOptions& options = {}) {
  const std::array programs{&program_of(name)};
  return tune(programs, options);
}

memory::AllocatorConfig read(const std::string& conf, memory::PyTorchVersion version) {
  const auto parsed = memory::parse_config(conf, {.version = version});
  EXPECT_TRUE(parsed) << conf << ": " << parsed.error();
  return parsed ? parsed->config : memory::AllocatorConfig{};
}

std::uint64_t peak_under(const std::string& name, const std::string& conf) {
  const Program& program = program_of(name);
  return replay_bounds(program, with_settings(program, read(conf, program.version)))
      .peak_reserved_high;
}

TEST(TuneSpace, ListsOfDivisionsReadBackInEveryVersion) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed_text(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    std::array<std::uint32_t, 16> divisions{};
    std::uint32_t value = 0;
    for (std::uint32_t& one : divisions) {
      if (random() % 4 == 0) value = (1U << random() % 5) & ~1U;
      one = value;
    }
    if (divisions == std::array<std::uint32_t, 16>{}) continue;
    for (const auto version : {memory::kPyTorch29, memory::kPyTorch210, memory::kPyTorch213}) {
      const std::string text =
          "roundup_power2_divisions:" + internal::divisions_text(divisions, version);
      const auto config = read(text, version);
      for (std::size_t i = 0; i < divisions.size(); ++i) {
        EXPECT_EQ(config.roundup_power2_divisions[i], divisions[i]) << text << " entry " << i;
      }
    }
  }
}

TEST(TuneSpace, WritesListsAsShortAsTheyGo) {
  std::array<std::uint32_t, 16> divisions{};
  std::fill(divisions.begin() + 5, divisions.end(), 2U);
  EXPECT_EQ(internal::divisions_text(divisions, memory::kPyTorch210), "[16:0,>:2]");
  EXPECT_EQ(internal::divisions_text(divisions, memory::kPyTorch29), "[16:0,32:2,>:2]");
  divisions.fill(8);
  EXPECT_EQ(internal::divisions_text(divisions, memory::kPyTorch29), "8");
}

TEST(Tune, FindsALittleMoreThanExpandableSegments) {
  const TuneResult result = tune_one("gpt2_varlen");
  EXPECT_EQ(result.current.conf, "");
  EXPECT_EQ(result.current.peak_reserved, 21'109'932'032U);  // as PyTorch measured
  EXPECT_LE(result.best.peak_reserved, peak_under("gpt2_varlen", "expandable_segments:True"));
  EXPECT_TRUE(result.best.fits);
  EXPECT_FALSE(result.is_current_best());
  EXPECT_EQ(result.best.conf, result.candidates.front().conf);
  EXPECT_EQ(peak_under("gpt2_varlen", result.best.conf), result.best.peak_reserved_high);
}

TEST(Tune, FindsASettingForThoseWithoutExpandableSegments) {
  const TuneResult result = tune_one("gpt2_varlen", {.without = {"expandable_segments"}});
  EXPECT_LE(result.best.peak_reserved, 14'200'000'000U);
  for (const Candidate& one : result.candidates) {
    EXPECT_THAT(one.conf, Not(HasSubstr("expandable_segments")));
  }
}

TEST(Tune, LeavesAloneWhatIsGoodAlready) {
  const TuneResult result = tune_one("seed_deepnet");
  EXPECT_TRUE(result.is_current_best());
  EXPECT_EQ(result.best.conf, "");
  EXPECT_EQ(result.saved_bytes(), 0U);
  EXPECT_EQ(result.current.peak_reserved, 283'115'520U);
}

TEST(Tune, TheAnswerDoesNotDependOnThreads) {
  const TuneResult one = tune_one("streams", {.threads = 1});
  const TuneResult many = tune_one("streams", {.threads = 5});
  EXPECT_EQ(one.tried, many.tried);
  ASSERT_EQ(one.candidates.size(), many.candidates.size());
  for (std::size_t i = 0; i < one.candidates.size(); ++i) {
    EXPECT_EQ(one.candidates[i].conf, many.candidates[i].conf);
    EXPECT_EQ(one.candidates[i].peak_reserved, many.candidates[i].peak_reserved);
  }
}

TEST(Tune, TheBestComesFirstAndEverySettingIsOneThatItsVersionReads) {
  for (const auto version : {memory::kPyTorch29, memory::kPyTorch210, memory::kPyTorch213}) {
    const TuneResult result = tune_one("streams", {.version = version});
    for (std::size_t i = 0; i < result.candidates.size(); ++i) {
      const Candidate& one = result.candidates[i];
      EXPECT_EQ(to_string(read(one.conf, version)), to_string(one.config)) << one.conf;
      if (i > 0) {
        EXPECT_FALSE(is_better(one, result.candidates[i - 1])) << one.conf;
      }
      if (version < memory::kPyTorch211) {
        EXPECT_THAT(one.conf, Not(HasSubstr("large_segment_size_mb")));
      }
    }
  }
}

TEST(Tune, FitsALimitWhereTheRecordedSettingsDoNot) {
  const TuneResult result = tune_one("resnet50", {.limit_bytes = 3'180'000'000});
  EXPECT_TRUE(result.has_limit);
  EXPECT_FALSE(result.current.fits);
  EXPECT_LT(result.current.served, 1);
  EXPECT_TRUE(result.best.fits);
  EXPECT_LE(result.best.peak_reserved, 3'180'000'000U);
}

TEST(Tune, SaysWhenNothingFits) {
  const TuneResult result = tune_one("resnet50", {.limit_bytes = 2'000'000'000});
  EXPECT_FALSE(result.best.fits);
  EXPECT_GT(result.best.served, 0);
  EXPECT_GE(result.best.served, result.current.served);
  EXPECT_LE(result.best.parts, 1);
}

TEST(Tune, SeveralRecordingsChooseOneSetting) {
  const std::array programs{&program_of("resnet50"), &program_of("streams")};
  const TuneResult result = tune(programs, {});
  ASSERT_EQ(result.best.peaks.size(), 2U);
  ASSERT_EQ(result.current.peaks.size(), 2U);
  EXPECT_LE(result.best.overhead, result.current.overhead);
  EXPECT_EQ(result.best.peak_reserved, std::max(result.best.peaks[0], result.best.peaks[1]));
}

TEST(Tune, KeepsTheKeysThatItDoesNotSearch) {
  const TuneResult result = tune_one("resnet50_gc_tight");
  EXPECT_THAT(result.best.conf, HasSubstr("per_process_memory_fraction:0.021784"));
  EXPECT_TRUE(result.has_limit);
}

TEST(Tune, RefusesWhatItCannotSearch) {
  EXPECT_THROW((void)tune({}, {}), InvalidArgument);
  EXPECT_THROW((void)tune_one("streams", {.without = {"max_split_size"}}), InvalidArgument);
}

TEST(Tune, TellsHowFarItIs) {
  std::uint64_t last = 0;
  const auto progress = [&](const TuneProgress& now) {
    EXPECT_LE(now.tried, now.planned);
    EXPECT_GE(now.tried, last);
    last = now.tried;
  };
  EXPECT_GE(tune_one("streams", {.progress = progress}).tried, last);
  EXPECT_GT(last, 0U);
}

TEST(Player, StopsSoonAfterMoreIsReservedThanIsOfInterest) {
  const Program& program = program_of("streams");
  ReplayOptions options = as_recorded(program);
  options.stop_above_bytes = 300'000'000;
  const ReplayResult result = replay(program, options);
  EXPECT_FALSE(result.is_complete);
  EXPECT_TRUE(result.fits);
  EXPECT_LT(result.ops, program.ops.size());
  EXPECT_GT(result.peak_reserved, options.stop_above_bytes);
  options.stop_above_bytes = UINT64_MAX;
  const ReplayResult whole = replay(program, options);
  EXPECT_TRUE(whole.is_complete);
  EXPECT_EQ(whole.ops, program.ops.size());
}

}  // namespace
}  // namespace headroom::replay
