// The program from outside: what it prints where, and how it ends.
#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "headroom/report/text.h"

#include "tests/support/golden.h"
#include "tests/support/json_schema.h"
#include "tests/support/process.h"

namespace headroom::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

using headroom::testing::expect_golden;
using headroom::testing::ProcessOptions;
using headroom::testing::ProcessResult;
using headroom::testing::schema_mismatches;

ProcessResult run(std::vector<std::string> arguments, ProcessOptions options = {}) {
  options.program = HEADROOM_BINARY;
  options.arguments = std::move(arguments);
  options.environment.emplace("HEADROOM_CALLED_AS", "headroom");
  return headroom::testing::run_process(options);
}

nlohmann::json devices_schema() {
  std::ifstream in(HEADROOM_SOURCE_DIR "/docs/format/devices.schema.json");
  return nlohmann::json::parse(in);
}

// One line on standard error, nothing on standard output.
void expect_complaint(const ProcessResult& done, int exit_code, const std::string& part) {
  EXPECT_EQ(done.exit_code, exit_code) << done.err;
  EXPECT_EQ(done.out, "");
  EXPECT_THAT(done.err, StartsWith("headroom: "));
  EXPECT_EQ(done.err.find('\n'), done.err.size() - 1) << done.err;
  EXPECT_THAT(done.err, HasSubstr(part));
}

TEST(Cli, PrintsItsVersion) {
  const ProcessResult done = run({"--version"});
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_THAT(done.out, ::testing::MatchesRegex("headroom [0-9]+\\.[0-9]+\\.[0-9]+\n"));
  EXPECT_EQ(done.err, "");
  EXPECT_THAT(run({"--version", "--json"}).out, HasSubstr("\"schema\": 1"));
}

TEST(CliGolden, Help) {
  expect_golden("help.txt", run({"--help"}).out);
  expect_golden("help-demo.txt", run({"demo", "--help"}).out);
  expect_golden("help-doctor.txt", run({"doctor", "--help"}).out);
  expect_golden("help-devices.txt", run({"devices", "--help"}).out);
  expect_golden("help-tune.txt", run({"tune", "--help"}).out);
  expect_golden("help-pack.txt", run({"pack", "--help"}).out);
  expect_golden("help-info.txt", run({"info", "--help"}).out);
  expect_golden("help-replay.txt", run({"replay", "--help"}).out);
  expect_golden("help-compare.txt", run({"compare", "--help"}).out);
  expect_golden("help-convert.txt", run({"convert", "--help"}).out);
}

TEST(Cli, HelpHasSeveralSpellings) {
  for (const char* word : {"--help", "-h", "help"}) {
    EXPECT_EQ(run({word}).exit_code, 0);
    EXPECT_EQ(run({word}).out, run({"--help"}).out);
    EXPECT_EQ(run({word, "devices"}).out, run({"devices", "--help"}).out);
  }
}

TEST(Cli, WrongUsageIsOneLineAndTwo) {
  expect_complaint(run({}), 2, "name a command: ");
  expect_complaint(run({"--json"}), 2, "name a command: ");
  expect_complaint(run({"foo"}), 2, "'foo' is neither a command nor a file; ");
  expect_complaint(run({""}), 2, "'' is neither a command nor a file");
  expect_complaint(run({"/"}), 2, "'/' is a directory; name a command");
  expect_complaint(run({"version"}), 2, "did you mean '--version'?");
  expect_complaint(run({"plan"}), 2, "MODEL is required; see 'headroom plan --help'");
  expect_complaint(run({"convert", "a.pickle"}), 2, "OUT is required");
  expect_complaint(run({"bench", "ops", "--size"}), 2, "--size needs a size, such as 12GiB");
  expect_complaint(run({"doctor", "--card"}), 2, "--card needs a card or a size");
  expect_complaint(run({"train", "mlp", "--steps"}), 2, "--steps needs a number");
  expect_complaint(run({"devcies"}), 2, "did you mean 'devices'?");
  expect_complaint(
      run({"foo"}), 2, "commands: demo, doctor, info, replay, compare, tune, convert, plan, train");
  expect_complaint(run({"devices", "--mesure"}), 2, "did you mean '--measure'?");
  expect_complaint(run({"devices", "--frobnicate"}), 2, "see 'headroom devices --help'");
  expect_complaint(run({"--jsno"}), 2, "did you mean '--json'?");
  expect_complaint(run({"--color"}), 2, "--color");
  expect_complaint(
      run({"--color", "pink"}), 2, "--color: 'pink' is unknown; use one of auto, always, never");
}

