// `headroom doctor` step by step, and from outside on a real snapshot and a pasted message.
#include "cli/doctor/doctor.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "headroom/base/bytes.h"
#include "headroom/report/text.h"
#include "headroom/trace/file.h"

#include "cli/demo/tour.h"
#include "cli/input/samples.h"
#include "tests/support/golden.h"
#include "tests/support/json_schema.h"
#include "tests/support/process.h"
#include "tests/trace/samples.h"

namespace headroom::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using headroom::testing::expect_golden;
using headroom::testing::ProcessResult;
using headroom::testing::run_process;
using headroom::testing::schema_mismatches;

constexpr const char* kSamples = HEADROOM_SOURCE_DIR "/samples/";
constexpr const char* kMessage =
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total "
    "capacity of 23.65 GiB of which 14.19 MiB is free. Process 4711 has 2.00 GiB memory in use. "
    "Including non-PyTorch memory, this process has 21.61 GiB memory in use. Of the allocated "
    "memory 17.10 GiB is allocated by PyTorch, and 4.04 GiB is reserved by PyTorch but "
    "unallocated.";

std::vector<DeviceDiagnosis> devices_of(const trace::Trace& trace) {
  return diagnose::examine_recording(trace, "runs/small.pickle.zst", {});
}

std::vector<DeviceDiagnosis> sample(const std::string& name) {
  const auto file = trace::read_trace(kSamples + name);
  EXPECT_TRUE(file);
  return diagnose::examine_recording(file->trace, "samples/" + name, {});
}

trace::Trace recorded(const char* name) {
  return trace::testing::trace_of(trace::testing::recording(name));
}

void expect_schema(const std::string& text) {
  std::ifstream in(HEADROOM_SOURCE_DIR "/docs/format/doctor.schema.json");
  EXPECT_THAT(schema_mismatches(nlohmann::json::parse(in), nlohmann::json::parse(text)), IsEmpty());
}

void expect_adds_up(const nlohmann::json& account) {
  std::uint64_t sum = 0;
  for (const auto& [name, line] : account["lines"].items()) sum += line.get<std::uint64_t>();
  EXPECT_EQ(sum, account["total_bytes"].get<std::uint64_t>());
}

// `headroom ARGUMENTS` by a shell, where "$1" is the folder of the samples.
ProcessResult headroom(const std::string& arguments) {
  return run_process({.program = "/bin/sh",
                      .arguments = {"-c", "\"$0\" " + arguments, HEADROOM_BINARY, kSamples}});
}

TEST(DoctorCommand, FindsTheLeakOfTheSample) {
  const auto devices = sample("leak_loss.pickle.zst");
  expect_golden("doctor/leak_loss.txt", draw_doctor(devices, {}));
  expect_golden("doctor/leak_loss-color.txt", draw_doctor(devices, {.out = {.has_color = true}}));
  expect_golden("doctor/leak_loss-ascii.txt",
                draw_doctor(devices, {.out = {.has_unicode = false}}));
  const std::string text = doctor_json(devices);
  expect_schema(text);
  const nlohmann::json answer = nlohmann::json::parse(text);
  EXPECT_EQ(answer["verdict"], "leak");
  EXPECT_EQ(answer["findings"][0]["kind"], "leak");
  EXPECT_EQ(answer["findings"][0]["bytes"], 9'437'184);  // the input and eight outputs, 1 MiB each
  EXPECT_THAT(answer["findings"][0]["site"].get<std::string>(), HasSubstr("workloads.py:139"));
  expect_adds_up(answer["account"]);
}

TEST(DoctorCommand, ShowsTheFailureOfARecording) {
  const auto devices = devices_of(trace::testing::small_trace());
  expect_golden("doctor/small.txt", draw_doctor(devices, {}));
  expect_golden("doctor/small.json", doctor_json(devices));
  expect_schema(doctor_json(devices));
  EXPECT_EQ(devices[0].diagnosis.health, diagnose::Health::kShortage);
}

