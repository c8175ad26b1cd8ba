#include "cli/program.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <new>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "headroom/base/env.h"
#include "headroom/base/suggest.h"
#include "headroom/memory/out_of_memory.h"

#include "cli/commands.h"
#include "cli/help.h"
#include "cli/input/documents.h"
#include "cli/input/typed_values.h"

namespace headroom::cli {
namespace {

// The options that every command has.
struct Globals {
  bool is_json = false;
  bool wants_help = false;
  bool wants_version = false;
  int verbosity = 0;
  std::string color = "auto";
};

// A standard stream that is closed would be handed to the first file that is opened, a device's
// memory for one, and our text written into it. What stands there instead fails every write.
void occupy_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) != -1) continue;
    // The lowest free number is `fd`. It is never used; if this fails, so will the writes.
    [[maybe_unused]] const int opened =
        open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_WRONLY);
  }
}

bool is_plain_word(std::string_view text) {
  constexpr std::string_view kSafe =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:@%,~";
  return !text.empty() && text.find_first_not_of(kSafe) == std::string_view::npos;
}

// How to spell this program so that the user can type it again. A script that stands in front of it
// (./run) says so in HEADROOM_CALLED_AS.
std::string called_as(int argc, char** argv) {
  if (const auto name = env_string("HEADROOM_CALLED_AS")) return *name;
  const std::string_view typed = argc > 0 ? argv[0] : "";
  return is_plain_word(typed) ? std::string(typed) : "headroom";
}

void add_globals(CLI::App& app, Globals& globals) {
  constexpr const char* kGroup = "Options of every command";
  app.set_help_flag();
  app.add_flag("--json", globals.is_json, "print one JSON object, for programs")->group(kGroup);
  app.add_option("--color", globals.color, "auto (default), always or never; auto obeys NO_COLOR")
      ->check(CLI::IsMember({"auto", "always", "never"}).description(""))
      ->type_name("WHEN")
      ->group(kGroup);
  app.add_flag("-v,--verbose", globals.verbosity, "print more; may be repeated")->group(kGroup);
  app.add_flag("-h,--help", globals.wants_help, "show this help")->group(kGroup);
  app.add_flag("--version", globals.wants_version, "show the version")->group(kGroup);
}

Context make_context(const Globals& globals, std::string called) {
  report::ColorChoice choice = report::ColorChoice::kAuto;
  if (globals.color == "always") choice = report::ColorChoice::kAlways;
  if (globals.color == "never") choice = report::ColorChoice::kNever;
  return {.called_as = std::move(called),
          .is_json = globals.is_json,
          .verbosity = globals.verbosity,
          .out = report::detect_terminal(STDOUT_FILENO, choice),
          .err = report::detect_terminal(STDERR_FILENO, choice),
          .glossary_path = find_document("docs/guide/glossary.md").value_or("")};
}

// The first argument that is neither an option nor an option's value.
std::vector<std::string>::iterator find_word(std::vector<std::string>& arguments) {
  for (auto it = arguments.begin(); it != arguments.end(); ++it) {
    if (*it == "--color") {
      if (++it == arguments.end()) break;
    } else if (it->empty() || it->front() != '-' || *it == "-") {
      return it;
    }
  }
  return arguments.end();
}

bool is_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) && !std::filesystem::is_directory(path, ignored);
}

std::vector<std::string_view> all_command_names() {
  std::vector<std::string_view> names;
  for (const Command& command : commands()) names.push_back(command.name);
  return names;
}

// Which command the arguments ask for; takes its name out of them. nullptr when none is named.
// `headroom FILE` means `headroom doctor FILE`.
const Command* choose_command(std::vector<std::string>& arguments) {
  auto word = find_word(arguments);
  if (word != arguments.end() && *word == "help") {
    *word = "--help";
    word = find_word(arguments);
  }
  if (word == arguments.end()) return nullptr;
  const std::string name = *word;
  if (const Command* command = find_command(name)) {
    arguments.erase(word);
    return command;
  }
  if (is_file(name)) return find_command("doctor");
  std::error_code ignored;
  if (std::filesystem::is_directory(name, ignored)) {
    throw UsageError(
        fmt::format("'{}' is a directory; name a command, or a recording in it", name));
  }
  if (name == "version") throw UsageError("'version' is no command; did you mean '--version'?");
  const auto meant = suggest(name, all_command_names());
  throw UsageError(fmt::format("'{}' is neither a command nor a file; {}",
                               name,
                               meant ? fmt::format("did you mean '{}'?", *meant)
                                     : fmt::format("commands: {}", command_names())));
}

