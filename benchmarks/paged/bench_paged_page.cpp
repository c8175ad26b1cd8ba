#include <string>

#include <fmt/format.h>

#include "benchmarks/paged/bench_paged_page_source.h"  // made by CMake from benchmarks/paged/page/
#include "benchmarks/paged/bench_paged_view.h"
#include "cli/output/html_page.h"

namespace headroom::bench {
namespace {

std::string as_typed(const PagedBenchOptions& options) {
  std::string out = "headroom bench paged";
  if (options.seed != 1) out += fmt::format(" --seed {}", options.seed);
  if (options.rounds != 1) out += fmt::format(" --rounds {}", options.rounds);
  if (!options.filter.empty()) out += fmt::format(" --filter \"{}\"", options.filter);
  if (options.finds_smallest_limit) out += " --smallest-limit";
  return out;
}

}  // namespace

std::string paged_bench_page(const PagedBench& bench) {
  nlohmann::ordered_json data = paged_bench_values(bench);
  data["as_typed"] = as_typed(bench.options);
  return cli::fill_page(kPagedPageHtml,
                        {{"@STYLE@", std::string(kPagedPageStyle)},
                         {"@DATA@", cli::as_script(data)},
                         {"@SCRIPT@", std::string(kPagedPageScript)}});
}

}  // namespace headroom::bench
