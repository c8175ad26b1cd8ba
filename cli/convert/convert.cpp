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

struct ConvertRequest {
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
std::optional<std::uint64_t> position(const ConvertRequest& request, Format format) {
  if (request.at == "peak") return std::nullopt;
  if (format != Format::kSpeedscope) {
    throw UsageError("--at is only for .speedscope.json, which shows one moment");
  }
  std::uint64_t value = 0;
  if (CLI::detail::lexical_cast(request.at, value)) return value;
  throw UsageError(fmt::format("--at {}: write peak, or a number of events", request.at));
}

// Refused before a long file is read for nothing. The writer looks again.
void check_output(const ConvertRequest& request) {
  std::error_code none;
  if (std::filesystem::equivalent(request.from, request.to, none)) {
    throw Error(fmt::format("'{}' and '{}' are the same file; choose another name for the output",
                            request.from,
                            request.to));
  }
  check_output_file(request.to, request.force);
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

std::string draw(const ConvertRequest& request, const Converted& done, const Context& context) {
  report::Table table({{"", report::Align::kLeft, report::Fit::kShrinks},
                       {"format"},
                       {"size", report::Align::kRight},
                       {"events", report::Align::kRight}});
  const std::string events = format_count(done.input.trace.event_count());
  table.add_row({"read  " + report::printable(request.from),
                 std::string(format_title(done.input.format)),
                 format_bytes(done.input.file_bytes),
                 events});
  table.add_row({"wrote " + report::printable(request.to),
                 std::string(format_title(done.output.format)),
                 format_bytes(done.output_bytes),
                 ""});
  std::string text = table.render(context.out);
  if (!done.input.note.empty()) text += "note: " + report::printable(done.input.note) + "\n";
  const std::string open = where_to_open(done.output.format);
  if (!open.empty()) {
    text += "\n" + open + (done.output.is_packed ? ", once unpacked with zstd -d\n" : "\n");
  }
  return text + "\n" + context.next("info " + shell_word(request.from), "what is in it");
}

nlohmann::ordered_json side_json(const std::string& path,
                                 Format format,
                                 bool is_packed,
                                 std::uint64_t bytes) {
  return {
      {"path", path}, {"format", format_id(format)}, {"is_packed", is_packed}, {"bytes", bytes}};
}

std::string convert_json(const ConvertRequest& request, const Converted& done) {
  const nlohmann::ordered_json json{
      {"schema", 1},
      {"command", "convert"},
      {"input",
       side_json(request.from, done.input.format, done.input.is_packed, done.input.file_bytes)},
      {"output",
       side_json(request.to, done.output.format, done.output.is_packed, done.output_bytes)},
      {"events", done.input.trace.event_count()},
      {"note", done.input.note}};
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

ExitCode run(const ConvertRequest& request, const Context& context) {
  Converted done;
  done.output = target(request.to);
  const auto moment = position(request, done.output.format);
  check_output(request);
  done.input = read_input(request.from, context);
  const auto written =
      analysis::export_trace(done.input.trace,
                             request.to,
                             {.overwrite = request.force,
                              .at_event = moment,
                              .progress = show_progress("writing " + request.to, context)});
  context.progress("");
  if (!written) throw Error(fmt::format("{}: {}", request.to, to_string(written.error())));
  std::error_code none;
  done.output_bytes = std::filesystem::file_size(request.to, none);
  context.print(context.is_json ? convert_json(request, done) : draw(request, done, context));
  return ExitCode::kDone;
}

RunFunction add_convert(CLI::App& app) {
  auto request = std::make_shared<ConvertRequest>();
  app.add_option("in", request->from, "a PyTorch snapshot or a .hrt file, plain or .zst")
      ->type_name("IN")
      ->required()
      ->group(kOptionsGroup);
  app.add_option("out",
                 request->to,
                 "the file to write: .pickle, .hrt, .perfetto.json, .speedscope.json or .csv, each "
                 "also with "
                 ".zst")
      ->type_name("OUT")
      ->required()
      ->group(kOptionsGroup);
  app.add_flag("-f,--force", request->force, "overwrite OUT if it exists")->group(kOptionsGroup);
  app.add_option("--at",
                 request->at,
                 "the moment that a .speedscope.json shows: peak (default), or after N events")
      ->type_name("peak|N")
      ->group(kOptionsGroup);
  return [request](const Context& context) { return run(*request, context); };
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
