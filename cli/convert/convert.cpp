#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "headroom/analysis/export.h"
#include "headroom/base/bytes.h"
#include "headroom/report/table.h"
#include "headroom/report/text.h"

#include "cli/commands.h"
#include "cli/input/trace_input.h"
#include "cli/output/output_file.h"

namespace headroom::cli {
namespace {

using trace::Format;

struct ConvertQuestion {
  std::string from{};
  std::string to{};
  bool force = false;
  std::string at = "peak";
};

constexpr const char* kEndings =
    ".pickle, .hrt, .perfetto.json, .speedscope.json or .csv, each also with .zst";

trace::Target target(const std::string& path) {
  const auto known = trace::target_of(path);
  if (known) return *known;
  throw UsageError(
      fmt::format("'{}' does not say which format to write; end it in {}", path, kEndings));
}

// After how many events, where not at the peak.
std::optional<std::uint64_t> position(const ConvertQuestion& question, Format format) {
  if (question.at == "peak") return std::nullopt;
  if (format != Format::kSpeedscope) {
    throw UsageError("--at is only for .speedscope.json, which shows one moment");
  }
  std::uint64_t value = 0;
  if (CLI::detail::lexical_cast(question.at, value)) return value;
  throw UsageError(fmt::format("--at {}: write peak, or a number of events", question.at));
}

// Refused before a long file is read for nothing. The writer looks again.
void check_output(const ConvertQuestion& question) {
  std::error_code none;
  if (std::filesystem::equivalent(question.from, question.to, none)) {
    throw Error(fmt::format("'{}' and '{}' are the same file; choose another name for the output",
                            question.from,
                            question.to));
  }
  check_output_file(question.to, question.force);
}

const char* where_to_open(Format format) {
  switch (format) {
    case Format::kPickle:
      return "open it at https://pytorch.org/memory_viz, or load it in Python with pickle.load";
    case Format::kPerfetto:
      return "open it at https://ui.perfetto.dev, or in chrome://tracing";
    case Format::kSpeedscope:
      return "open it at https://www.speedscope.app; Left Heavy shows who held the most";
    case Format::kHrt:
    case Format::kCsv:
      break;
  }
  return "";
}

struct Converted {
  trace::TraceFile input{};
  trace::Target output{};
  std::uint64_t output_bytes = 0;
};

std::string draw(const ConvertQuestion& question, const Converted& done, const Context& context) {
  report::Table table({{"", report::Align::kLeft, report::Fit::kShrinks},
                       {"format"},
                       {"size", report::Align::kRight},
                       {"events", report::Align::kRight}});
  const std::string events = format_count(done.input.trace.event_count());
  table.add_row({"read  " + report::printable(question.from),
                 std::string(format_title(done.input.format)),
                 format_bytes(done.input.file_bytes),
                 events});
  table.add_row({"wrote " + report::printable(question.to),
                 std::string(format_title(done.output.format)),
                 format_bytes(done.output_bytes),
                 ""});
  std::string text = table.render(context.out);
  if (!done.input.note.empty()) text += "note: " + report::printable(done.input.note) + "\n";
  const std::string open = where_to_open(done.output.format);
  if (!open.empty()) {
    text += "\n" + open + (done.output.is_packed ? ", once unpacked with zstd -d\n" : "\n");
  }
  return text + "\n" + context.next("info " + shell_word(question.from), "what is in it");
}

nlohmann::ordered_json side_json(const std::string& path,
                                 Format format,
                                 bool is_packed,
                                 std::uint64_t bytes) {
  return {
      {"path", path}, {"format", format_id(format)}, {"is_packed", is_packed}, {"bytes", bytes}};
}

std::string convert_json(const ConvertQuestion& question, const Converted& done) {
  const nlohmann::ordered_json json{
      {"schema", 1},
      {"command", "convert"},
      {"input",
       side_json(question.from, done.input.format, done.input.is_packed, done.input.file_bytes)},
      {"output",
       side_json(question.to, done.output.format, done.output.is_packed, done.output_bytes)},
      {"events", done.input.trace.event_count()},
      {"note", done.input.note}};
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

ExitCode run(const ConvertQuestion& question, const Context& context) {
  Converted done;
  done.output = target(question.to);
  const auto moment = position(question, done.output.format);
  check_output(question);
  done.input = read_input(question.from, context);
  const auto written =
      analysis::export_trace(done.input.trace,
                             question.to,
                             {.overwrite = question.force,
                              .at_event = moment,
                              .progress = show_progress("writing " + question.to, context)});
  context.progress("");
  if (!written) throw Error(fmt::format("{}: {}", question.to, to_string(written.error())));
  std::error_code none;
  done.output_bytes = std::filesystem::file_size(question.to, none);
  context.print(context.is_json ? convert_json(question, done) : draw(question, done, context));
  return ExitCode::kDone;
}

RunFunction add_convert(CLI::App& app) {
  auto question = std::make_shared<ConvertQuestion>();
  app.add_option("in", question->from, "a PyTorch snapshot or a .hrt file, plain or .zst")
      ->type_name("IN")
      ->required()
      ->group("Options");
  app.add_option("out",
                 question->to,
                 "the file to write: .pickle, .hrt, .perfetto.json, .speedscope.json or .csv, each "
                 "also with "
                 ".zst")
      ->type_name("OUT")
      ->required()
      ->group("Options");
  app.add_flag("-f,--force", question->force, "overwrite OUT if it exists")->group("Options");
  app.add_option("--at",
                 question->at,
                 "the moment that a .speedscope.json shows: peak (default), or after N events")
      ->type_name("peak|N")
      ->group("Options");
  return [question](const Context& context) { return run(*question, context); };
}

}  // namespace

Command convert_command() {
  return {.name = "convert",
          .group = "Look into a recording",
          .summary = "convert a recording to another format, by the ending of its name",
          .examples =
              "convert snapshot.pickle run.hrt  a smaller file\n"
              "convert run.hrt run.perfetto.json  the timeline, for ui.perfetto.dev\n"
              "convert run.hrt run.speedscope.json  who held memory at the peak",
          .add = add_convert};
}

}  // namespace headroom::cli
