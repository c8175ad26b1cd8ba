#include "cli/help.h"

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "headroom/report/text.h"

#include "cli/commands.h"

namespace headroom::cli {
namespace {

using report::Tone;

// Two columns: what to type, and what it does, wrapped behind it.
using Entries = std::vector<std::pair<std::string, std::string>>;

std::string help_heading(std::string_view text, const Context& context) {
  return "\n" + report::styled(text, Tone::kStrong, context.out) + "\n";
}

std::string two_columns(const Entries& entries, const Context& context) {
  constexpr int kIndent = 2;
  int widest = 0;
  for (const auto& [term, text] : entries) widest = std::max(widest, report::display_width(term));
  const int column = kIndent + widest + 2;
  std::string out;
  for (const auto& [term, text] : entries) {
    const auto lines = report::wrap(text, context.out.width - column);
    std::string line = report::repeated(" ", kIndent) + report::pad(term, widest) + "  ";
    for (const std::string& part : lines) {
      out += line + part + "\n";
      line = report::repeated(" ", column);
    }
  }
  return out;
}

// `-o, --output FILE`, or a positional's `NAME...`.
std::string option_term(const CLI::Option& option) {
  if (option.get_positional()) {
    const bool is_many = option.get_expected_max() > 1;
    const char* shape = option.get_required() ? "{}{}" : "[{}]{}";
    return fmt::format(fmt::runtime(shape), value_name(option), is_many ? "..." : "");
  }
  std::string names;
  for (const std::string& name : option.get_snames()) names += "-" + name + ", ";
  for (const std::string& name : option.get_lnames()) names += "--" + name + ", ";
  names.resize(names.size() - 2);
  if (option.get_expected_max() > 0) names += " " + value_name(option);
  return names;
}

std::string options_help(const CLI::App& app, const Context& context) {
  std::vector<std::string> groups;
  for (const CLI::Option* option : app.get_options({})) {
    const std::string& group = option->get_group();
    if (!group.empty() && std::ranges::find(groups, group) == groups.end()) groups.push_back(group);
  }
  std::string out;
  for (const std::string& group : groups) {
    Entries entries;
    for (const CLI::Option* option : app.get_options({})) {
      if (option->get_group() != group) continue;
      entries.emplace_back(option_term(*option), option->get_description());
    }
    out += help_heading(group, context) + two_columns(entries, context);
  }
  return out;
}

// Each line of `examples` is the arguments, two spaces, and what they do, which is printed above
// them as a shell comment: both lines can be pasted.
std::string examples_help(std::string_view examples, const Context& context) {
  std::string out = help_heading("Examples", context);
  std::istringstream lines{std::string(examples)};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t gap = std::min(line.find("  "), line.size());
    const std::string what = "# " + line.substr(std::min(gap + 2, line.size()));
    out += fmt::format("  {}\n  {} {}\n",
                       report::styled(what, Tone::kFaint, context.out),
                       context.called_as,
                       line.substr(0, gap));
  }
  return out;
}

std::string commands_help(const Context& context) {
  std::string out;
  std::string_view group;
  Entries entries;
  const auto finish_group = [&] {
    if (!entries.empty()) out += help_heading(group, context) + two_columns(entries, context);
    entries.clear();
  };
  for (const Command& command : commands()) {
    if (command.group != group) finish_group();
    group = command.group;
    entries.emplace_back(command.name, command.summary);
  }
  finish_group();
  return out;
}

}  // namespace

std::string value_name(const CLI::Option& option) {
  const std::string name = option.get_type_name();
  return name.substr(0, name.find(':'));
}

std::string program_help(const CLI::App& app, const Context& context) {
  std::string out = "headroom: where the memory of deep learning goes, and what to do about it\n\n";
  out +=
      fmt::format("Usage: {0} COMMAND [OPTIONS]\n       {0} COMMAND --help\n", context.called_as);
  out += commands_help(context) + options_help(app, context);
  out += help_heading("Exit status", context);
  out += two_columns(
      {{"0", "done"},
       {"1", "could not be done; the message says why"},
       {"2", "wrong usage; the message says what to type"},
       {"3", "done, and the answer is bad: it does not fit, differs, or is not healthy"}},
      context);
  if (commands().empty()) return out;
  std::string examples;
  for (const Command& command : commands()) {
    if (command.group != commands().front().group) continue;
    examples += command.examples.substr(0, command.examples.find('\n'));
    examples += '\n';
  }
  return out + examples_help(examples, context);
}

std::string command_help(const Command& command, const CLI::App& app, const Context& context) {
  std::string usage = fmt::format("Usage: {} {} [OPTIONS]", context.called_as, command.name);
  for (const CLI::Option* option : app.get_options({})) {
    if (option->get_positional()) usage += " " + option_term(*option);
  }
  return fmt::format(
             "{}\n\n{}", usage, report::wrapped(app.get_description(), 0, context.out.width)) +
         options_help(app, context) + examples_help(command.examples, context);
}

}  // namespace headroom::cli
