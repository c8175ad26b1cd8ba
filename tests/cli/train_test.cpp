// `headroom plan` and `headroom train` from outside: text, JSON and what is refused;
// plan_page_test.cpp has the page.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "headroom/base/checked.h"
#include "headroom/memory/internal/size_classes.h"
#include "headroom/trace/file.h"

#include "tests/support/json_schema.h"
#include "tests/support/process.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using headroom::testing::ProcessResult;
using headroom::testing::schema_mismatches;

ProcessResult headroom_with(const std::vector<std::string>& arguments) {
  return headroom::testing::run_process({.program = HEADROOM_BINARY, .arguments = arguments});
}

nlohmann::json json_of(std::vector<std::string> arguments, int wanted_exit = 0) {
  std::ifstream schema(HEADROOM_SOURCE_DIR "/docs/format/" + arguments.front() + ".schema.json");
  arguments.emplace_back("--json");
  const ProcessResult result = headroom_with(arguments);
  EXPECT_EQ(result.exit_code, wanted_exit) << result.err;
  const auto json = nlohmann::json::parse(result.out, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << result.out;
  EXPECT_THAT(schema_mismatches(nlohmann::json::parse(schema), json), IsEmpty());
  return json;
}

TEST(PlanCommand, AnswersInJsonWithCategoriesThatAddUp) {
  const auto json = json_of({"plan", "gpt2", "--batch", "4", "--limit", "24GiB"});
  std::uint64_t sum = 0;
  for (const auto& [name, bytes] : json["categories"].items()) sum += bytes.get<std::uint64_t>();
  EXPECT_EQ(sum, json["peak_allocated"]);
  EXPECT_EQ(json["fits"], true);
  EXPECT_EQ(json["parameters"], 124'439'808);
  EXPECT_EQ(json["peak_phase"], "backward");
}

TEST(PlanCommand, FindsTheLargestBatch) {
  const auto json = json_of({"plan", "deepnet", "--fit", "--limit", "300MiB"});
  EXPECT_EQ(json["is_largest_batch"], true);
  EXPECT_LE(json["peak_reserved"], 300U << 20U);
  const auto more = json_of({"plan",
                             "deepnet",
                             "--limit",
                             "300MiB",
                             "--batch",
                             std::to_string(json["batch"].get<int>() + 1)},
                            3);
  EXPECT_EQ(more["fits"], false);
}

TEST(PlanCommand, ChoosesTheMildestCheckpointing) {
  const auto json =
      json_of({"plan", "deepnet", "--batch", "4096", "--checkpoint", "auto", "--limit", "500MiB"});
  EXPECT_EQ(json["checkpoint"], "sqrt");
  EXPECT_GT(json["recompute_fraction"], 0.3);
}

// The arguments behind `Next: headroom`.
std::vector<std::string> next_of(const std::string& text) {
  const std::string mark = "\nNext: headroom ";
  const std::size_t at = text.rfind(mark);
  if (at == std::string::npos) return {};
  std::string line = text.substr(at + mark.size());
  line = line.substr(0, std::min(line.find('\n'), line.find("  ")));
  std::istringstream words(line);
  std::vector<std::string> out;
  for (std::string word; words >> word;) out.push_back(word);
  return out;
}

// What does not fit ends with a command that does, whatever is in the way.
TEST(PlanCommand, WhatComesNextFits) {
  const std::vector<std::string> cases[] = {
      {"plan", "gpt2", "--limit", "1GiB"},
      {"plan", "gpt2", "--limit", "1GiB", "--checkpoint", "all", "--fit"},
      {"plan", "gpt2", "--limit", "3GiB"},
      {"plan", "gpt2", "--limit", "3GiB", "--checkpoint", "auto", "--batch", "64"},
      {"plan", "gpt2", "--card", "1GiB"},
      {"plan", "deepnet", "--batch", "512", "--limit", "90MiB"}};
  for (const auto& arguments : cases) {
    SCOPED_TRACE(::testing::PrintToString(arguments));
    const auto run = [](const std::vector<std::string>& typed) {
      return headroom::testing::run_process({.program = HEADROOM_BINARY,
                                             .arguments = typed,
                                             .environment = {{"HEADROOM_CALLED_AS", "headroom"}}});
    };
    const ProcessResult refused = run(arguments);
    EXPECT_EQ(refused.exit_code, 3) << refused.err;
    const std::vector<std::string> next = next_of(refused.out);
    ASSERT_FALSE(next.empty()) << refused.out;
    const ProcessResult fits = run(next);
    EXPECT_EQ(fits.exit_code, 0) << ::testing::PrintToString(next) << fits.out << fits.err;
  }
  EXPECT_THAT(headroom_with(cases[0]).out,
              HasSubstr("Parameters, gradients and optimizer state alone take 1.85GiB. The least "
                        "limit is"));
}

// Training is on the processor, which has less memory than three cards.
TEST(PlanCommand, SuggestsTrainingOnlyWhereItCanRun) {
  const auto next = [](const std::vector<std::string>& arguments) {
    return headroom_with(arguments).out;
  };
  EXPECT_THAT(next({"plan", "deepnet"}), HasSubstr(" train deepnet"));
  EXPECT_THAT(next({"plan", "deepnet", "--fit", "--card", "rtx4090,h100"}),
              HasSubstr(" -o plan.html"));
}

TEST(PlanCommand, DrawsWhatItKnows) {
  const ProcessResult result = headroom_with({"plan", "deepnet", "--optimizer", "adam"});
  EXPECT_EQ(result.exit_code, 0);
  for (const char* text : {"peak allocated",
                           "peak reserved",
                           "parameters",
                           "forward",
                           "backward",
                           "16 P + B L a",
                           "Next: "}) {
    EXPECT_THAT(result.out, HasSubstr(text));
  }
}

TEST(TrainCommand, MeasuresWhatWasPlannedAndLearns) {
  const auto json = json_of(
      {"train", "gpt2-tiny", "--seq", "16", "--steps", "30", "--lr", "0.003", "--device", "cpu"});
  EXPECT_EQ(json["peak_allocated"], json["planned_allocated"]);
  EXPECT_EQ(json["peak_reserved"], json["planned_reserved"]);
  ASSERT_EQ(json["losses"].size(), 30U);
  EXPECT_LT(json["losses"].back(), 0.8 * json["losses"].front().get<double>());
  EXPECT_EQ(json["device"], "cpu:0");
}

TEST(TrainCommand, OnMetaHasTheSamePeaksAndNoLosses) {
  const auto json =
      json_of({"train", "resnet50", "--batch", "2", "--steps", "2", "--device", "meta"});
  EXPECT_EQ(json["peak_allocated"], json["planned_allocated"]);
  EXPECT_TRUE(json["losses"][0].is_null());
}

TEST(TrainCommand, UnderALimitReportsOrRetries) {
  const std::vector<std::string> run{"train",
                                     "deepnet",
                                     "--width",
                                     "64",
                                     "--depth",
                                     "8",
                                     "--batch",
                                     "4096",
                                     "--steps",
                                     "2",
                                     "--limit",
                                     "20MiB"};
  const ProcessResult failed = headroom_with(run);
  EXPECT_EQ(failed.exit_code, 3);
  EXPECT_THAT(failed.out, HasSubstr("It does not fit."));
  EXPECT_THAT(failed.out, HasSubstr("1. --checkpoint sqrt"));
  EXPECT_THAT(failed.out, HasSubstr("--width 64 --batch 4096 --checkpoint sqrt --limit 20MiB\n"));
  std::vector<std::string> retried = run;
  retried.emplace_back("--retry");
  const auto json = json_of(retried);
  EXPECT_LT(json["micro_batch"], 4096);
  EXPECT_FALSE(json["retries"].empty());
  EXPECT_LE(json["peak_reserved"], 20U << 20U);
}

TEST(TrainCommand, RecordsWhatInfoReads) {
  const fs::path path = fs::path(::testing::TempDir()) / "headroom-train-test.hrt";
  fs::remove(path);
  EXPECT_EQ(
      headroom_with({"train", "simplenn", "--steps", "3", "--record", path.string()}).exit_code, 0);
  const ProcessResult info = headroom_with({"info", path.string(), "--json"});
  EXPECT_EQ(info.exit_code, 0);
  EXPECT_GT(nlohmann::json::parse(info.out)["allocs"], 10);
  fs::remove(path);
}

TEST(TrainCommand, ARecordingSaysWhichAllocatorMadeIt) {
  const fs::path path = fs::path(::testing::TempDir()) / "headroom-train-paged.hrt";
  const auto trained =
      json_of({"train", "gpt2-tiny", "--steps", "3", "--record", path.string(), "--force"});
  const ProcessResult info = headroom_with({"info", path.string(), "--json"});
  const auto json = nlohmann::json::parse(info.out);
  EXPECT_EQ(json["settings"], "backend:paged");
  EXPECT_EQ(json["peak_reserved"], trained["peak_reserved"]);
  const ProcessResult verified = headroom_with({"replay", path.string(), "--verify"});
  EXPECT_EQ(verified.exit_code, 2);
  EXPECT_THAT(verified.err, HasSubstr("this one was made by the paged allocator"));
  EXPECT_THAT(headroom_with({"replay", path.string(), "--policy", "pytorch"}).out,
              HasSubstr("pytorch (default settings)"));
  fs::remove(path);
}

// What a recording of the paged allocator held when most was allocated, by category: what was asked
// for, in blocks of its sizes.
std::map<std::string, std::uint64_t> categories_at_peak(const trace::Trace& trace) {
  const auto block_bytes = [](std::uint64_t size) {
    using namespace memory::internal;
    return size <= kSlabMaxBytes ? kClasses[size_class_of(size)].block_bytes
                                 : round_up(size, memory::kMinBlockBytes);
  };
  const trace::Events& events = trace.devices.at(0).events;
  std::map<std::string, std::uint64_t> now;
  std::map<std::string, std::uint64_t> at_peak;
  std::uint64_t allocated = 0;
  std::uint64_t peak = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const std::uint64_t bytes = block_bytes(std::max<std::uint64_t>(events.size_bytes(i), 1));
    const auto category = trace.details[events.details(i)].category;
    if (!category) continue;
    if (events.action(i) == memory::Action::kAlloc) {
      now[std::string(to_string(*category))] += bytes;
      allocated += bytes;
      if (allocated >= peak) at_peak = now;
      peak = std::max(peak, allocated);
    } else if (events.action(i) == memory::Action::kFreeRequested) {
      now[std::string(to_string(*category))] -= bytes;
      allocated -= bytes;
    }
  }
  return at_peak;
}

