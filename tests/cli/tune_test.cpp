// `headroom tune` step by step on answers made by hand, and from outside on a real snapshot.
#include "cli/tune/tune.h"

#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "headroom/base/bytes.h"
#include "headroom/report/text.h"
#include "headroom/trace/file.h"

#include "tests/support/golden.h"
#include "tests/support/json_schema.h"
#include "tests/support/process.h"
#include "tests/support/temp_folder.h"
#include "tests/trace/samples.h"

namespace headroom::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using headroom::testing::expect_golden;
using headroom::testing::ProcessResult;
using headroom::testing::schema_mismatches;
using replay::Candidate;

Candidate candidate(const std::string& conf, std::uint64_t peak, int parts) {
  const auto parsed = memory::parse_config(conf, {.version = memory::kPyTorch211});
  EXPECT_TRUE(parsed) << conf;
  return {.conf = conf,
          .config = parsed ? parsed->config : memory::AllocatorConfig{},
          .peak_reserved = peak,
          .peak_reserved_low = peak,
          .peak_reserved_high = peak,
          .driver_us = 12345.5,
          .overhead = static_cast<double>(peak) / 1e10,
          .parts = parts,
          .peaks = {peak}};
}

TuneReport found() {
  TuneReport report{
      .request = {.paths = {"runs/gpt2.pickle.zst"}},
      .histories = {{.name = "gpt2.pickle.zst", .allocs = 33437, .peak_live = 12'966'994'432}},
      .version = memory::kPyTorch211};
  replay::TuneResult& result = report.result;
  result.current = candidate("", 21'109'932'032, 0);
  result.best =
      candidate("roundup_power2_divisions:[32:0,>:2],large_segment_size_mb:512", 13'570'670'592, 2);
  result.candidates = {
      result.best,
      candidate("roundup_power2_divisions:[16:0,>:2],large_segment_size_mb:640", 13'994'000'000, 2),
      candidate("expandable_segments:True", 13'912'506'368, 1),
      candidate("roundup_power2_divisions:[16:0,>:2]", 14'066'647'040, 1),
      candidate("max_split_size_mb:512", 20'000'000'000, 1),
      result.current};
  result.tried = 747;
  result.seconds = 2.5;
  return report;
}

TuneReport nothing_to_change() {
  TuneReport report = found();
  report.result.best = report.result.current;
  report.result.candidates = {report.result.current};
  report.is_version_known = true;
  report.histories[0].start_reserved = 5_GiB;
  return report;
}

TuneReport nothing_fits() {
  TuneReport report = found();
  report.request.options.limit_bytes = 12_GiB;
  report.histories[0].failures = 1;
  replay::TuneResult& result = report.result;
  result.has_limit = true;
  result.current.fits = false;
  result.current.served = 0.31;
  result.best = candidate("expandable_segments:True", 12'800'000'000, 1);
  result.best.fits = false;
  result.best.served = 0.513;
  result.candidates = {result.best, result.current};
  return report;
}

TuneReport now_it_fits() {
  TuneReport report = nothing_fits();
  report.request.options.card_bytes = 16_GiB;
  replay::TuneResult& result = report.result;
  result.best.fits = true;
  result.best.served = 1;
  result.best.retries = 1;
  result.best.peak_reserved_high += 40_MiB;
  result.best_without_expandable = candidate("max_split_size_mb:384", 12'850'000'000, 1);
  result.candidates = {result.best, *result.best_without_expandable, result.current};
  return report;
}

// Made by our own allocator, which none of PyTorch's settings change.
TuneReport of_paged() {
  TuneReport report = found();
  for (TunedHistory& one : report.histories) {
    one.made_by = MadeBy::kPaged;
    one.recorded_reserved = 13_GiB;
  }
  return report;
}

nlohmann::json tune_schema() {
  std::ifstream in(HEADROOM_SOURCE_DIR "/docs/format/tune.schema.json");
  return nlohmann::json::parse(in);
}

TEST(TuneGolden, ABetterSetting) {
  expect_golden("tune/found.txt", draw_tune(found(), {}));
  expect_golden("tune/found.json", tune_json(found()));
}

TEST(TuneGolden, WithoutUnicode) {
  expect_golden("tune/found-ascii.txt", draw_tune(found(), {.out = {.has_unicode = false}}));
}

TEST(TuneGolden, NothingToChange) {
  expect_golden("tune/nothing-to-change.txt", draw_tune(nothing_to_change(), {}));
}

TEST(TuneGolden, NothingFits) {
  expect_golden("tune/nothing-fits.txt", draw_tune(nothing_fits(), {}));
}

TEST(TuneGolden, ALimit) { expect_golden("tune/limit.txt", draw_tune(now_it_fits(), {})); }

TEST(TuneView, SaysWhichAllocatorMadeARecordingOfOurs) {  // #22
  const std::string text = draw_tune(of_paged(), {});
  EXPECT_THAT(text, HasSubstr("recorded under headroom's paged allocator"));
  EXPECT_THAT(text, HasSubstr("13GiB at its peak"));
  EXPECT_THAT(text, Not(HasSubstr("now: ")));
  EXPECT_THAT(text, Not(HasSubstr("PYTORCH_ALLOC_CONF=")));
  EXPECT_THAT(draw_tune(found(), {}), Not(HasSubstr("headroom's")));
  TuneReport native = of_paged();
  for (TunedHistory& one : native.histories) one.made_by = MadeBy::kNative;
  EXPECT_THAT(draw_tune(native, {}), HasSubstr("recorded under headroom's native allocator"));
  EXPECT_EQ(nlohmann::json::parse(tune_json(native))["histories"][0]["allocator"], "native");
  EXPECT_EQ(nlohmann::json::parse(tune_json(of_paged()))["histories"][0]["allocator"], "paged");
}

TEST(TuneView, SaysHowToRunAProgramOfOursOtherwise) {
  TuneReport report = of_paged();
  for (TunedHistory& one : report.histories) one.recorded_reserved = 1;
  EXPECT_THAT(draw_tune(report, {}), HasSubstr("Nothing to change."));
  for (TunedHistory& one : report.histories) one.recorded_reserved = UINT64_MAX;
  EXPECT_THAT(draw_tune(report, {}), HasSubstr("export HEADROOM_ALLOC_CONF='backend:native,"));
}

TEST(TuneView, StaysWithinTheTerminal) {
  for (int width = 60; width < 140; width += 7) {
    for (const TuneReport& report :
         {found(), nothing_to_change(), nothing_fits(), now_it_fits(), of_paged()}) {
      const std::string text = draw_tune(report, {.out = {.width = width}});
      for (std::size_t start = 0; start < text.size();) {
        const std::size_t end = text.find('\n', start);
        const std::string line = text.substr(start, end - start);
        // What to type is printed whole, and so is a setting.
        const bool is_whole = line.starts_with("Next:") ||
                              line.find("PYTORCH_") != std::string::npos ||
                              line.find("_mb:") != std::string::npos;
        EXPECT_TRUE(is_whole || report::display_width(line) <= width) << line;
        start = end + 1;
      }
    }
  }
}

TEST(TuneView, QuotesWhatAShellWouldRead) {
  EXPECT_THAT(draw_tune(found(), {}),
              HasSubstr("export PYTORCH_ALLOC_CONF='roundup_power2_divisions:[32:0,>:2],"));
}

TEST(TuneJson, IsWhatTheSchemaSays) {
  for (const TuneReport& report : {found(), nothing_to_change(), nothing_fits(), now_it_fits()}) {
    EXPECT_THAT(schema_mismatches(tune_schema(), nlohmann::json::parse(tune_json(report))),
                IsEmpty());
  }
}

// --- From outside --------------------------------------------------------------------------------

class TuneCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    snapshot_ = folder_.path("streams.pickle");
    const trace::Trace trace = trace::testing::trace_of(trace::testing::recording("streams"));
    ASSERT_TRUE(trace::write_trace(trace, snapshot_).has_value());
  }

  static ProcessResult run(std::vector<std::string> arguments) {
    return headroom::testing::run_process({.program = HEADROOM_BINARY,
                                           .arguments = std::move(arguments),
                                           .environment = {{"HEADROOM_CALLED_AS", "headroom"}}});
  }

  headroom::testing::TempFolder folder_{};
  std::string snapshot_;
};

TEST_F(TuneCommand, FindsASetting) {
  const ProcessResult done = run({"tune", snapshot_, "--json"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  const auto json = nlohmann::json::parse(done.out);
  EXPECT_THAT(schema_mismatches(tune_schema(), json), IsEmpty());
  EXPECT_EQ(json["current"]["peak_reserved"], 778'043'392);
  EXPECT_LT(json["best"]["peak_reserved"], 400'000'000);
  EXPECT_EQ(json["best"]["fits"], true);
  EXPECT_EQ(json["best"], json["candidates"][0]);
}

TEST_F(TuneCommand, LeavesKeysOut) {
  const ProcessResult done = run({"tune",
                                  "--without",
                                  "expandable_segments",
                                  "--without",
                                  "large_segment_size_mb",
                                  snapshot_});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("export PYTORCH_CUDA_ALLOC_CONF="));
  EXPECT_THAT(done.out, Not(HasSubstr("expandable_segments")));
}

TEST_F(TuneCommand, NothingFitsIsBadNews) {
  const ProcessResult done = run({"tune", snapshot_, "--limit", "100MiB"});
  EXPECT_EQ(done.exit_code, 3) << done.err;
  EXPECT_THAT(done.out, HasSubstr("No setting fits."));
}

TEST_F(TuneCommand, WrongWordsAreExplained) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"--without", "max_split_size"}, "did you mean 'max_split_size_mb'?"},
      {{"--without", "backend"}, "those are expandable_segments"},
      {{"--limit", "much"}, "--limit: "},
      {{"--card", "voodoo2"}, "'--card list'"},
      {{"--pytorch", "new"}, "--pytorch: "},
      {{"--version", "2.11"}, "--pytorch 2.11"},
      {{"--version=2.11"}, "--pytorch 2.11"},
      {{"--limit", "16"}, "did you mean 16GiB?"}};
  for (const auto& [words, complaint] : cases) {
    std::vector<std::string> arguments{"tune", snapshot_};
    arguments.insert(arguments.end(), words.begin(), words.end());
    const ProcessResult done = run(arguments);
    EXPECT_EQ(done.exit_code, 2);
    EXPECT_THAT(done.err, HasSubstr(complaint));
    EXPECT_THAT(done.out, IsEmpty());
  }
}

}  // namespace
}  // namespace headroom::cli
