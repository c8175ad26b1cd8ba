// `headroom replay` step by step on a small recording, and from outside.
#include "cli/replay/replay.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "headroom/base/bytes.h"
#include "headroom/report/text.h"

#include "tests/support/golden.h"
#include "tests/support/json_schema.h"
#include "tests/support/process.h"
#include "tests/trace/samples.h"

namespace headroom::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

using headroom::testing::expect_golden;
using headroom::testing::ProcessResult;
using headroom::testing::schema_mismatches;
using trace::testing::recording;
using trace::testing::trace_of;

const char* const kSample = HEADROOM_SOURCE_DIR "/samples/leak_loss.pickle.zst";

ProcessResult run_replay(std::vector<std::string> arguments) {
  headroom::testing::ProcessOptions options;
  options.program = HEADROOM_BINARY;
  options.arguments = std::move(arguments);
  options.environment.emplace("HEADROOM_CALLED_AS", "headroom");
  return headroom::testing::run_process(options);
}

nlohmann::json replay_schema() {
  std::ifstream in(HEADROOM_SOURCE_DIR "/docs/format/replay.schema.json");
  return nlohmann::json::parse(in);
}

std::vector<replay::Policy> policies(const std::vector<std::string>& names) {
  std::vector<replay::Policy> out;
  for (const std::string& name : names) out.push_back(replay::parse_policy(name).value());
  return out;
}

std::string drawn(const char* name, ReplayRequest request, const Context& context = {}) {
  const trace::Trace trace = trace_of(recording(name));
  request.path = std::string("runs/") + name + ".pickle.zst";
  const std::string text = draw(replay_all(trace, request, context), context);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(report::display_width(line), 100) << line;
  }
  return text;
}

TEST(ReplayGolden, TheUsualComparison) {
  expect_golden("replay/usual.txt", drawn("gpt2_varlen", {}));
}

TEST(ReplayGolden, Verified) {
  expect_golden("replay/verified.txt",
                drawn("resnet50_gc_tight", {.policies = policies({"pytorch"}), .verifies = true}));
}

TEST(ReplayGolden, NotVerified) {
  expect_golden(
      "replay/mismatch.txt",
      drawn("gpt2_varlen",
            {.policies = policies({"pytorch"}), .version = memory::kPyTorch213, .verifies = true}));
}

TEST(ReplayGolden, TooLittle) {
  expect_golden("replay/limit.txt",
                drawn("llama_serve",
                      {.policies = policies({"pytorch", "pytorch:expandable_segments:True"}),
                       .limit_bytes = 5_GiB}));
}

TEST(ReplayGolden, WithoutUnicode) {
  expect_golden("replay/usual-ascii.txt", drawn("streams", {}, {.out = {.has_unicode = false}}));
}

TEST(Replay, JsonIsAsDocumented) {
  // With no policy named it searches for the best settings, which takes long on a long recording.
  const std::pair<const char*, std::vector<std::string>> cases[] = {{"gpt2_partial", {"pytorch"}},
                                                                    {"streams", {}}};
  for (const auto& [name, named] : cases) {
    const trace::Trace trace = trace_of(recording(name));
    ReplayRequest request{.policies = policies(named), .verifies = true};
    const auto plain = nlohmann::json::parse(replay_json(replay_all(trace, request, {})));
    EXPECT_THAT(schema_mismatches(replay_schema(), plain), IsEmpty()) << name;
    request = {.policies = policies({"pytorch:default"}), .limit_bytes = 300_MiB};
    const auto failed = nlohmann::json::parse(replay_json(replay_all(trace, request, {})));
    EXPECT_THAT(schema_mismatches(replay_schema(), failed), IsEmpty()) << name;
  }
}

TEST(Replay, ExitsByWhatItFound) {
  const trace::Trace trace = trace_of(recording("gpt2_varlen"));
  const auto code = [&](ReplayRequest request) {
    if (request.policies.empty()) request.policies = policies({"pytorch"});
    return verdict(replay_all(trace, request, {}));
  };
  EXPECT_EQ(code({}), ExitCode::kDone);
  EXPECT_EQ(code({.verifies = true}), ExitCode::kDone);
  EXPECT_EQ(code({.limit_bytes = 12_GiB}), ExitCode::kBadNews);
  EXPECT_EQ(code({.version = memory::kPyTorch213, .verifies = true}), ExitCode::kBadNews);
}

TEST(Replay, FromOutside) {
  const ProcessResult done =
      run_replay({"replay", kSample, "--verify", "--policy", "pytorch", "--json"});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  const auto json = nlohmann::json::parse(done.out);
  EXPECT_THAT(schema_mismatches(replay_schema(), json), IsEmpty());
  const auto& result = json.at("results").at(0);
  EXPECT_EQ(result.at("address_mismatches"), 0);
  EXPECT_EQ(result.at("segment_mismatches"), 0);
  EXPECT_EQ(result.at("peak_reserved"), 346'030'080);
  EXPECT_EQ(result.at("policy"), "pytorch");
  EXPECT_THAT(run_replay({"replay", kSample}).out, HasSubstr("Next: headroom replay"));
}

