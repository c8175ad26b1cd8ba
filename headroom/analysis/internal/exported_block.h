// Where in the program a block was made, by annotation, as the exports say it.
#pragma once

#include <string_view>
#include <vector>

#include "headroom/analysis/types.h"
#include "headroom/memory/annotation.h"

namespace headroom::analysis::internal {

// The annotation of events and blocks with these details; empty where there is none.
[[nodiscard]] inline std::string_view annotation_of(const Trace& trace, DetailsId details) {
  const auto& text = trace.details[details].user_metadata;
  return text ? trace.strings[*text] : std::string_view();
}

// `model/layer1` is two parts, outermost first. What PyTorch's users write is theirs, and one part.
[[nodiscard]] inline std::vector<std::string_view> annotation_parts(const Trace& trace,
                                                                    std::string_view path) {
  if (trace.origin != trace::Origin::kHeadroom) return {path};
  return memory::split_annotation(path);
}

}  // namespace headroom::analysis::internal