TEST(DoctorCommand, CallsPlainTrainingHealthy) {
  const auto devices = devices_of(recorded("seed_deepnet"));
  EXPECT_EQ(devices[0].diagnosis.health, diagnose::Health::kHealthy);
  EXPECT_THAT(draw_doctor(devices, {}), HasSubstr("\nhealthy: "));
}

TEST(DoctorCommand, ProvesASettingAgainstFragmentation) {
  const auto devices = devices_of(recorded("gnn_sampled"));
  const nlohmann::json answer = nlohmann::json::parse(doctor_json(devices));
  expect_schema(answer.dump());
  expect_adds_up(answer["account"]);
  EXPECT_EQ(answer["verdict"], "fragmentation");
  EXPECT_EQ(answer["findings"][0]["proved"], true);
  EXPECT_THAT(answer["findings"][0]["remedy"].get<std::string>(),
              HasSubstr(answer["devices"][0]["settings"]["best"]["conf"].get<std::string>()));
}

TEST(DoctorCommand, ShowsTheWorstOfSeveral) {
  auto devices = devices_of(recorded("seed_deepnet"));
  for (DeviceDiagnosis& device : sample("leak_loss.pickle.zst"))
    devices.push_back(std::move(device));
  EXPECT_EQ(worst(devices).diagnosis.health, diagnose::Health::kLeak);
  const std::string text = draw_doctor(devices, {});
  EXPECT_THAT(text, HasSubstr("healthy"));
  EXPECT_THAT(text, HasSubstr("\nleak: "));
  EXPECT_EQ(nlohmann::json::parse(doctor_json(devices))["devices"].size(), 2U);
}

TEST(DoctorCommand, ExplainsAPastedMessage) {
  const auto log = diagnose::read_oom_log(kMessage);
  ASSERT_TRUE(log) << log.error();
  expect_golden("doctor/message.txt", draw_messages(*log, {}));
  const std::string text = messages_json(*log);
  expect_schema(text);
  const nlohmann::json answer = nlohmann::json::parse(text);
  EXPECT_EQ(answer["verdict"], "fragmentation");
  expect_adds_up(answer["account"]);
}

TEST(DoctorCommand, StaysWithinTheTerminal) {
  const auto devices = devices_of(trace::testing::small_trace());
  const auto message = diagnose::read_oom_log(kMessage);
  for (int width = 80; width < 120; width += 3) {
    const Context context{.out = {.width = width}};
    std::istringstream lines(draw_doctor(devices, context) + draw_messages(*message, context));
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(report::display_width(line), width) << line;
    }
  }
}

TEST(DoctorCommand, ReadsStandardInput) {
  const std::string echo = std::string("doctor - <<'E'\n") + kMessage + "\nE";
  const ProcessResult done = headroom(echo);
  EXPECT_EQ(done.exit_code, 3);
  EXPECT_THAT(done.out, HasSubstr("_dump_snapshot"));
  const ProcessResult other = headroom("doctor - <<'E'\nhello\nE");
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.err, HasSubstr("no out-of-memory message was found"));
  EXPECT_EQ(headroom("doctor - also.pickle < /dev/null").exit_code, 2);
  const std::string with_version =
      std::string("doctor - --pytorch 1.13 <<'E'\n") + kMessage + "\nE";
  const ProcessResult refused = headroom(with_version);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("written by PyTorch 2.5 or later"));
}

// A number that is missing is not zero, and what is left of the text is no verdict.
TEST(DoctorCommand, SaysThatAMessageIsCut) {
  const std::string text = kMessage;
  const auto log = diagnose::read_oom_log(text.substr(0, text.find(", and 4.04 GiB")));
  ASSERT_TRUE(log) << log.error();
  const std::string drawn = draw_messages(*log, {});
  EXPECT_THAT(drawn, HasSubstr("The text is cut"));
  EXPECT_THAT(drawn, Not(HasSubstr("cached")));
  const std::string json = messages_json(*log);
  expect_schema(json);
  EXPECT_EQ(nlohmann::json::parse(json)["verdict"], "unknown");
}

