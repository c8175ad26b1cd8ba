// Pages: an HTML file with its data, script and style in it, and nothing from elsewhere.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace headroom::cli {

// `{"@STYLE@", style}`: a mark in the page, and what stands there instead.
using PagePart = std::pair<std::string_view, std::string>;

// The text of a part is not searched for marks.
[[nodiscard]] inline std::string fill_page(std::string_view html,
                                           const std::vector<PagePart>& parts) {
  std::string out;
  while (!html.empty()) {
    std::size_t first = html.size();
    const PagePart* next = nullptr;
    for (const PagePart& part : parts) {
      const std::size_t at = html.find(part.first);
      if (at >= first) continue;
      first = at;
      next = &part;
    }
    out += html.substr(0, first);
    if (next == nullptr) break;
    out += next->second;
    html.remove_prefix(first + next->first.size());
  }
  return out;
}

// For the inside of a <script>, which `</script>` would end.
[[nodiscard]] inline std::string as_script(const nlohmann::ordered_json& data) {
  std::string text = data.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  for (std::size_t at = 0; (at = text.find('<', at)) != std::string::npos;) {
    text.replace(at, 1, "\\u003c");
  }
  return text;
}

}  // namespace headroom::cli