TEST(Replay, CommandLinesThatAreWrong) {
  const auto complains = [](std::vector<std::string> arguments, const char* part) {
    arguments.insert(arguments.begin(), {"replay", kSample});
    const ProcessResult done = run_replay(arguments);
    EXPECT_EQ(done.exit_code, 2) << done.err;
    EXPECT_EQ(done.out, "");
    EXPECT_EQ(std::ranges::count(done.err, '\n'), 1) << done.err;
    EXPECT_THAT(done.err, HasSubstr(part));
  };
  complains({"--policy", "paged:page_mb=none"}, "page_mb: found 'none'");
  complains({"--policy", "paged", "--verify"}, "--policy pytorch");
  complains({"--policy", "best"}, "no policy 'best'");
  complains({"--policy", "pytorch:max_splat:1"}, "unknown key 'max_splat'");
  complains({"--limit", "12GB"}, "--limit");
  complains({"--limit", "0"}, "--limit");
  complains({"--limit", "24"}, "did you mean 24GiB?");
  complains({"--card", "h20"}, "h200");
  complains({"--pytorch", "two"}, "--pytorch");
  complains({"--version", "2.9"}, "--pytorch 2.9");
  complains({"-o", "decisions.csv"}, "name it with --policy, once");
  complains({"--verify", "--policy", "pytorch:default"}, "--policy pytorch");
  complains({"--policy", "pytorch:large_segment_size_mb:40", "--pytorch", "2.9"}, "large_segment");
}

TEST(Replay, PagedFromOutside) {
  const ProcessResult done =
      run_replay({"replay", kSample, "--policy", "paged", "--smallest-limit", "--json"});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  const auto json = nlohmann::json::parse(done.out);
  EXPECT_THAT(schema_mismatches(replay_schema(), json), IsEmpty());
  const auto& result = json.at("results").at(0);
  const double live = result.at("peak_live");
  const double allowance = 8 << 20;
  EXPECT_LE(result.at("peak_reserved"), 1.03 * live + allowance);
  EXPECT_LE(result.at("smallest_limit"), 1.02 * live + allowance);
  EXPECT_EQ(result.at("fits"), true);
  EXPECT_EQ(result.at("bound").at("holds"), true);
  EXPECT_EQ(result.at("address_mismatches"), nullptr);
  EXPECT_EQ(result.at("device_allocs"), result.at("handles_created"));
  EXPECT_GT(result.at("driver_us"), 0);
}

TEST(Replay, ABoundThatIsExceededIsBadNews) {
  const trace::Trace trace = trace_of(recording("streams"));
  ReplayReport report = replay_all(trace, {.path = "x", .policies = policies({"paged"})}, {});
  EXPECT_EQ(verdict(report), ExitCode::kDone);
  auto& bound = report.devices.at(0).results.at(0).result.bound;
  ASSERT_TRUE(bound);
  bound->bound.reserved_bytes += 1_GiB;
  EXPECT_EQ(verdict(report), ExitCode::kBadNews);
  EXPECT_THAT(draw(report, {}), HasSubstr("paged: bound exceeded at event"));
}

TEST(Replay, WritesItsDecisions) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "headroom-decisions.csv";
  const ProcessResult done =
      run_replay({"replay", kSample, "--policy", "pytorch", "-o", path.string()});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  std::ifstream file(path);
  std::string header;
  std::string first;
  std::string second;
  std::getline(file, header);
  std::getline(file, first);
  std::getline(file, second);
  EXPECT_EQ(header, "action,addr,size,stream");
  EXPECT_THAT(first, ::testing::StartsWith("segment_alloc,"));
  EXPECT_THAT(second, ::testing::StartsWith("alloc,"));
  std::filesystem::remove(path);
}

TEST(Replay, ARecordingWithoutAHistoryIsAnError) {
  trace::Trace trace;
  trace.devices.emplace_back();
  EXPECT_THROW((void)replay_all(trace, {.path = "x"}, {}), Error);
}

TEST(BenchReplay, MeasuresTheSamples) {
  const ProcessResult done = run_replay({"bench", "replay", kSample, "--rounds", "1", "--json"});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  const auto json = nlohmann::json::parse(done.out);
  EXPECT_EQ(json.at("what"), "replay");
  const auto& entry = json.at("cases").at(0);
  EXPECT_EQ(entry.at("recording"), "leak_loss");
  EXPECT_GT(entry.at("events_per_second").at("median"), 0);
  EXPECT_EQ(entry.at("results").at(0).at("policy"), "pytorch");
}

}  // namespace
}  // namespace headroom::cli
