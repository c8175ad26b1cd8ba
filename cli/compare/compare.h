// `headroom compare`: recordings under every policy, side by side, on the terminal, as JSON or as
// a page such as docs/guide/comparison.md. Every number is measured while it runs.
#pragma once

#include <string>
#include <vector>

#include "headroom/replay/compare.h"

#include "cli/command.h"

namespace headroom::cli {

using replay::ComparedPolicy;
using replay::ComparedRecording;

struct CompareRequest {
  std::vector<std::string> paths{};  // none: the samples
  replay::CompareOptions options{};
  std::string as_typed = "headroom compare";  // the command line that the page shows
};

struct Comparison {
  CompareRequest request{};
  std::vector<ComparedRecording> recordings{};  // one for each device that has a history
};

[[nodiscard]] Comparison compare(const CompareRequest& request, const Context& context);

// No bound was exceeded.
[[nodiscard]] ExitCode verdict(const Comparison& comparison);

[[nodiscard]] std::string draw_comparison(const Comparison& comparison, const Context& context);
[[nodiscard]] std::string comparison_json(const Comparison& comparison);
[[nodiscard]] std::string comparison_page(const Comparison& comparison);

}  // namespace headroom::cli