TEST(DoctorCommand, SaysFirstThatARequestIsLargerThanTheCard) {
  const auto log = diagnose::read_oom_log(
      "CUDA out of memory. Tried to allocate 100.00 GiB. GPU 0 has a total capacity of 23.65 GiB "
      "of which 12.00 MiB is free. Of the allocated memory 22.42 GiB is allocated by PyTorch, and "
      "100.00 MiB is reserved by PyTorch but unallocated.");
  ASSERT_TRUE(log) << log.error();
  const std::string drawn = draw_messages(*log, {});
  EXPECT_THAT(drawn, HasSubstr("larger than the whole card"));
  EXPECT_THAT(drawn, Not(HasSubstr("expandable_segments")));
}

// #22: a container lists the program's own process among the others.
TEST(DoctorCommand, NeverTellsAUserToEndTheirOwnProcess) {
  const auto log = diagnose::read_oom_log(
      "CUDA out of memory. Tried to allocate 200.00 MiB. GPU 0 has a total capacity of 23.65 GiB "
      "of "
      "which 12.00 MiB is free. Process 3381 has 23.58 GiB memory in use. Of the allocated memory "
      "22.42 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.");
  ASSERT_TRUE(log) << log.error();
  const std::string text = draw_messages(*log, {});
  EXPECT_THAT(text, HasSubstr("process 3381, which is this program"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("end other processes")));
  const std::string json = messages_json(*log);
  expect_schema(json);
  EXPECT_THAT(json, ::testing::Not(HasSubstr("end other processes")));
}

// #22: a setting is offered where it exists, under its name there.
TEST(DoctorCommand, OffersTheSettingsOfTheWriter) {
  const auto remedies = [](const std::string& text) {
    const auto log = diagnose::read_oom_log(text);
    EXPECT_TRUE(log);
    const std::string json = messages_json(*log);
    expect_schema(json);
    std::string out;
    const nlohmann::json answer = nlohmann::json::parse(json);
    for (const auto& finding : answer["findings"]) {
      out += finding["remedy"].get<std::string>() + "\n";
    }
    return out;
  };
  const std::string old = remedies(
      "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 10.73 GiB total capacity; 6.00 GiB "
      "already allocated; 0 bytes free; 9.00 GiB reserved in total by PyTorch) If reserved memory "
      "is "
      ">> allocated memory try setting max_split_size_mb to avoid fragmentation.");
  EXPECT_THAT(old, ::testing::Not(HasSubstr("expandable_segments:True")));
  EXPECT_THAT(old, HasSubstr("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb"));
  const std::string hip = remedies(
      "HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.98 GiB of "
      "which 1.70 GiB is free. Of the allocated memory 17.65 GiB is allocated by PyTorch, and 4.00 "
      "GiB is reserved by PyTorch but unallocated.");
  EXPECT_THAT(hip, HasSubstr("PYTORCH_HIP_ALLOC_CONF=expandable_segments:True"));
  EXPECT_THAT(hip, ::testing::Not(HasSubstr("PYTORCH_CUDA_ALLOC_CONF")));
  const std::string mps = remedies(
      "MPS backend out of memory (MPS allocated: 18.00 GB, other allocations: 107.10 MB, max "
      "allowed: 18.13 GB). Tried to allocate 64.50 MB on private pool.");
  EXPECT_THAT(mps, HasSubstr("PYTORCH_MPS_HIGH_WATERMARK_RATIO"));
  EXPECT_THAT(mps, ::testing::Not(HasSubstr("ALLOC_CONF")));
}

TEST(DoctorCommand, SaysThatAMessageDoesNotTell) {
  const auto log = diagnose::read_oom_log("RuntimeError: CUDA error: out of memory");
  ASSERT_TRUE(log) << log.error();
  const std::string json = messages_json(*log);
  expect_schema(json);
  const nlohmann::json answer = nlohmann::json::parse(json);
  EXPECT_EQ(answer["verdict"], "unknown");
  EXPECT_EQ(answer["message"]["source"], "cuda_runtime");
  EXPECT_THAT(draw_messages(*log, {}), HasSubstr("does not say whether"));
  EXPECT_THAT(draw_messages(*log, {}), HasSubstr("_record_memory_history"));
}

