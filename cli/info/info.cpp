#include "cli/info/info.h"

#include <array>
#include <memory>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/input/category_rules.h"
#include "cli/input/trace_input.h"

namespace headroom::cli {
namespace {

ExitCode run(const InfoRequest& request, const Context& context) {
  const trace::TraceFile file = read_input(request.path, context);
  analysis::RecordingSummary summary;
  try {
    summary = look_into(file, request.options);
  } catch (const InvalidArgument& error) {
    throw UsageError(fmt::format("{}: {}", request.path, error.what()));
  }
  context.print(context.is_json ? info_json(summary, request)
                                : draw_info(summary, request, context));
  return ExitCode::kDone;
}

std::optional<InfoBy> typed_by(const std::string& text) {
  if (text.empty()) return std::nullopt;
  constexpr std::array kWays{std::pair{"site", InfoBy::kSite},
                             std::pair{"stack", InfoBy::kStack},
                             std::pair{"module", InfoBy::kModule}};
  const std::string lower = CLI::detail::to_lower(text);
  for (const auto& [name, way] : kWays) {
    if (lower == name) return way;
  }
  throw UsageError(fmt::format("--by: '{}' is unknown; use site, stack or module", text));
}

RunFunction add_info(CLI::App& app) {
  auto request = std::make_shared<InfoRequest>();
  auto rules = std::make_shared<std::string>();
  app.add_option("RECORDING", request->path, "a PyTorch snapshot or a .hrt file, plain or .zst")
      ->type_name("RECORDING")
      ->required()
      ->group(kOptionsGroup);
  app.add_option("--top", request->options.top, "how many rows to list in each table (default 8)")
      ->type_name("N")
      ->check(CLI::Range(0, 1'000'000))
      ->group(kOptionsGroup);
  app.add_option("--device",
                 request->options.device,
                 "only this device, such as cuda:1 or 1 (default: the one with the highest peak)")
      ->type_name("DEVICE")
      ->group(kOptionsGroup);
  app.add_option("--rules",
                 *rules,
                 "a file of rules that give blocks a category (docs/guide/categories.md)")
      ->type_name("FILE")
      ->group(kOptionsGroup);
  auto by = std::make_shared<std::string>();
  app.add_option("--by", *by, "list who held memory by site (default), stack or module")
      ->type_name("WHAT")
      ->group(kOptionsGroup);
  return [request, by, rules](const Context& context) {
    request->by = typed_by(*by);
    if (!rules->empty()) request->options.rules = read_category_rules(*rules);
    return run(*request, context);
  };
}

}  // namespace

Command info_command() {
  return {.name = "info",
          .group = "Look into a recording",
          .summary = "show what a recording holds: peaks, who held them, sizes, lifetimes",
          .examples =
              "info snapshot.pickle  the peaks, and who held memory then\n"
              "info run.hrt --top 20  more rows in each table\n"
              "info snapshot.pickle --by stack  whole stacks; --by module groups by module\n"
              "info snapshot.pickle --json | jq .peak_allocated  one number, for programs",
          .add = add_info};
}

}  // namespace headroom::cli
