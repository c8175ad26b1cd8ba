// A tree of sites for programs; docs/format/info.schema.json has its form.
#pragma once

#include <cstddef>
#include <span>

#include <nlohmann/json.hpp>

#include "headroom/analysis/site_tree.h"

namespace headroom::cli {

// The first `top`, with all that is under them.
[[nodiscard]] nlohmann::ordered_json site_tree_json(std::span<const analysis::SiteNode> nodes,
                                                    std::size_t top);

}  // namespace headroom::cli