TEST(Cli, AnArgumentCannotBreakTheLine) {
  expect_complaint(run({"a\nb\x1b[2J"}), 2, "'a b?[2J'");
  expect_complaint(run({std::string(100000, 'x')}), 2, "neither a command nor a file");
  expect_complaint(run({"\xff\xfe"}), 2, "neither a command nor a file");
}

TEST(Cli, AFileAloneAsksForTheDoctor) {
  expect_complaint(run({HEADROOM_BINARY}), 1, HEADROOM_BINARY);
  const auto done = run({HEADROOM_SOURCE_DIR "/samples/leak_loss.pickle.zst"});
  EXPECT_EQ(done.exit_code, 3);
  EXPECT_THAT(done.out, HasSubstr("\nleak: "));
}

// `Words:` leads to a file, wherever the user is: as short as can be in the clone itself.
TEST(Cli, NamesTheGlossaryWhereItIs) {
  const std::string shown = "\nWords: ";
  const auto glossary_in = [&](const std::string& folder) {
    const ProcessResult done = headroom::testing::run_process(
        {.program = "/bin/sh",
         .arguments = {"-c", "cd \"$1\" && \"$0\" plan mlp", HEADROOM_BINARY, folder}});
    EXPECT_EQ(done.exit_code, 0) << done.err;
    const std::size_t at = done.out.find(shown);
    if (at == std::string::npos) return std::string();
    const std::size_t begin = at + shown.size();
    return done.out.substr(begin, done.out.find('\n', begin) - begin);
  };
  EXPECT_EQ(glossary_in(HEADROOM_SOURCE_DIR), "docs/guide/glossary.md");
  EXPECT_TRUE(std::ifstream(glossary_in("/"))) << glossary_in("/");
}

TEST(Cli, SaysThatItCouldNotWrite) {
  expect_complaint(run({"--version"}, {.out_file = "/dev/full"}), 1, "No space left on device");
  expect_complaint(run({"--version"}, {.out_file = "-"}), 1, "Bad file descriptor");
}

TEST(Cli, IsSpelledAsItWasCalled) {
  EXPECT_THAT(run({"--help"}, {.environment = {{"HEADROOM_CALLED_AS", "./run"}}}).out,
              HasSubstr("Usage: ./run COMMAND"));
  // A name that cannot be typed back as it is gives way to the plain one.
  const bool has_space = std::string(HEADROOM_BINARY).find(' ') != std::string::npos;
  EXPECT_THAT(
      run({"--help"}, {.environment = {{"HEADROOM_CALLED_AS", ""}}}).out,
      HasSubstr(has_space ? "Usage: headroom COMMAND" : "Usage: " HEADROOM_BINARY " COMMAND"));
}

