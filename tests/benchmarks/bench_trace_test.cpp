// `headroom bench trace`: what it measures, and what it prints.
#include "benchmarks/trace/bench_trace.h"

#include <filesystem>
#include <string>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"

#include "benchmarks/bench_views.h"
#include "tests/support/process.h"

namespace headroom::cli {
namespace {

using ::testing::HasSubstr;

const Progress kQuiet = [](std::string_view) {};

TEST(BenchTrace, MeasuresEveryRecorderBesideNone) {
  const TraceBench bench = bench_trace(
      {.file = HEADROOM_SAMPLES "/leak_loss.pickle.zst", .rounds = 1, .pairs = 20}, kQuiet);
  std::vector<std::string> names;
  for (const RecordingCost& cost : bench.recording) {
    names.push_back(cost.name);
    EXPECT_GT(cost.pair_ns.median, 0) << cost.name;
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"no recorder",
                                      "ring",
                                      "ring, 20 frames",
                                      "ring, 20 frames at allocations",
                                      "ring, 20 frames by the unwinder",
                                      "file",
                                      "file, 20 frames"}));
  EXPECT_EQ(bench.file_events, 2'276U);
  ASSERT_GE(bench.files.size(), 5U);
  EXPECT_EQ(bench.files[0].name, "read pickle");
  EXPECT_EQ(bench.files[2].name, "read .hrt");
}

// From any folder, and with a folder for temporary files that a shell would misread.
TEST(BenchTrace, ReadsTheSampleUnlessAFileIsNamed) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) /
                                       ("headroom's $(false) " + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const auto done =
      headroom::testing::run_process({.program = HEADROOM_BINARY,
                                      .arguments = {"bench", "trace", "--rounds=1", "--json"},
                                      .environment = {{"TMPDIR", folder.string()}}});
  std::filesystem::remove_all(folder);
  ASSERT_EQ(done.exit_code, 0) << done.err;
  const auto json = nlohmann::json::parse(done.out);
  EXPECT_THAT(json["file"].get<std::string>(), ::testing::EndsWith("/gpt2_varlen.pickle.zst"));
  EXPECT_TRUE(json["files"].at(0)["ratio"].is_object()) << done.out;
}

TEST(BenchTrace, RefusesWhatPythonCannotRead) {
  EXPECT_THROW((void)bench_trace({.file = "/no/such/file", .rounds = 1, .pairs = 1}, kQuiet),
               Error);
}

TEST(BenchTrace, PrintsTextAndJson) {
  const TraceBench bench{.recording = {{.name = "no recorder", .pair_ns = {.median = 80}},
                                       {.name = "ring",
                                        .pair_ns = {.median = 128},
                                        .added_ns = {.median = 16.2, .low = 16, .high = 17},
                                        .budget_ns = 30}},
                         .packing_ns = {.median = 71},
                         .file = "/somewhere/run.pickle",
                         .file_events = 12'345,
                         .files = {{.name = "read pickle",
                                    .file_bytes = 2048,
                                    .ms = {.median = 4},
                                    .ratio = Spread{.median = 6.5}}},
                         .notes = {"a note"}};
  const std::string text = draw_trace_bench(bench, Context{});
  EXPECT_THAT(text, HasSubstr("16.2"));
  EXPECT_THAT(text, HasSubstr("\nrun.pickle, 12,345 events"));
  EXPECT_THAT(text, HasSubstr("6.5 x"));
  EXPECT_THAT(text, HasSubstr("a note"));
  const auto json = nlohmann::json::parse(trace_bench_json(bench));
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["what"], "trace");
  EXPECT_EQ(json["recording"].at(1)["added_ns"]["median"], 16.2);
  EXPECT_EQ(json["files"].at(0)["ratio"]["median"], 6.5);
}

}  // namespace
}  // namespace headroom::cli
