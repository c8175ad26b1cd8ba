// The program from outside: what it prints where, and how it ends.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/process.h"

namespace headroom::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using headroom::testing::ProcessOptions;
using headroom::testing::ProcessResult;

ProcessResult run(std::vector<std::string> arguments, ProcessOptions options = {}) {
  options.program = HEADROOM_BINARY;
  options.arguments = std::move(arguments);
  options.environment.emplace("HEADROOM_CALLED_AS", "headroom");
  return headroom::testing::run_process(options);
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

TEST(Cli, HelpFitsTheScreen) {
  for (const char* word : {"--help", "-h", "help"}) {
    const ProcessResult done = run({word});
    EXPECT_EQ(done.exit_code, 0);
    EXPECT_THAT(done.out, HasSubstr("Usage: headroom COMMAND"));
  }
}

TEST(Cli, WrongUsageIsOneLineAndTwo) {
  expect_complaint(run({}), 2, "no command");
  expect_complaint(run({"--json"}), 2, "no command");
  expect_complaint(run({"foo"}), 2, "'foo' is neither a command nor a file; ");
  expect_complaint(run({""}), 2, "'' is neither a command nor a file");
  expect_complaint(run({"/"}), 2, "'/' is neither a command nor a file");
  expect_complaint(run({"--jsno"}), 2, "did you mean '--json'?");
  expect_complaint(run({"--color"}), 2, "--color");
  expect_complaint(run({"--color", "pink"}), 2, "pink not in {auto,always,never}");
}

TEST(Cli, AnArgumentCannotBreakTheLine) {
  expect_complaint(run({"a\nb\x1b[2J"}), 2, "'a b?[2J'");
  expect_complaint(run({std::string(100000, 'x')}), 2, "neither a command nor a file");
  expect_complaint(run({"\xff\xfe"}), 2, "neither a command nor a file");
}

TEST(Cli, AFileAloneAsksForTheDoctor) {
  expect_complaint(run({HEADROOM_BINARY}), 1, "'doctor', which is not in this version");
}

TEST(Cli, SaysThatItCouldNotWrite) {
  expect_complaint(run({"--version"}, {.out_file = "/dev/full"}), 1, "No space left on device");
  expect_complaint(run({"--version"}, {.out_file = "-"}), 1, "Bad file descriptor");
}

TEST(Cli, IsSpelledAsItWasCalled) {
  EXPECT_THAT(run({"--help"}, {.environment = {{"HEADROOM_CALLED_AS", "./run"}}}).out,
              HasSubstr("Usage: ./run COMMAND"));
  EXPECT_THAT(run({"--help"}, {.environment = {{"HEADROOM_CALLED_AS", ""}}}).out,
              HasSubstr("Usage: " HEADROOM_BINARY " COMMAND"));
}

TEST(Cli, ColoursOnlyATerminal) {
  EXPECT_THAT(run({"--help"}).out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(run({"--help"}, {.out_is_terminal = true}).out, HasSubstr("\x1b[1m"));
  EXPECT_THAT(run({"--help", "--color", "never"}, {.out_is_terminal = true}).out,
              Not(HasSubstr("\x1b")));
  EXPECT_THAT(run({"--help", "--color=always"}).out, HasSubstr("\x1b[1m"));
  EXPECT_THAT(run({"--help"}, {.environment = {{"NO_COLOR", "1"}}, .out_is_terminal = true}).out,
              Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace headroom::cli
