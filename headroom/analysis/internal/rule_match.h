// Which rule of a user fits a block.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "headroom/analysis/category_rules.h"
#include "headroom/analysis/lifetimes.h"

namespace headroom::analysis::internal {

class RuleMatch {
 public:
  // Both are referred to.
  RuleMatch(const Trace& trace, const CategoryRules& rules);

  // The category of the first rule that fits.
  [[nodiscard]] std::optional<memory::Category> category_of(const Lifetime& block);

 private:
  [[nodiscard]] bool fits(const CategoryRule& rule, const Lifetime& block);
  [[nodiscard]] bool fits_site(const CategoryRule& rule, StackId stack) const;
  [[nodiscard]] bool fits_stack(const CategoryRule& rule, StackId stack) const;

  const Trace& trace_;
  const CategoryRules& rules_;
  // For each rule and stack: 0 not known yet, 1 does not fit, 2 fits.
  std::vector<std::vector<std::uint8_t>> known_;
};

}  // namespace headroom::analysis::internal
