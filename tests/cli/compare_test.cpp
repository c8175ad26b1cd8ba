// `headroom compare`: recordings under every policy, as text, JSON and a page.
#include "cli/compare/compare.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "headroom/base/bytes.h"

#include "cli/input/trace_input.h"
#include "tests/support/golden.h"
#include "tests/support/process.h"

namespace headroom::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using headroom::testing::expect_golden;
using headroom::testing::ProcessResult;

const char* const kComparedSample = HEADROOM_SOURCE_DIR "/samples/leak_loss.pickle.zst";

ProcessResult run_compare_command(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "compare");
  return headroom::testing::run_process({.program = HEADROOM_BINARY,
                                         .arguments = std::move(arguments),
                                         .environment = {{"HEADROOM_CALLED_AS", "headroom"}}});
}

// Numbers of no recording, so that the text stays the same.
Comparison invented() {
  const ComparedPolicy recorded{.policy = "pytorch",
                                .peak_live = 1000_MiB,
                                .peak_reserved = 1600_MiB,
                                .smallest_limit = 1500_MiB,
                                .calls = {.device_allocs = 80, .driver_us = 7200},
                                .driver_us_second_half = 100,
                                .op_ns = 61.4};
  const ComparedPolicy model{.policy = "cudaMallocAsync",
                             .is_model = true,
                             .fits = false,
                             .peak_live = 1000_MiB,
                             .peak_reserved = 1200_MiB};
  const ComparedPolicy paged{.policy = "paged",
                             .peak_live = 1000_MiB,
                             .peak_reserved = 1020_MiB,
                             .smallest_limit = 1010_MiB,
                             .calls = {.handles_created = 255,
                                       .handles_mapped = 300,
                                       .handles_unmapped = 40,
                                       .driver_us = 14'000},
                             .driver_us_second_half = 0,
                             .op_ns = 55};
  ComparedPolicy of_little = paged;
  of_little.peak_live = 1_MiB;
  return {.request = {.options = {.finds_smallest_limit = true}},
          .recordings = {{.recording = "one",
                          .events = 12'345,
                          .ops = 10'000,
                          .peak_live = 1000_MiB,
                          .peak_live_if_served = 1000_MiB,
                          .duration_us = 2'000'000,
                          .duration_us_second_half = 1'000'000,
                          .rows = {recorded, model, paged}},
                         {.recording = "two",
                          .events = 3,
                          .peak_live = 1_MiB,
                          .peak_live_if_served = 1_MiB,
                          .rows = {of_little}}}};
}

TEST(CompareGolden, ThePage) { expect_golden("compare/page.md", comparison_page(invented())); }

TEST(CompareGolden, TheTerminal) {
  expect_golden("compare/text.txt", draw_comparison(invented(), {}));
}

TEST(Compare, ExplainsTheColumnsThatAreShown) {
  Comparison found = invented();
  found.recordings.resize(1);
  const std::string narrow = draw_comparison(found, {.out = {.width = 80}});
  EXPECT_THAT(narrow, Not(HasSubstr("river time")));
  EXPECT_THAT(narrow, HasSubstr("least limit,"));
  const std::string wide = draw_comparison(found, {.out = {.width = 200}});
  EXPECT_THAT(wide, HasSubstr("Driver time is that of the calls on an H200; of the run is"));
  found.request.options.finds_smallest_limit = false;
  EXPECT_THAT(draw_comparison(found, {.out = {.width = 200}}), Not(HasSubstr("least")));
}

TEST(Compare, WithoutARecordingTakesEverySample) {
  const ProcessResult done = run_compare_command({"--policy", "paged", "--rounds", "1", "--json"});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  std::vector<std::string> names;
  const auto json = nlohmann::json::parse(done.out);
  for (const auto& one : json.at("recordings")) {
    names.push_back(one.at("recording"));
  }
  std::size_t samples = 0;
  for (const auto& entry : std::filesystem::directory_iterator(HEADROOM_SOURCE_DIR "/samples")) {
    if (entry.path().extension() == ".zst") ++samples;
  }
  EXPECT_EQ(names.size(), samples);
  EXPECT_THAT(names, ::testing::Contains("gpt2_ragged"));
}

TEST(Compare, SharesAreOfTheRecordedTime) {
  const Comparison found = invented();
  const ComparedRecording& trace = found.recordings[0];
  EXPECT_DOUBLE_EQ(driver_share(trace, trace.rows[0]).value(), 0.0036);
  EXPECT_DOUBLE_EQ(driver_share_second_half(trace, trace.rows[0]).value(), 0.0001);
  EXPECT_FALSE(driver_share(trace, trace.rows[1])) << "a model calls no driver";
  EXPECT_FALSE(driver_share(found.recordings[1], trace.rows[0])) << "no time was recorded";
}

// #21: a policy that serves what failed has more live than was recorded.
TEST(Compare, ARatioIsOverWhatThatPolicyServed) {
  Comparison found = invented();
  ComparedRecording& trace = found.recordings[0];
  EXPECT_DOUBLE_EQ(over_live(trace.rows[2]).value(), 1.02);
  trace.rows[2].peak_live = 1010_MiB;
  trace.peak_live_if_served = 1010_MiB;
  EXPECT_DOUBLE_EQ(over_live(trace.rows[2]).value(), 1020.0 / 1010.0);
  EXPECT_DOUBLE_EQ(smallest_limit_over_live(trace, trace.rows[2]).value(), 1.0);
  EXPECT_FALSE(smallest_limit_over_live(trace, trace.rows[1]));
  EXPECT_FALSE(over_live(ComparedPolicy{.peak_reserved = 1_MiB}));
}

TEST(Compare, ABoundThatIsExceededIsBadNews) {
  Comparison found = invented();
  EXPECT_EQ(verdict(found), ExitCode::kDone);
  found.recordings[1].rows[0].is_bound_exceeded = true;
  EXPECT_EQ(verdict(found), ExitCode::kBadNews);
  EXPECT_THAT(comparison_page(found), HasSubstr("paged (bound exceeded)"));
}

TEST(Compare, FromOutside) {
  const ProcessResult done =
      run_compare_command({kComparedSample, "--smallest-limit", "--rounds", "1", "--json"});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  const auto json = nlohmann::json::parse(done.out);
  EXPECT_EQ(json.at("command"), "compare");
  const auto& recording = json.at("recordings").at(0);
  EXPECT_EQ(recording.at("recording"), "leak_loss");
  EXPECT_GT(recording.at("duration_us"), 0);
  const auto& results = recording.at("results");
  ASSERT_EQ(results.size(), 5U);
  EXPECT_EQ(results[0].at("policy"), "pytorch");
  EXPECT_EQ(results[0].at("peak_reserved"), 346'030'080);
  EXPECT_EQ(results[3].at("op_ns"), nullptr) << "a model";
  const auto& paged = results[4];
  EXPECT_EQ(paged.at("policy"), "paged");
  EXPECT_LT(paged.at("over_live"), results[0].at("over_live"));
  EXPECT_GT(paged.at("smallest_limit"), 0);
  EXPECT_GT(paged.at("op_ns"), 0);
  EXPECT_EQ(paged.at("bound_exceeded"), false);
}

TEST(Compare, WritesAPageAndNotOverOne) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "headroom-comparison.md";
  std::filesystem::remove(path);
  const std::vector<std::string> arguments{
      kComparedSample, "--rounds", "1", "--policy", "paged", "-o", path.string()};
  ASSERT_EQ(run_compare_command(arguments).exit_code, 0);
  std::ifstream file(path);
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(page, HasSubstr("## leak_loss"));
  EXPECT_THAT(page, Not(HasSubstr("pytorch:default")));
  // The command line that was typed, and no link that leads nowhere from there.
  EXPECT_THAT(page,
              HasSubstr("\n    headroom compare " + shell_word(kComparedSample) +
                        " --policy paged --rounds 1 -o " + shell_word(path.string()) + "\n"));
  EXPECT_THAT(page, Not(HasSubstr("](")));
  const ProcessResult again = run_compare_command(arguments);
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.err, HasSubstr("--force overwrites it"));
  std::filesystem::remove(path);
}

TEST(Compare, APageThatCannotBeWrittenIsRefusedWithTheReason) {
  const auto write_to = [](const std::string& path) {
    return run_compare_command(
        {kComparedSample, "--rounds", "1", "--policy", "paged", "--force", "-o", path});
  };
  const ProcessResult nowhere = write_to(::testing::TempDir() + "/no-such-folder/page.md");
  EXPECT_EQ(nowhere.exit_code, 1);
  EXPECT_THAT(nowhere.err, HasSubstr("there is no folder"));
  const ProcessResult full = write_to("/dev/full");
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_THAT(full.err, HasSubstr("'/dev/full' cannot be written: No space left on device"));
}

TEST(Compare, CommandLinesThatAreWrong) {
  EXPECT_EQ(run_compare_command({kComparedSample, "--policy", "best"}).exit_code, 2);
  EXPECT_EQ(run_compare_command({kComparedSample, "--rounds", "0"}).exit_code, 2);
  EXPECT_EQ(run_compare_command({"no-such-file.pickle"}).exit_code, 1);
}

}  // namespace
}  // namespace headroom::cli