TEST(TrainCommand, WhatIsMeasuredWhileRecordingIsWhatWasRecorded) {
  const fs::path path = fs::path(::testing::TempDir()) / "headroom-train-categories.hrt";
  const std::vector<std::string> run{"train", "gpt2-tiny", "--steps", "2"};
  std::vector<std::string> recorded = run;
  recorded.insert(recorded.end(), {"--record", path.string(), "--force"});
  const auto json = json_of(recorded);
  const auto file = trace::read_trace(path.string());
  ASSERT_TRUE(file.has_value());
  auto in_recording = categories_at_peak(file->trace);
  std::uint64_t sum = 0;
  for (const auto& [name, bytes] : json["categories"].items()) {
    EXPECT_EQ(bytes, in_recording[name]) << name;
    sum += bytes.get<std::uint64_t>();
  }
  EXPECT_EQ(sum, json["peak_allocated"]);
  EXPECT_EQ(json["categories"], json_of({"info", path.string()})["block_categories_at_peak"]);
  // A recording changes nothing of what it records.
  const auto alone = json_of(run);
  for (const char* key : {"categories", "peak_allocated", "peak_reserved"}) {
    EXPECT_EQ(json[key], alone[key]) << key;
  }
  fs::remove(path);
}

// Starts and ends of the spans of one name, in microseconds.
std::vector<std::pair<std::int64_t, std::int64_t>> spans_of(const trace::Trace& trace,
                                                            std::string_view name) {
  std::vector<std::pair<std::int64_t, std::int64_t>> out;
  for (const trace::Annotation& mark : trace.annotations) {
    if (trace.strings[mark.name] != name) continue;
    if (mark.is_start) {
      out.emplace_back(mark.time_us, mark.time_us);
    } else if (!out.empty()) {
      out.back().second = mark.time_us;
    }
  }
  return out;
}