TEST(DoctorCommand, ReadsALogByItsName) {
  const auto write = [](const std::string& name, const std::string& text) {
    const std::string path = ::testing::TempDir() + name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  };
  const std::string log = std::string("step 1\n[rank0]: ") + kMessage + "\n";
  const ProcessResult done = headroom("doctor " + write("doctor_oom.log", log));
  EXPECT_EQ(done.exit_code, 3);
  EXPECT_THAT(done.out, HasSubstr("by rank0"));
  // Of several the last that tells a verdict counts.
  const ProcessResult two =
      headroom("doctor --json " +
               write("doctor_two.log", log + "RuntimeError: CUDA error: out of memory\n"));
  EXPECT_EQ(nlohmann::json::parse(two.out)["verdict"], "fragmentation");
  const ProcessResult bounded = headroom("doctor --limit 8GiB " + write("doctor_oom.log", log));
  EXPECT_EQ(bounded.exit_code, 2);
  EXPECT_THAT(bounded.err, HasSubstr("--limit is for recordings"));
  const ProcessResult refused = headroom("doctor " + write("doctor_other.txt", "hello\n"));
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("doctor -"));
}

// Of a process that was killed early, nobody needs to be told to begin recording.
TEST(DoctorCommand, SaysThatARecordingIsCut) {
  const std::filesystem::path path =
      std::filesystem::path(::testing::TempDir()) / "doctor_test_cut.hrt";
  std::filesystem::remove(path);
  const auto file = trace::read_trace(std::string(kSamples) + "leak_loss.pickle.zst");
  ASSERT_TRUE(file && trace::write_trace(file->trace, path.string()));
  std::filesystem::resize_file(path, 200);
  const ProcessResult cut = headroom("doctor '" + path.string() + "'");
  EXPECT_EQ(cut.exit_code, 1);
  EXPECT_THAT(cut.err, HasSubstr("was not closed"));
  EXPECT_THAT(cut.err, HasSubstr("before the first event"));
  std::filesystem::remove(path);
}

TEST(DoctorCommand, KeepsBoundsForContinuousIntegration) {
  const std::string leak = "\"$1\"leak_loss.pickle.zst";
  EXPECT_EQ(headroom("doctor " + leak).exit_code, 3);
  EXPECT_EQ(headroom("doctor --max-growth 9437183 " + leak).exit_code, 3);
  EXPECT_EQ(headroom("doctor --max-growth 9MiB " + leak).exit_code, 0);
  EXPECT_EQ(headroom("doctor --max-growth 9MiB --max-peak 329MiB " + leak).exit_code, 3);
  EXPECT_EQ(headroom("doctor --max-peak much " + leak).exit_code, 2);
  EXPECT_EQ(headroom("doctor --card toaster " + leak).exit_code, 2);
  EXPECT_EQ(headroom("doctor --pytorch new " + leak).exit_code, 2);
  // What was asked about is asked about again.
  EXPECT_THAT(headroom("doctor --limit 8GiB \"$1\"gpt2_varlen.pickle.zst").out,
              HasSubstr(" --limit 8GiB"));
}

TEST(Tour, IsTheSameEachTime) {
  const auto file = trace::read_trace(std::string(kSamples) + kTourSample);
  ASSERT_TRUE(file);
  const Tour tour = play_tour(*file, kTourSample);
  EXPECT_EQ(tour.same_addresses, tour.allocs);
  EXPECT_EQ(tour.segment_mismatches, 0U);
  EXPECT_EQ(tour.diagnosis.health, diagnose::Health::kFragmentation);
  EXPECT_FALSE(tour.rows.front().fits);
  EXPECT_THAT(tour.export_line, HasSubstr("expandable_segments:True"));
  expect_golden("demo/tour.txt", draw_tour(tour, {}));
  expect_golden("demo/tour-ascii.txt", draw_tour(tour, {.out = {.has_unicode = false}}));
}

}  // namespace
}  // namespace headroom::cli
