#include "cli/doctor/doctor.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <memory>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/doctor/message_text.h"
#include "cli/input/category_rules.h"
#include "cli/input/trace_input.h"
#include "cli/input/typed_values.h"

namespace headroom::cli {
namespace {

struct DoctorArguments {
  std::vector<std::string> paths{};
  std::string limit{};
  std::string card{};
  std::string version{};
  std::string max_peak{};
  std::string max_growth{};
  std::string rules_path{};
};

diagnose::DoctorOptions options_of(const DoctorArguments& typed) {
  diagnose::DoctorOptions options;
  options.bounds.limit_bytes = typed_limit(typed.limit);
  options.max_peak_bytes = typed_size(typed.max_peak, "--max-peak");
  options.max_growth_bytes = typed_size(typed.max_growth, "--max-growth");
  if (const auto card = typed_card(typed.card)) {
    options.bounds.card_bytes = card->size_bytes;
  }
  options.replays.version = typed_pytorch(typed.version);
  if (!typed.rules_path.empty()) {
    options.replays.rules = read_category_rules(typed.rules_path);
  }
  return options;
}

constexpr std::size_t kMostLogBytes = std::size_t{64} << 20U;  // the end of a longer one

// Errors come last, so of what is too long the end is kept.
std::string read_log(std::FILE* file) {
  std::string text;
  std::array<char, 65536> piece{};
  while (const std::size_t got = std::fread(piece.data(), 1, piece.size(), file)) {
    text.append(piece.data(), got);
    if (text.size() > 2 * kMostLogBytes) text.erase(0, text.size() - kMostLogBytes);
  }
  return text;
}

ExitCode show_messages(const diagnose::OomLog& log, const Context& context) {
  context.print(context.is_json ? messages_json(log) : draw_messages(log, context));
  return ExitCode::kBadNews;
}

// Refuses a release of which no message of the text can be, rather than ignore it.
void check_version(const diagnose::OomLog& log,
                   const std::optional<memory::PyTorchVersion>& version) {
  if (!version) return;
  const auto may_be = [&](const diagnose::OomMessage& message) {
    return may_be_of(message, *version);
  };
  if (std::ranges::any_of(log.messages, may_be)) return;
  throw UsageError(fmt::format("--pytorch {}.{}: the text was written by PyTorch {}",
                               version->major,
                               version->minor,
                               version_text(log.messages.back())));
}

// They would be ignored.
void refuse_options_of_recordings(const diagnose::DoctorOptions& options) {
  const std::array<std::pair<bool, std::string_view>, 4> given{
      {{options.bounds.limit_bytes.has_value(), "--limit"},
       {options.bounds.card_bytes.has_value(), "--card"},
       {options.max_peak_bytes.has_value(), "--max-peak"},
       {options.max_growth_bytes.has_value(), "--max-growth"}}};
  for (const auto& [is_given, name] : given) {
    if (is_given) {
      throw UsageError(fmt::format("{} is for recordings; a message says its own numbers", name));
    }
  }
}

ExitCode run_pasted(const diagnose::DoctorOptions& options, const Context& context) {
  refuse_options_of_recordings(options);
  const auto& version = options.replays.version;
  const auto log = diagnose::read_oom_log(read_log(stdin), version);
  if (!log) throw Error(fmt::format("standard input: {}", log.error()));
  check_version(*log, version);
  return show_messages(*log, context);
}

// A file that is text and no recording; unset for anything else.
std::optional<std::string> text_of(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return std::nullopt;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (!file) return std::nullopt;
  // A snapshot starts with 0x80, a .hrt and anything packed with bytes that no text has.
  std::array<char, 512> start{};
  const std::size_t got = std::fread(start.data(), 1, start.size(), file.get());
  const bool is_wide = got >= 2 && start[0] == '\xff' && start[1] == '\xfe';  // PowerShell's
  const bool has_control = std::any_of(start.data(), start.data() + got, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 && (byte < '\a' || byte > '\r') && byte != 0x1b;
  });
  if (got == 0 || start[0] == '\x80' || (has_control && !is_wide)) return std::nullopt;
  std::rewind(file.get());
  return read_log(file.get());
}

ExitCode run_recordings(const std::vector<std::string>& paths,
                        diagnose::DoctorOptions options,
                        const Context& context) {
  options.replays.progress = [&](const std::string& line) { context.progress(line); };
  std::vector<DeviceDiagnosis> devices;
  for (const std::string& path : paths) {
    const trace::TraceFile file = read_input(path, context);
    std::vector<DeviceDiagnosis> found = examine_recording(file.trace, path, options);
    if (found.empty() && !file.note.empty()) {
      throw Error(fmt::format("{}: it has no events: {}", path, file.note));
    }
    if (found.empty()) {
      throw Error(fmt::format(
          "{}: it has no events; call torch.cuda.memory._record_memory_history() before the first "
          "allocation, and record again",
          path));
    }
    std::ranges::move(found, std::back_inserter(devices));
  }
  context.progress("");
  context.print(context.is_json ? doctor_json(devices) : draw_doctor(devices, context));
  const bool is_good = std::ranges::all_of(
      devices, [](const DeviceDiagnosis& device) { return device.diagnosis.is_good(); });
  return is_good ? ExitCode::kDone : ExitCode::kBadNews;
}

// A log with messages. Any other text may still be a recording; where it is none, `-` is named.
ExitCode run_text(const std::string& path,
                  const std::string& text,
                  const diagnose::DoctorOptions& options,
                  const Context& context) {
  const auto& version = options.replays.version;
  if (const auto log = diagnose::read_oom_log(text, version)) {
    refuse_options_of_recordings(options);
    check_version(*log, version);
    return show_messages(*log, context);
  }
  try {
    return run_recordings({path}, options, context);
  } catch (const Error& error) {
    throw Error(
        fmt::format("{}; and the text has no out-of-memory message ('doctor -' reads a pasted one)",
                    error.what()));
  }
}

ExitCode run(const DoctorArguments& typed, const Context& context) {
  const diagnose::DoctorOptions options = options_of(typed);
  const std::vector<std::string>& paths = typed.paths;
  if (std::ranges::find(paths, "-") != paths.end()) {
    if (paths.size() == 1) return run_pasted(options, context);
    throw UsageError("'-' reads a pasted message; give it no recordings as well");
  }
  if (paths.size() == 1) {
    if (const auto text = text_of(paths[0])) return run_text(paths[0], *text, options, context);
  }
  return run_recordings(paths, options, context);
}

RunFunction add_doctor(CLI::App& app) {
  auto typed = std::make_shared<DoctorArguments>();
  app.add_option("RECORDING",
                 typed->paths,
                 "PyTorch snapshots or .hrt files, plain or .zst; or a log file with out-of-memory "
                 "messages; or - to paste a message")
      ->type_name("RECORDING")
      ->required()
      ->group(kOptionsGroup);
  add_limit_option(
      app,
      typed->limit,
      "the most that the allocator may reserve, such as 12GiB: would the program have fitted?");
  add_card_option(app, typed->card);
  add_pytorch_option(
      app, typed->version, "the release that made the recording, such as 2.11 (default: inferred)");
  app.add_option(
         "--max-peak", typed->max_peak, "exit with 3 if more than this was reserved, such as 20GiB")
      ->type_name("SIZE")
      ->group(kOptionsGroup);
  app.add_option(
         "--max-growth",
         typed->max_growth,
         "exit with 3 if a step adds more than this, such as 1MiB; less is not called a leak")
      ->type_name("SIZE")
      ->group(kOptionsGroup);
  app.add_option("--rules",
                 typed->rules_path,
                 "a file of rules that give blocks a category (docs/guide/categories.md)")
      ->type_name("FILE")
      ->group(kOptionsGroup);
  return [typed](const Context& context) { return run(*typed, context); };
}

}  // namespace

Command doctor_command() {
  return {
      .name = "doctor",
      .group = "Start here",
      .summary = "explain why a program runs out of memory, and what to do about it",
      .examples =
          "doctor snapshot.pickle  the cause, where the bytes are, and fixes proved by replay\n"
          "snapshot.pickle  the same, shorter\n"
          "doctor snapshot.pickle --card rtx4090  would it fit on this card?\n"
          "doctor log.txt  explain the out-of-memory messages of a log; - reads a pasted one\n"
          "doctor run.pickle --max-peak 20GiB --max-growth 0  a test for continuous integration",
      .add = add_doctor};
}

}  // namespace headroom::cli
