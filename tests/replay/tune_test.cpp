// The search for settings, on recordings of PyTorch and on what can be known without one.
#include "headroom/replay/tune.h"

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/error.h"
#include "headroom/replay/internal/tune_space.h"

#include "tests/replay/program_of.h"
#include "tests/replay/traffic.h"
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
  for (const char* name : {"streams", "resnet50_gc_tight"}) {
    const TuneResult one = tune_one(name, {.threads = 1});
    for (const int threads : {2, 5, 32}) {
      const TuneResult many = tune_one(name, {.threads = threads});
      EXPECT_EQ(one.tried, many.tried);
      ASSERT_EQ(one.candidates.size(), many.candidates.size());
      for (std::size_t i = 0; i < one.candidates.size(); ++i) {
        EXPECT_EQ(one.candidates[i].conf, many.candidates[i].conf);
        EXPECT_EQ(one.candidates[i].peak_reserved, many.candidates[i].peak_reserved);
      }
    }
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

// PyTorch may map a whole large segment for a request that keeps to the limit.
TEST(Tune, NoAnswerPassesTheLimit) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed_text(seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < 12; ++i) {
    testing::Traffic traffic(static_cast<unsigned>(random()));
    if (i % 2 == 0) traffic.sample_graphs(4, 3000, 0.5);
    if (i % 2 == 1) traffic.vary_lengths(4, 4, 128);
    const std::array<const Program*, 1> programs{&traffic.program()};
    const std::uint64_t live = programs[0]->peak_live_if_served;
    const std::uint64_t limit = live / 2 + random() % live;
    const TuneResult result = tune(programs, {.limit_bytes = limit});
    for (const Candidate& one : result.candidates) {
      EXPECT_TRUE(!one.fits || one.peak_reserved_high <= limit) << one.conf << " of " << limit;
    }
  }
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

TEST(Tune, OffersNoReleaseAKeyThatItDoesNotRead) {
  const auto confs = [](memory::PyTorchVersion version) {
    std::string all;
    for (const Candidate& one : tune_one("gnn_sampled", {.version = version}).candidates) {
      all += one.conf + "\n";
    }
    return all;
  };
  EXPECT_THAT(confs({2, 0}), Not(HasSubstr("expandable_segments")));
  EXPECT_THAT(confs({2, 0}), Not(HasSubstr("max_non_split_rounding_mb")));
  EXPECT_THAT(confs({1, 13}), Not(HasSubstr("roundup_power2_divisions:[")));
  EXPECT_THAT(confs({1, 9}), Not(HasSubstr(":")));
  EXPECT_THAT(confs({2, 6}), HasSubstr("expandable_segments"));
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

// --- Against a plain search ----------------------------------------------------------------------

// All pairs of a few values of every key.
std::vector<std::string> all_pairs() {
  const std::vector<std::vector<std::string>> lines{
      {"max_split_size_mb:21", "max_split_size_mb:64", "max_split_size_mb:256"},
      {"roundup_power2_divisions:2",
       "roundup_power2_divisions:4",
       "roundup_power2_divisions:16",
       "roundup_power2_divisions:64",
       "roundup_power2_divisions:[64:0,>:2]",
       "roundup_power2_divisions:[256:4,512:2,1024:1,>:1]"},
      {"large_segment_size_mb:11",
       "large_segment_size_mb:64",
       "large_segment_size_mb:512",
       "large_segment_size_mb:1024"},
      {"max_non_split_rounding_mb:64", "max_non_split_rounding_mb:1024"},
      {"garbage_collection_threshold:0.5", "garbage_collection_threshold:0.8"}};
  std::vector<std::string> out{""};
  for (std::size_t a = 0; a < lines.size(); ++a) {
    for (const std::string& one : lines[a]) {
      out.push_back(one);
      for (std::size_t b = a + 1; b < lines.size(); ++b) {
        for (const std::string& other : lines[b]) out.push_back(one + "," + other);
      }
    }
  }
  return out;
}

ReplayResult replay_under(const Program& program,
                          const std::string& conf,
                          std::optional<std::uint64_t> limit_bytes) {
  const auto parsed = memory::parse_config(conf, {.version = program.version});
  if (!parsed) return {.fits = false};  // a pair that PyTorch refuses
  ReplayOptions options = with_settings(program, parsed->config);
  options.limit_bytes = limit_bytes;
  return replay_bounds(program, options);
}

std::uint64_t least_of_pairs(const Program& program, std::optional<std::uint64_t> limit_bytes) {
  std::uint64_t least = UINT64_MAX;
  for (const std::string& conf : all_pairs()) {
    const ReplayResult result = replay_under(program, conf, limit_bytes);
    if (result.fits) least = std::min(least, result.peak_reserved_high);
  }
  return least;
}

struct MadeUp {
  const char* name = nullptr;
  std::function<void(testing::Traffic&)> traffic{};
};

const std::vector<MadeUp>& made_up() {
  static const std::vector<MadeUp> all{
      {"small graphs", [](auto& traffic) { traffic.sample_graphs(40, 1e5, 0.3); }},
      {"graphs", [](auto& traffic) { traffic.sample_graphs(30, 6e5, 0.6); }},
      {"graphs that vary", [](auto& traffic) { traffic.sample_graphs(60, 3e5, 0.9); }},
      {"sequences", [](auto& traffic) { traffic.vary_lengths(12, 6, 512); }},
      {"sequences, then graphs", [](auto& traffic) {
         traffic.vary_lengths(6, 4, 1024);
         traffic.sample_graphs(20, 3e5, 0.5);
       }}};
  return all;
}

// #22: it stopped at 8.0 GB where such a search found 7.4.
TEST(Tune, IsAsGoodAsAllPairsOfSettings) {
  for (const MadeUp& one : made_up()) {
    for (unsigned seed = 0; seed < 2; ++seed) {
      testing::Traffic traffic(seed);
      one.traffic(traffic);
      const Program& program = traffic.program();
      const std::array programs{&program};
      std::optional<std::uint64_t> limit;
      if (seed % 2 == 1) limit = program.peak_live / 100 * 115;
      const TuneResult result =
          tune(programs, {.limit_bytes = limit, .without = {"expandable_segments"}});
      const std::uint64_t least = least_of_pairs(program, limit);
      if (least == UINT64_MAX) continue;
      EXPECT_TRUE(result.best.fits) << one.name << " " << seed;
      EXPECT_LE(static_cast<double>(result.best.peak_reserved_high),
                static_cast<double>(least) * (1 + kWorthAPart))
          << one.name << " " << seed << ": " << result.best.conf;
    }
  }
}

// Neither of the two keys helps alone: 14.3 GB with expandable segments, 27 with the first of them.
TEST(Tune, FindsPairsThatHelpOnlyTogether) {
  const std::uint64_t pair =
      peak_under("gnn_sampled",
                 "expandable_segments:True,max_split_size_mb:128,max_non_split_rounding_mb:1024");
  const TuneResult result = tune_one("gnn_sampled");
  EXPECT_LE(result.best.peak_reserved_high, pair) << result.best.conf;
}

TEST(Tune, EveryCandidateTakesWhatAReplayOfItTakes) {
  for (const MadeUp& one : {made_up().front(), made_up().back()}) {
    for (const auto version : {memory::kPyTorch29, memory::kPyTorch211, memory::kPyTorch213}) {
      testing::Traffic traffic(7);
      one.traffic(traffic);
      traffic.program().version = version;
      const std::array<const Program*, 1> programs{&traffic.program()};
      for (const Candidate& candidate : tune(programs, {}).candidates) {
        const ReplayResult result = replay_under(*programs[0], candidate.conf, {});
        EXPECT_TRUE(result.fits) << candidate.conf;
        EXPECT_EQ(result.peak_reserved, candidate.peak_reserved) << candidate.conf;
        EXPECT_EQ(result.peak_reserved_low, candidate.peak_reserved_low) << candidate.conf;
        EXPECT_EQ(result.peak_reserved_high, candidate.peak_reserved_high) << candidate.conf;
        EXPECT_NEAR(result.calls.driver_us, candidate.driver_us, 1e-3) << candidate.conf;
      }
    }
  }
}

TEST(Tune, DoesNotAnswerWithAKeyThatIsLeftOut) {
  const TuneResult result = tune_one("streams_expandable", {.without = {"expandable_segments"}});
  EXPECT_FALSE(result.is_current_best());
  EXPECT_FALSE(result.is_current_allowed);
  for (const Candidate& one : result.candidates) {
    EXPECT_FALSE(one.config.expandable_segments) << one.conf;
  }
}

TEST(TuneSpace, ListsThatRoundEverySizeAlikeAreOne) {
  testing::Traffic traffic(1);
  traffic.sample_graphs(3, 1e5, 0.3);
  const std::array<const Program*, 1> programs{&traffic.program()};
  const internal::RequestSizes sizes(programs);
  internal::Divisions past_all{};
  past_all[15] = 4;  // nothing is as large
  EXPECT_EQ(sizes.simplest(past_all), internal::Divisions{});
  internal::Divisions uniform{};
  uniform.fill(2);
  internal::Divisions gap = uniform;
  gap[14] = 8;
  EXPECT_EQ(sizes.simplest(gap), uniform);
  EXPECT_EQ(sizes.simplest(uniform), uniform);
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
