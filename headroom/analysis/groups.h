// Blocks summed up by what they share: who held how much.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headroom/analysis/categories.h"
#include "headroom/analysis/index.h"

namespace headroom::analysis {

enum class GroupBy : std::uint8_t {
  kSite,        // sites.h
  kStack,       // the whole stack; labelled by its site
  kCategory,    // categories.h
  kAnnotation,  // user_metadata
  kModule,      // the innermost module that the stack passes: Sites::module()
  kSize,        // the size asked for
};

struct Group {
  std::string label{};
  std::uint64_t bytes = 0;  // of the blocks, so that groups add up to `allocated` or `active`
  std::uint64_t blocks = 0;
  StackId stack = 0;  // of the largest block; 0 where none was kept
  std::uint64_t largest_bytes = 0;
};

// The largest first; equal ones by label.
[[nodiscard]] std::vector<Group> group_blocks(const TraceIndex& index,
                                              std::span<const std::uint32_t> lifetimes,
                                              GroupBy by);

// The same by category, where these are known already.
[[nodiscard]] std::vector<Group> group_blocks(const TraceIndex& index,
                                              std::span<const std::uint32_t> lifetimes,
                                              const Categories& categories);

}  // namespace headroom::analysis