TEST(Cli, ColoursOnlyATerminal) {
  if (!testing::has_terminals()) GTEST_SKIP() << "no terminal can be made here";
  EXPECT_THAT(run({"--help"}).out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(run({"--help"}, {.out_is_terminal = true}).out, HasSubstr("\x1b[1m"));
  EXPECT_THAT(run({"--help", "--color", "never"}, {.out_is_terminal = true}).out,
              Not(HasSubstr("\x1b")));
  EXPECT_THAT(run({"--help", "--color=always"}).out, HasSubstr("\x1b[1m"));
  EXPECT_THAT(run({"--help"}, {.environment = {{"NO_COLOR", "1"}}, .out_is_terminal = true}).out,
              Not(HasSubstr("\x1b")));
}

// --- demo, for real --------------------------------------------------------------------------

// The second act is the golden file to the byte, whatever is set.
TEST(CliDemo, TakesNothingFromTheEnvironment) {
  const ProcessResult done =
      run({"demo", "--steps", "2"},
          {.environment = {{"HEADROOM_ALLOC_CONF", "no_such_key:1"},
                           {"PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"},
                           {"HEADROOM_THREADS", "1"}}});
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_EQ(done.err, "");
  EXPECT_THAT(done.out, HasSubstr("33,437 of 33,437"));
  const std::size_t second = done.out.find("2. Training here");
  ASSERT_NE(second, std::string::npos);
  std::string act = done.out.substr(second);
  // From where the test runs, the glossary is named by its whole path.
  const std::string clone = std::string(HEADROOM_SOURCE_DIR) + "/";
  if (const std::size_t at = act.find(clone); at != act.npos) act.erase(at, clone.size());
  expect_golden("demo/demo.txt", act);
}

// The recording takes seconds, and is looked at above.
ProcessOptions without_samples() { return {.environment = {{"HEADROOM_SAMPLES", "/nowhere"}}}; }

TEST(CliDemo, GoesOnWithoutTheRecordingAsJson) {
  const ProcessResult done = run({"demo", "--json", "--steps", "2"}, without_samples());
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_THAT(done.err, HasSubstr("HEADROOM_SAMPLES"));
  const auto json = nlohmann::json::parse(done.out);
  EXPECT_EQ(json["schema"], 2);
  EXPECT_EQ(json["command"], "demo");
  EXPECT_TRUE(json["recording"].is_null());
  for (const auto& fix : json["training"]["fixes"]) {
    EXPECT_EQ(fix["planned_peak_reserved"], fix["peak_reserved"]) << fix["name"];
    EXPECT_EQ(fix["planned_peak_allocated"], fix["peak_allocated"]) << fix["name"];
  }
}

TEST(CliDemo, SaysWhatIsWrong) {
  expect_complaint(run({"demo", "now"}), 2, "unexpected argument 'now'");
  expect_complaint(run({"demo", "--steps", "1"}), 2, "--steps");
}

// --- devices, for real ------------------------------------------------------------------------

TEST(CliDevices, ShowsThisMachine) {
  const ProcessResult done = run({"devices"});
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_EQ(done.err, "");
  EXPECT_THAT(done.out, HasSubstr("cpu:0"));
  EXPECT_THAT(done.out, HasSubstr("main memory"));
  EXPECT_THAT(done.out, HasSubstr("Next: headroom devices --measure"));
  EXPECT_EQ(run({"devices", "cpu", "cpu:0"}).exit_code, 0);
}

TEST(CliDevices, JsonIsWhatTheSchemaSays) {
  const ProcessResult done = run({"devices", "--json"});
  EXPECT_EQ(done.exit_code, 0);
  const auto json = nlohmann::json::parse(done.out);
  EXPECT_THAT(schema_mismatches(devices_schema(), json), IsEmpty());
  const auto& device = json["devices"].at(0);
  EXPECT_EQ(device["total_bytes"],
            device["used_bytes"].get<std::uint64_t>() + device["free_bytes"].get<std::uint64_t>());
  EXPECT_TRUE(device["hierarchy"].at(0)["latency_ns"].is_null());
}

TEST(CliDevices, OptionsOfEveryCommandMayStandBeforeIt) {
  const auto json = nlohmann::json::parse(run({"-v", "--json", "devices", "cpu:0"}).out);
  EXPECT_EQ(json["command"], "devices");
  EXPECT_THAT(run({"--color", "always", "devices"}).out, HasSubstr("\x1b["));
}

TEST(CliDevices, MeasuresAndSaysSoWhereSomebodyWatches) {
  if (!testing::has_terminals()) GTEST_SKIP() << "no terminal can be made here";
  const ProcessResult done =
      run({"devices", "cpu:0", "--measure", "--json"}, {.err_is_terminal = true});
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_THAT(done.err, StartsWith("\rmeasuring cpu:0 (1 of 1)"));
  EXPECT_THAT(done.err, EndsWith("\r\x1b[K"));  // and takes it away again
  const auto json = nlohmann::json::parse(done.out);
  EXPECT_THAT(schema_mismatches(devices_schema(), json), IsEmpty());
  const auto& levels = json["devices"].at(0)["hierarchy"];
  ASSERT_GE(levels.size(), 2U);
  for (const auto& level : levels) {
    EXPECT_GT(level["read_bytes_per_second"], 0) << level;
    EXPECT_GT(level["latency_ns"], 0) << level;
  }
}

TEST(CliDevices, MeasuresInSilenceWhereNobodyDoes) {
  const ProcessResult done = run({"devices", "--measure"});
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_EQ(done.err, "");
  EXPECT_THAT(done.out, HasSubstr("What memory-bound means: "));
}

TEST(CliDevices, SeveralAreDrawnAsOne) {
  const ProcessResult done =
      run({"devices"},
          {.environment = {{"HEADROOM_CPU_DEVICES", "3"}, {"HEADROOM_CPU_CAPACITY", "64MiB"}}});
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_THAT(done.out, HasSubstr("cpu:0 to cpu:2  "));
  EXPECT_THAT(done.out, HasSubstr("64MiB"));
}

TEST(CliDevices, AskingForNoneOfThemIsAnError) {
  expect_complaint(run({"devices", "cpu:7"}), 1, "cpu:7 does not exist");
  expect_complaint(run({"devices", "cpu:7"}), 1, "cpu:0");
  expect_complaint(run({"devices", "cuda:99", "--json"}), 1, "cuda:99 does not exist");
  expect_complaint(run({"devices", "cpu:0", "tpu"}), 2, "'tpu' names no device");
  expect_complaint(run({"devices", ""}), 2, "'' names no device");
  expect_complaint(run({"devices", "cpu:99999999999999999999"}), 2, "names no device");
}

TEST(CliDevices, GarbageInTheEnvironmentIsNamed) {
  struct Case {
    const char* variable;
    const char* value;
  };
  for (const Case& c : {Case{"HEADROOM_CPU_CAPACITY", "lots"},
                        Case{"HEADROOM_CPU_CAPACITY", "0"},
                        Case{"HEADROOM_CPU_CAPACITY", "1EiB"},
                        Case{"HEADROOM_CPU_CAPACITY", "-5"},
                        Case{"HEADROOM_CPU_CAPACITY", "20GB"},
                        Case{"HEADROOM_CPU_DEVICES", "x"},
                        Case{"HEADROOM_CPU_DEVICES", "0"},
                        Case{"HEADROOM_CPU_DEVICES", "1000000"}}) {
    expect_complaint(run({"devices"}, {.environment = {{c.variable, c.value}}}), 1, c.variable);
  }
}

TEST(CliDevices, SaysThatItCouldNotWrite) {
  for (const char* option : {"--json", "-v"}) {
    expect_complaint(
        run({"devices", option}, {.out_file = "/dev/full"}), 1, "No space left on device");
    // The device's memory must not end up where standard output was.
    expect_complaint(run({"devices", option}, {.out_file = "-"}), 1, "Bad file descriptor");
  }
}

TEST(CliDevices, FollowsTheTerminal) {
  if (!testing::has_terminals()) GTEST_SKIP() << "no terminal can be made here";
  const auto widest = [](const std::string& text) {
    std::istringstream lines(text);
    int width = 0;
    for (std::string line; std::getline(lines, line);) {
      width = std::max(width, report::display_width(line));
    }
    return width;
  };
  const ProcessResult narrow = run({"devices", "-v"}, {.out_is_terminal = true, .columns = 50});
  EXPECT_THAT(narrow.out, HasSubstr("\x1b["));
  EXPECT_LE(widest(narrow.out), 50);
  EXPECT_LE(widest(run({"devices", "-v"}).out), 80);
  const ProcessResult plain = run(
      {"devices"}, {.environment = {{"LANG", "C"}, {"NO_COLOR", "1"}}, .out_is_terminal = true});
  for (const char c : plain.out) ASSERT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << plain.out;
}

}  // namespace
}  // namespace headroom::cli
