#include "cli/pack/pack.h"

#include <cmath>
#include <memory>
#include <span>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "headroom/base/bytes.h"
#include "headroom/base/check.h"
#include "headroom/base/input_file.h"
#include "headroom/report/text.h"
#include "headroom/solve/packing_file.h"
#include "headroom/solve/validate_packing.h"

#include "cli/commands.h"
#include "cli/input/typed_values.h"
#include "cli/output/output_file.h"

namespace headroom::cli {
namespace {

constexpr double kMostSeconds = 86'400;
constexpr double kSecondsPerLine = 0.1;  // of progress

std::string read_text(const std::string& path) {
  try {
    const auto bytes = headroom::read_input(path == "-" ? "/dev/stdin" : path);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", report::printable(path), error.what()));
  }
}

solve::PackingTable read_problem(const std::string& path) {
  auto table = solve::parse_packing(read_text(path));
  if (table) return *std::move(table);
  throw Error(
      fmt::format("{}:{}: {}", report::printable(path), table.error().line, table.error().message));
}

std::function<void(const solve::PackProgress&)> show_packing(const Context& context) {
  return [&context, shown = 0.0](const solve::PackProgress& now) mutable {
    if (now.seconds < shown + kSecondsPerLine) return;
    shown = now.seconds;
    context.progress(fmt::format("packing ... {}, lower bound {}, {:.0f} s",
                                 format_bytes(now.height_bytes),
                                 format_bytes(now.lower_bound_bytes),
                                 now.seconds));
  };
}

void check_output(const PackRequest& request) {
  if (!request.output.empty()) check_output_file(request.output, request.force);
}

ExitCode run(const PackRequest& request, const Context& context) {
  check_output(request);
  const solve::PackingTable table = read_problem(request.path);
  PackReport report{.request = request, .buffers = table.buffers.size()};
  report.result = solve::pack(table.buffers,
                              {.capacity_bytes = request.capacity_bytes,
                               .seconds = request.seconds,
                               .seed = request.seed,
                               .progress = show_packing(context)});
  context.progress("");
  const solve::PackResult& result = report.result;
  HEADROOM_CHECK(!find_packing_fault(table.buffers, result.offsets, result.height_bytes),
                 "a packing that the validator refuses");
  if (report.is_written()) {
    write_output_file(request.output, solution_text(table, result.offsets), request.force);
  }
  context.print(context.is_json ? pack_json(report) : draw_pack(report, context));
  return report.fits() ? ExitCode::kDone : ExitCode::kBadNews;
}

struct PackArguments {
  PackRequest request{};
  std::string capacity{};
  std::int64_t seed = 0;  // signed, so that -1 is seen to be that
};

PackRequest request_of(const PackArguments& typed) {
  PackRequest request = typed.request;
  request.capacity_bytes = typed_size(typed.capacity, "--capacity");
  if (!std::isfinite(request.seconds) || request.seconds < 0 || request.seconds > kMostSeconds) {
    throw UsageError(
        fmt::format("--seconds: {} is not between 0 and {:.0f}; write a number such as 10",
                    request.seconds,
                    kMostSeconds));
  }
  if (typed.seed < 0) {
    throw UsageError(fmt::format("--seed: {} is negative; write 0 or more", typed.seed));
  }
  request.seed = static_cast<std::uint64_t>(typed.seed);
  return request;
}

RunFunction add_pack(CLI::App& app) {
  auto typed = std::make_shared<PackArguments>();
  PackRequest& request = typed->request;
  app.add_option("PROBLEM",
                 request.path,
                 "a table with the columns id,lower,upper,size and perhaps alignment,hint; - reads "
                 "standard input")
      ->type_name("PROBLEM.csv")
      ->required()
      ->group(kOptionsGroup);
  app.add_option("--capacity",
                 typed->capacity,
                 "the memory that it has to fit in, such as 1MiB; the search ends when it does")
      ->type_name("SIZE")
      ->group(kOptionsGroup);
  app.add_option("--seconds", request.seconds, "how long to search at most (default 10)")
      ->type_name("S")
      ->group(kOptionsGroup);
  app.add_option("--seed", typed->seed, "where chance begins (default 0)")
      ->type_name("N")
      ->group(kOptionsGroup);
  app.add_option("-o,--output", request.output, "write the table with a column offset, if it fits")
      ->type_name("FILE")
      ->group(kOptionsGroup);
  app.add_flag("-f,--force", request.force, "overwrite FILE if it exists")->group(kOptionsGroup);
  return [typed](const Context& context) { return run(request_of(*typed), context); };
}

}  // namespace

Command pack_command() {
  return {.name = "pack",
          .group = "Plan memory",
          .summary = "put buffers with lifetimes at offsets of the least memory",
          .examples =
              "pack problem.csv  the least memory, and how far from the best possible\n"
              "pack problem.csv --capacity 1MiB -o solution.csv  offsets that fit, or exit 3\n"
              "pack problem.csv --seconds 60 --json  search for longer; one object, for programs",
          .add = add_pack};
}

}  // namespace headroom::cli
