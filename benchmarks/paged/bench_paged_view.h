// The views of `bench paged`: text, JSON and a page.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "benchmarks/paged/bench_paged.h"
#include "cli/command.h"

namespace headroom::bench {

[[nodiscard]] std::string draw_paged_bench(const PagedBench& bench, const cli::Context& context);
[[nodiscard]] nlohmann::ordered_json paged_bench_values(const PagedBench& bench);
[[nodiscard]] std::string paged_bench_json(const PagedBench& bench);
// One HTML file with its data, script and style, and nothing from elsewhere.
[[nodiscard]] std::string paged_bench_page(const PagedBench& bench);
// Every generator with its one line, where nothing is measured.
[[nodiscard]] std::string draw_generators(const std::vector<Generator>& generators,
                                          const cli::Context& context);
[[nodiscard]] std::string generators_json(const std::vector<Generator>& generators);

// `61 of 90 rows keep the promise`, and what it is.
[[nodiscard]] std::string promise_sentence(const PagedBench& bench);

}  // namespace headroom::bench
