// Command: a name, its options and how to run it; Context: what it runs with.
//
// A command lives in a folder of its own, cli/NAME/, and is listed in cli/commands.cpp. It adds
// its options to a CLI::App and returns what is to run once they are parsed:
//
//   RunFunction add_devices(CLI::App& app) {
//     auto options = std::make_shared<Options>();
//     app.add_flag("--measure", options->measure, "...");
//     return [options](const Context& context) { return run(*options, context); };
//   }
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "headroom/base/error.h"
#include "headroom/report/terminal.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's own name
class App;
}

namespace headroom::cli {

enum class ExitCode : int {
  kDone = 0,
  kCouldNot = 1,
  kWrongUsage = 2,
  kBadNews = 3,  // done, and the answer is that something is wrong
};

// The group of a command's options in its help; those of every command have their own.
inline constexpr const char* kOptionsGroup = "Options";

// Thrown for what the user typed wrong; ends the program with kWrongUsage.
class UsageError : public Error {
 public:
  using Error::Error;
};

// Given to every command: how it was called, and where its text goes.
struct Context {
  std::string called_as = "headroom";  // how to spell this program in a hint
  bool is_json = false;
  int verbosity = 0;
  report::Terminal out{};  // what standard output is
  report::Terminal err{};
  std::string glossary_path = "docs/guide/glossary.md";  // empty: it is not there

  // Data, to standard output. Throws Error when it cannot be written.
  void print(std::string_view text) const;
  // Talk, to standard error, as one line of its own.
  void say(std::string_view line) const;
  // Shows what takes long, where somebody is watching; an empty line takes it away.
  void progress(std::string_view line) const;
  // The same for what takes minutes: a log gets it too, as a line of its own.
  void stage(std::string_view line) const;
  // The line before next(): where the terms of the report are explained; empty where that is not
  // there.
  [[nodiscard]] std::string glossary() const;
  // A report of the library, which ends with a line of its own for that, with this one instead.
  [[nodiscard]] std::string with_glossary(std::string_view report) const;
  // The last line of a report: the next command worth typing, and why.
  [[nodiscard]] std::string next(std::string_view arguments, std::string_view why) const;
};

using RunFunction = std::function<ExitCode(const Context&)>;

struct Command {
  std::string_view name;
  std::string_view group;     // the heading it stands under in `headroom --help`
  std::string_view summary;   // one line
  std::string_view examples;  // lines of "ARGUMENTS  what it does", without the program's name
  RunFunction (*add)(CLI::App& app);
};

}  // namespace headroom::cli
