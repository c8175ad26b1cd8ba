// Who held memory, drawn: a tree of sites, and whole stacks.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "headroom/analysis/site_tree.h"
#include "headroom/analysis/summary.h"
#include "headroom/report/terminal.h"

namespace headroom::cli {

// A table of the first `top` sites with what splits them; `whole` is what the shares are of. Fits
// the terminal.
[[nodiscard]] std::string draw_site_tree(std::span<const analysis::SiteNode> sites,
                                         std::size_t top,
                                         std::uint64_t whole,
                                         const report::Terminal& terminal);

// The first `top` stacks, each with its frames under it, innermost first and without wrappers.
[[nodiscard]] std::string draw_stacks(std::span<const analysis::Holder> stacks,
                                      std::size_t top,
                                      std::uint64_t whole,
                                      const report::Terminal& terminal);

}  // namespace headroom::cli