std::vector<std::string> long_option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options({})) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// `--size` without a value: what to write behind it.
std::string needed_value(const CLI::App& app, const std::string& option) {
  const CLI::Option* found = app.get_option_no_throw(option);
  const std::string type = found == nullptr ? "" : found->get_type_name();
  if (type.starts_with("SIZE")) return "a size, such as 12GiB";
  if (type.starts_with("CARD")) return "a card or a size, such as h100 or 24GiB";
  if (type.starts_with("FILE")) return "the name of a file";
  if (type.starts_with("N")) return "a number";
  return "a value";
}

// What is missing, in our words: `--size needs a size, such as 12GiB`, `OUT is required`.
std::string missing_message(const CLI::App& app, const std::string& said) {
  constexpr std::string_view kMissing = " missing";
  constexpr std::string_view kRequired = " is required";
  const std::size_t colon = said.find(": 1 required ");
  if (colon != std::string::npos && said.ends_with(kMissing)) {
    const std::string option = said.substr(0, colon);
    return fmt::format("{} needs {}", option, needed_value(app, option));
  }
  if (!said.ends_with(kRequired)) return said;
  const CLI::Option* option =
      app.get_option_no_throw(said.substr(0, said.size() - kRequired.size()));
  if (option == nullptr || !option->get_positional()) return said;
  return std::string(value_name(*option)) + std::string(kRequired);  // as --help spells it
}

// A complaint of CLI11 about a value, in our words: `--steps: 'x' is not a number`.
std::string value_message(const std::string& said) {
  constexpr std::string_view kConvert = "Could not convert: ";
  constexpr std::string_view kRange = ": Value ";
  constexpr std::string_view kOutside = " not in range ";
  constexpr std::string_view kMember = " not in {";
  if (said.starts_with(kConvert)) {
    const std::size_t is = said.find(" = ");
    if (is == std::string::npos) return said;
    return fmt::format("{}: '{}' is not a number",
                       said.substr(kConvert.size(), is - kConvert.size()),
                       said.substr(is + 3));
  }
  const std::size_t value = said.find(kRange);
  const std::size_t range = said.rfind(kOutside);
  if (value != std::string::npos && range != std::string::npos && range > value) {
    const std::size_t from = value + kRange.size();
    return fmt::format("{}: '{}' is not a number from {}",
                       said.substr(0, value),
                       said.substr(from, range - from),
                       said.substr(range + kOutside.size()));
  }
  const std::size_t member = said.rfind(kMember);
  const std::size_t colon = said.find(": ");
  if (member != std::string::npos && colon < member && said.ends_with('}')) {
    std::string names;
    for (const char c : said.substr(member + kMember.size())) {
      if (c != '}') names += c == ',' ? std::string(", ") : std::string(1, c);
    }
    return fmt::format("{}: '{}' is unknown; use one of {}",
                       said.substr(0, colon),
                       said.substr(colon + 2, member - colon - 2),
                       names);
  }
  return said;
}

// The parser's complaint in our words: one line, and where to look.
std::string usage_message(const CLI::App& app,
                          const CLI::ParseError& error,
                          std::string_view help) {
  std::string message = value_message(missing_message(app, error.what()));
  if (const std::vector<std::string> extra = app.remaining(); !extra.empty()) {
    const bool is_option = extra.front().starts_with("-");
    message = fmt::format("unexpected {} '{}'", is_option ? "option" : "argument", extra.front());
    const std::vector<std::string> options = long_option_names(app);
    const std::vector<std::string_view> known(options.begin(), options.end());
    if (const auto meant = suggest(extra.front(), known); meant && is_option) {
      return fmt::format("{}; did you mean '{}'?", message, *meant);
    }
  }
  while (!message.empty() && (message.back() == '\n' || message.back() == '.')) message.pop_back();
  return fmt::format("{}; see '{}'", message, help);
}

// `--version 2.11` once named a release of PyTorch, and would now print ours and be done.
void refuse_old_spelling(const CLI::App& app, const std::vector<std::string>& arguments) {
  constexpr std::string_view kOld = "--version";
  if (app.get_option_no_throw("--pytorch") == nullptr) return;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].starts_with(kOld)) continue;
    const bool is_joined = arguments[i].starts_with("--version=");
    const bool is_last = i + 1 == arguments.size();
    const std::string value = is_joined ? arguments[i].substr(kOld.size() + 1)
                              : arguments[i] == kOld && !is_last ? arguments[i + 1]
                                                                 : "";
    if (!memory::parse_pytorch_version(value)) continue;
    throw UsageError(fmt::format(
        "--version is headroom's version; for the release of PyTorch write --pytorch {}", value));
  }
}

