// What `headroom pack` prints.
#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "headroom/base/bytes.h"
#include "headroom/report/table.h"
#include "headroom/report/text.h"

#include "cli/input/trace_input.h"
#include "cli/output/json_values.h"
#include "cli/output/layout.h"
#include "cli/pack/pack.h"

namespace headroom::cli {
namespace {

// `0.31 %`; a gap that is there is never shown as none.
std::string gap_text(const solve::PackResult& result) {
  if (result.is_optimal()) return "0 %";
  const double percent = 100 * result.gap();
  return percent < 0.01 ? "<0.01 %" : fmt::format("{:.2f} %", percent);
}

std::string capacity_text(const PackReport& report) {
  const std::uint64_t capacity = *report.request.capacity_bytes;
  if (report.fits()) {
    return "it fits, with " + format_bytes(capacity - report.result.height_bytes) + " to spare";
  }
  if (report.cannot_fit()) return "no packing fits";
  return "no packing that fits was found";
}

std::string next_command(const PackReport& report, const Context& context) {
  // What was read from a pipe is gone.
  const std::string pack =
      "pack " + (report.request.path == "-" ? "problem.csv" : shell_word(report.request.path));
  const solve::PackResult& result = report.result;
  if (!report.fits() && report.cannot_fit()) {
    return context.next(fmt::format("{} --capacity {} -o solution.csv", pack, result.height_bytes),
                        "what does fit");
  }
  const bool may_be_lower = !report.request.capacity_bytes && !result.is_optimal();
  if (!report.fits() || (may_be_lower && report.is_written())) {
    return context.next(
        fmt::format("{}{} --seconds {:.0f}",
                    pack,
                    report.request.capacity_bytes
                        ? fmt::format(" --capacity {}", *report.request.capacity_bytes)
                        : "",
                    6 * std::max(report.request.seconds, 1.0)),
        "search for longer");
  }
  if (report.is_written()) {
    return context.next(pack + " --json", "the same for programs");
  }
  return context.next(pack + " -o solution.csv", "write the offsets");
}

}  // namespace

std::string draw_pack(const PackReport& report, const Context& context) {
  const solve::PackResult& result = report.result;
  std::string text =
      fmt::format("{}  {}{}\n\n",
                  report::printable(report.request.path),
                  counted(report.buffers, "buffer", "buffers"),
                  result.seconds < 1 ? "" : fmt::format(", searched for {:.0f} s", result.seconds));
  report::Table table(
      {{""}, {"size", report::Align::kRight}, {"bytes", report::Align::kRight}, {""}});
  const auto add = [&](const std::string& label, std::uint64_t bytes, const std::string& why) {
    table.add_row({label, format_bytes(bytes), format_count(bytes), why});
  };
  add("height", result.height_bytes, "the memory that the packing takes");
  add("lower bound", result.lower_bound_bytes, "no packing takes less");
  if (report.request.capacity_bytes) {
    add("capacity", *report.request.capacity_bytes, capacity_text(report));
  }
  table.add_row({"gap",
                 gap_text(result),
                 "",
                 result.is_optimal() ? "the packing is optimal" : "of the lower bound"});
  text += table.render(context.out);
  if (report.is_written()) {
    text += fmt::format("\nwrote {}\n", report::printable(report.request.output));
  } else if (!report.request.output.empty()) {
    text += fmt::format("\nnothing was written to {}: it does not fit\n",
                        report::printable(report.request.output));
  }
  return text + "\n" + context.glossary() + next_command(report, context);
}

std::string pack_json(const PackReport& report) {
  const solve::PackResult& result = report.result;
  nlohmann::ordered_json json{{"schema", 1},
                              {"command", "pack"},
                              {"file", report.request.path},
                              {"buffers", report.buffers},
                              {"capacity", value_json(report.request.capacity_bytes)},
                              {"height", result.height_bytes},
                              {"lower_bound", result.lower_bound_bytes},
                              {"gap", result.gap()},
                              {"is_optimal", result.is_optimal()},
                              {"fits", nullptr},
                              {"output", nullptr},
                              {"seed", report.request.seed},
                              {"rounds", result.rounds},
                              {"seconds", result.seconds}};
  if (report.request.capacity_bytes) json["fits"] = report.fits();
  if (report.is_written()) json["output"] = report.request.output;
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace headroom::cli
