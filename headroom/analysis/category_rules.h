// Rules of a user that say what blocks are for, where the recording does not and the inference is
// wrong. docs/guide/categories.md has the format:
//
//   parameter   site:model.py:31
//   activation  stack:flash_attn
//   data        size:96MiB
//   workspace   annotation:warmup
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/analysis/types.h"
#include "headroom/base/result.h"
#include "headroom/memory/types.h"

namespace headroom::analysis {

struct CategoryRule {
  enum class Of : std::uint8_t { kSite, kStack, kSize, kAnnotation };

  memory::Category category = memory::Category::kUnknown;
  Of of = Of::kStack;
  std::string text{};            // what the site, a frame or the annotation contains
  std::uint64_t size_bytes = 0;  // for kSize: what was asked for
};

// The first that fits a block decides.
struct CategoryRules {
  std::vector<CategoryRule> all{};

  [[nodiscard]] bool empty() const noexcept { return all.empty(); }
};

struct RuleError {
  std::size_t line = 0;  // from 1
  std::string what{};
};

[[nodiscard]] Result<CategoryRules, RuleError> parse_category_rules(std::string_view text);

}  // namespace headroom::analysis