TEST(TrainCommand, ARecordingShowsCopiesBesideCompute) {
  const fs::path path = fs::path(::testing::TempDir()) / "headroom-train-copies.hrt";
  std::vector<std::string> run{"train", "mlp", "--batch", "4096", "--steps", "6"};
  const auto alone = json_of(run);
  run.insert(run.end(),
             {"--prefetch", "1", "--workers", "1", "--record", path.string(), "--force"});
  const auto ahead = json_of(run);
  EXPECT_EQ(ahead["losses"], alone["losses"]);  // the same examples in the same order
  EXPECT_EQ(ahead["peak_allocated"], ahead["planned_allocated"]);
  EXPECT_GT(ahead["peak_allocated"], alone["peak_allocated"]);
  const auto file = trace::read_trace(path.string());
  ASSERT_TRUE(file.has_value());
  int beside = 0;
  for (const auto& [copy_start, copy_end] : spans_of(file->trace, "copy to device")) {
    for (const auto& [start, end] : spans_of(file->trace, "forward")) {
      beside += static_cast<int>(copy_start < end && start < copy_end);
    }
  }
  EXPECT_GT(beside, 0);
  fs::remove(path);
}

TEST(TrainCommand, ReadsBytesFromAFile) {
  const fs::path path = fs::path(::testing::TempDir()) / "headroom-train-test.txt";
  std::ofstream(path) << std::string(500, 'a') + std::string(500, 'b');
  const auto json = json_of({"train", "gpt2-tiny", "--seq", "16", "--data", path.string()});
  EXPECT_LT(json["losses"].back(), json["losses"].front());
  const ProcessResult wrong = headroom_with({"train", "mlp", "--data", path.string()});
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.err, HasSubstr("its name has no 'images'"));
  fs::remove(path);
}

