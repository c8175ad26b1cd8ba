// Runs a program and keeps what it wrote, for tests of the command line.
//
//   const ProcessResult done = run_process({.program = kBinary, .arguments = {"--version"}});
//   EXPECT_EQ(done.exit_code, 0);
#pragma once

#include <map>
#include <string>
#include <vector>

namespace headroom::testing {

struct ProcessOptions {
  std::string program{};
  std::vector<std::string> arguments{};
  // Set on top of the tests' own environment, from which all that changes our output is taken:
  // HEADROOM_*, COLUMNS, NO_COLOR, the locale (LANG is C.UTF-8) and TERM (xterm).
  std::map<std::string, std::string> environment{};
  // Written to instead of being kept; "-" closes standard output.
  std::string out_file{};
  // The stream is a terminal of `columns` columns rather than a pipe.
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  int columns = 80;
};

struct ProcessResult {
  int exit_code = -1;  // -1: ended by `signal`
  int signal = 0;
  std::string out;  // line ends of a terminal are plain '\n' here
  std::string err;
};

// Whether a terminal can be made here; a bare chroot has none to give.
[[nodiscard]] bool has_terminals();

// Throws std::system_error when the program cannot be started at all.
[[nodiscard]] ProcessResult run_process(const ProcessOptions& options);

}  // namespace headroom::testing
