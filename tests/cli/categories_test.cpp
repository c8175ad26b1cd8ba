// What our own runs record about each block, inferred from the same recording without it.
#include "headroom/analysis/categories.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "headroom/trace/file.h"

#include "tests/analysis/stripped.h"
#include "tests/support/process.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;
using analysis::TraceIndex;
using ::testing::HasSubstr;

headroom::testing::ProcessResult run_headroom(const std::vector<std::string>& arguments) {
  return headroom::testing::run_process({.program = HEADROOM_BINARY, .arguments = arguments});
}

// Tests run beside each other: each has its own.
fs::path in_folder(const std::string& name) {
  const std::string test = ::testing::UnitTest::GetInstance()->current_test_info()->name();
  return fs::path(::testing::TempDir()) / ("headroom_" + test + "_" + name);
}

// The part of the bytes at the peak whose category is the recorded one.
double right_part(const trace::Trace& recorded, const analysis::testing::Strip& strip) {
  const trace::Trace bare = analysis::testing::stripped(recorded, strip);
  const TraceIndex truth(recorded, recorded.devices[0]);
  const TraceIndex index(bare, bare.devices[0]);
  const analysis::Categories is(truth);
  const analysis::Categories said(index);
  double bytes = 0;
  double right = 0;
  for (const std::uint32_t id : index.allocated_at(index.peaks().allocated.position)) {
    const auto size = static_cast<double>(index.lifetimes()[id].block_bytes);
    bytes += size;
    if (is.category_of(id) == said.category_of(id)) right += size;
  }
  return right / bytes;
}

struct Run {
  const char* model;
  const char* optimizer;
  const char* checkpoint;
  const char* batch;
  const char* steps = "4";
};

void expect_right(const Run& run) {
  SCOPED_TRACE(std::string(run.model) + " " + run.optimizer + " " + run.checkpoint + " " +
               run.batch + " " + run.steps);
  const std::string path = in_folder("run.hrt").string();
  const auto result = run_headroom({"train",
                                    run.model,
                                    "--device",
                                    "meta",
                                    "--steps",
                                    run.steps,
                                    "--optimizer",
                                    run.optimizer,
                                    "--checkpoint",
                                    run.checkpoint,
                                    "--batch",
                                    run.batch,
                                    "--record",
                                    path,
                                    "--force"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto file = trace::read_trace(path);
  ASSERT_TRUE(file);
  EXPECT_GE(right_part(file->trace, {}), 0.95) << "from lifetimes";
  EXPECT_GE(right_part(file->trace, {.annotations = false}), 0.95) << "with annotations";
}

TEST(CategoriesOfOurRuns, ComeBackFromLifetimesAndFromAnnotations) {
  for (const char* model : {"mlp", "deepnet", "gpt2-tiny", "resnet18"}) {
    for (const char* optimizer : {"sgd", "momentum", "adam"}) {
      for (const char* checkpoint : {"none", "sqrt", "all"}) {
        expect_right({model, optimizer, checkpoint, "16"});
      }
    }
  }
}

TEST(CategoriesOfOurRuns, ComeBackFromAnyBatchAndFewSteps) {
  for (const char* batch : {"4", "64", "512"}) {
    expect_right({"mlp", "adam", "none", batch});
    expect_right({"deepnet", "sgd", "all", batch});
    expect_right({"gpt2-tiny", "adamw", "all", batch});
  }
  for (const char* steps : {"1", "2"}) {
    expect_right({"mlp", "momentum", "none", "32", steps});
    expect_right({"gpt2-tiny", "adam", "none", "8", steps});
  }
}

// Eight layers of 1,024 x 1,024 with a bias, 20 steps of which each keeps its batch and its
// outputs.
TEST(InfoCommand, NamesWhatTheSampleLeaks) {
  const auto result = run_headroom({"info", HEADROOM_SAMPLES "/leak_loss.pickle.zst", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto sums = nlohmann::json::parse(result.out)["categories_at_peak"];
  EXPECT_NEAR(sums["parameter"].get<double>(), 33'587'200, 1.1e6);
  EXPECT_GE(sums["activation"], 150'000'000U);
  EXPECT_NEAR(sums["data"].get<double>(), 20 * 1'048'576, 2.2e6);
  EXPECT_EQ(sums["optimizer_state"], 0U);
}

TEST(InfoCommand, TakesRulesAndNamesTheLineThatIsWrong) {
  const fs::path rules = in_folder("rules.txt");
  std::ofstream(rules) << "# all of it\ndata  size:4MiB\n";
  const std::string sample = HEADROOM_SAMPLES "/leak_loss.pickle.zst";
  const auto ruled = run_headroom({"info", sample, "--rules", rules.string(), "--json"});
  ASSERT_EQ(ruled.exit_code, 0) << ruled.err;
  const auto json = nlohmann::json::parse(ruled.out);
  EXPECT_GE(json["categories_at_peak"]["data"], 8U * (4U << 20U));
  EXPECT_TRUE(json["categories_known_by"]["data"].contains("rule"));
  // The doctor's account obeys them too.
  const auto judged = run_headroom({"doctor", sample, "--rules", rules.string(), "--json"});
  EXPECT_EQ(nlohmann::json::parse(judged.out)["account"]["live"]["data"],
            json["categories_at_peak"]["data"]);
  std::ofstream(rules) << "data size:4MiB\nweights size:4MiB\n";
  const auto wrong = run_headroom({"info", sample, "--rules", rules.string()});
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.err, HasSubstr("rules.txt: line 2: 'weights' is no category"));
  const auto missing = run_headroom({"info", sample, "--rules", in_folder("none").string()});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("_none: "));
}

}  // namespace
}  // namespace headroom::cli