// Planned on a device without memory, then trained on the cpu: the same bytes, to the last page.
TEST(TrainCommand, PagedTakesWhatWasPlannedAndNearlyNoMore) {
  const auto trained = json_of({"train", "deepnet", "--steps", "2", "--policy", "paged"});
  EXPECT_EQ(trained["peak_allocated"], trained["planned_allocated"]);
  EXPECT_EQ(trained["peak_reserved"], trained["planned_reserved"]);
  EXPECT_LE(trained["peak_reserved"].get<double>(),
            1.03 * trained["peak_allocated"].get<double>() + (8 << 20));
  const auto planned = json_of({"plan", "deepnet", "--policy", "paged"});
  EXPECT_EQ(planned["peak_allocated"], trained["peak_allocated"]);
}

struct BadStep {
  std::vector<std::string> arguments;
  int exit_code;
  const char* message;
};

TEST(TrainAndPlan, SayWhatIsWrongAndWhatWouldBeValid) {
  const BadStep cases[] = {
      {{"plan", "gtp2"}, 2, "there is no model 'gtp2'; did you mean 'gpt2'?"},
      {{"train", "resnet"}, 2, "there is no model 'resnet'; did you mean 'resnet18'?"},
      {{"train", "mlp", "--batch", "0"}, 2, "--batch: 0 is too small; use 1 or more"},
      {{"train", "mlp", "--steps", "0"}, 2, "--steps: 0 is too small; use 1 or more"},
      {{"plan", "mlp", "--checkpoint", "some"}, 2, "there is no checkpoint mode 'some'"},
      {{"plan", "mlp", "--checkpoint", "some"}, 2, "none, sqrt, all, auto"},
      {{"plan", "gpt2", "--batch", "999999999999"},
       1,
       "plan: gpt2 with batch 999999999999 asks for 7.28PiB at once, and plans end at 16TiB; use a "
       "smaller --batch; 'plan gpt2 --fit --card h100' finds the largest that fits"},
      {{"plan", "mlp", "--dtype", "f8"}, 2, "there is no precision 'f8'"},
      {{"plan", "mlp", "--optimizer", "lion"}, 2, "there is no optimizer 'lion'; there are: sgd"},
      {{"train", "mlp", "--lr", "nan"}, 2, "a learning rate of nan is not possible"},
      {{"train", "mlp", "--lr", "inf"}, 2, "a learning rate of inf is not possible"},
      {{"plan", "mlp", "--lr=-1"}, 2, "a learning rate of -1 is not possible"},
      {{"plan", "mlp", "--prefetch=-1"}, 2, "workers and prefetch cannot be less than 0"},
      {{"plan", "mlp", "--fit"}, 2, "--fit needs a limit"},
      {{"plan", "mlp", "--limit", "20MB"}, 2, "--limit: "},
      {{"train", "mlp", "--device", "tpu"}, 2, "--device: "},
      {{"train", "mlp", "--policy", "best"}, 2, "--policy: 'best' is unknown"},
      {{"train", "mlp", "--policy", "pytorch:best:1"}, 2, "allocator settings: "},
      {{"train", "mlp", "--policy", "paged:best=1"}, 2, "paged has no setting 'best'"},
      {{"train", "mlp", "--limit", "1MiB"}, 3, ""},
      {{"plan", "mlp", "--limit", "1MiB"}, 3, ""}};
  for (const BadStep& bad : cases) {
    const ProcessResult result = headroom_with(bad.arguments);
    EXPECT_EQ(result.exit_code, bad.exit_code) << bad.arguments[1] << result.err;
    EXPECT_THAT(result.err, HasSubstr(bad.message));
  }
}

}  // namespace
}  // namespace headroom::cli