// `--limit "$LIMIT"` with nothing in it is a mistake, not the same as no --limit.
void refuse_empty_values(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options({})) {
    const bool has_empty =
        std::ranges::any_of(option->results(), [](const std::string& one) { return one.empty(); });
    if (!has_empty || option->get_lnames().empty()) continue;
    throw UsageError(fmt::format("--{}: its value is empty; give one, or leave the option out",
                                 option->get_lnames().front()));
  }
}

// `--card list` asks for the cards, whatever command it stands behind, with a file or without.
bool wants_cards(const CLI::App& app) {
  const CLI::Option* card = app.get_option_no_throw("--card");
  return card != nullptr && std::ranges::find(card->results(), "list") != card->results().end();
}

void parse(CLI::App& app,
           std::vector<std::string> arguments,
           const Globals& globals,
           std::string_view help) {
  std::ranges::reverse(arguments);  // as CLI11 wants them
  try {
    app.parse(arguments);
  } catch (const CLI::RequiredError& error) {
    // Whoever asks for help need not name a file. The flags are read by the time this is thrown.
    if (globals.wants_help || globals.wants_version || wants_cards(app)) return;
    throw UsageError(usage_message(app, error, help));
  } catch (const CLI::ParseError& error) {
    throw UsageError(usage_message(app, error, help));
  }
}

std::string version_text(const Context& context) {
  if (!context.is_json) return "headroom " HEADROOM_VERSION "\n";
  nlohmann::ordered_json json;
  json["schema"] = 1;
  json["command"] = "version";
  json["version"] = HEADROOM_VERSION;
  return json.dump(2) + "\n";
}

// No command: --version, --help, or nothing at all.
ExitCode run_bare(const CLI::App& app, const Globals& globals, const Context& context) {
  if (globals.wants_version) {
    context.print(version_text(context));
    return ExitCode::kDone;
  }
  if (globals.wants_help) {
    context.print(program_help(app, context));
    return ExitCode::kDone;
  }
  throw UsageError(
      fmt::format("name a command: {}; see '{} --help'", command_names(), context.called_as));
}

ExitCode run(std::vector<std::string> arguments, const std::string& called) {
  const Command* command = choose_command(arguments);
  Globals globals;
  CLI::App app;
  RunFunction run_command;
  if (command != nullptr) {
    app.description(std::string(command->summary));
    run_command = command->add(app);
  }
  add_globals(app, globals);
  refuse_old_spelling(app, arguments);
  parse(
      app,
      std::move(arguments),
      globals,
      command == nullptr ? called + " --help" : fmt::format("{} {} --help", called, command->name));
  const Context context = make_context(globals, called);
  if (command == nullptr || globals.wants_version) return run_bare(app, globals, context);
  if (globals.wants_help) {
    context.print(command_help(*command, app, context));
    return ExitCode::kDone;
  }
  refuse_empty_values(app);
  if (wants_cards(app)) {
    context.print(cards_text(context));
    return ExitCode::kDone;
  }
  return run_command(context);
}

}  // namespace

int run_program(int argc, char** argv) noexcept {
  const Context plain;
  const auto fail = [&](std::string_view line, ExitCode code) {
    try {
      plain.say(line);
    } catch (...) {
      // Nowhere to say it, or no memory to say it with: the status remains.
    }
    return static_cast<int>(code);
  };
  try {
    occupy_standard_streams();
    // A file-size limit then fails a write, which says so, instead of ending the command.
    (void)std::signal(SIGXFSZ, SIG_IGN);
    std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
    return static_cast<int>(run(std::move(arguments), called_as(argc, argv)));
  } catch (const UsageError& error) {
    return fail(error.what(), ExitCode::kWrongUsage);
  } catch (const memory::OutOfMemory& error) {
    // A table, which one line would spoil.
    (void)std::fprintf(stderr, "headroom: %s\n", error.what());
    return static_cast<int>(ExitCode::kCouldNot);
  } catch (const std::bad_alloc&) {
    return fail("main memory ran out", ExitCode::kCouldNot);
  } catch (const std::exception& error) {
    return fail(error.what(), ExitCode::kCouldNot);
  } catch (...) {
    return fail("an unknown error; please report it", ExitCode::kCouldNot);
  }
}

}  // namespace headroom::cli
