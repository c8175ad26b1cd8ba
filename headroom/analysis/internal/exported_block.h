// Where in the program a block was made, by annotation, as the exports say it.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/analysis/types.h"

namespace headroom::analysis::internal {

// The annotation of events and blocks with these details; empty where there is none.
[[nodiscard]] inline std::string_view annotation_of(const Trace& trace, DetailsId details) {
  const auto& text = trace.details[details].user_metadata;
  return text ? trace.strings[*text] : std::string_view();
}

// `model/layer1` is two parts, outermost first. What PyTorch's users write is theirs, and one part.
[[nodiscard]] inline std::vector<std::string> annotation_parts(const Trace& trace,
                                                               std::string_view path) {
  if (trace.origin != trace::Origin::kHeadroom) return {std::string(path)};
  std::vector<std::string> parts;
  for (std::size_t start = 0; start <= path.size();) {
    const std::size_t end = std::min(path.find('/', start), path.size());
    if (end > start) parts.emplace_back(path.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

}  // namespace headroom::analysis::internal
