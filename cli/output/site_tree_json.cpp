#include "cli/output/site_tree_json.h"

#include <algorithm>

namespace headroom::cli {

nlohmann::ordered_json site_tree_json(std::span<const analysis::SiteNode> nodes, std::size_t top) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const analysis::SiteNode& node : nodes.first(std::min(top, nodes.size()))) {
    json.push_back({{"site", node.label},
                    {"bytes", node.bytes},
                    {"blocks", node.blocks},
                    {"frames", node.frames},
                    {"children", site_tree_json(node.children, node.children.size())}});
  }
  return json;
}

}  // namespace headroom::cli
