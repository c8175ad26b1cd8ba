#include "headroom/analysis/internal/rule_match.h"

#include <algorithm>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "headroom/analysis/sites.h"

namespace headroom::analysis::internal {
namespace {

constexpr std::uint8_t kDoesNotFit = 1;
constexpr std::uint8_t kFits = 2;

// `model.py`, `nn/model.py` and `model.py:31` name line 31 of /home/me/nn/model.py; `odel.py` and
// `model.py:3` do not.
bool is_place(std::string_view file, std::int64_t line, std::string_view named) {
  const std::string numbered = fmt::format("{}:{}", file, line);
  for (const std::string_view place : {file, std::string_view(numbered)}) {
    if (!place.ends_with(named)) continue;
    const std::size_t before = place.size() - named.size();
    if (before == 0 || place[before - 1] == '/' || place[before - 1] == '\\') return true;
  }
  return false;
}

}  // namespace

RuleMatch::RuleMatch(const Trace& trace, const CategoryRules& rules)
    : trace_(trace), rules_(rules), known_(rules.all.size()) {
  for (std::size_t i = 0; i < known_.size(); ++i) {
    const CategoryRule::Of of = rules.all[i].of;
    if (of == CategoryRule::Of::kSite || of == CategoryRule::Of::kStack) {
      known_[i].assign(trace.stacks.size(), 0);
    }
  }
}

std::optional<memory::Category> RuleMatch::category_of(const Lifetime& block) {
  for (std::size_t i = 0; i < rules_.all.size(); ++i) {
    const CategoryRule& rule = rules_.all[i];
    if (known_[i].empty()) {
      if (fits(rule, block)) return rule.category;
      continue;
    }
    std::uint8_t& known = known_[i][block.stack];
    if (known == 0) known = fits(rule, block) ? kFits : kDoesNotFit;
    if (known == kFits) return rule.category;
  }
  return std::nullopt;
}

bool RuleMatch::fits(const CategoryRule& rule, const Lifetime& block) {
  switch (rule.of) {
    case CategoryRule::Of::kSite:
      return fits_site(rule, block.stack);
    case CategoryRule::Of::kStack:
      return fits_stack(rule, block.stack);
    case CategoryRule::Of::kSize:
      return block.requested_bytes == rule.size_bytes;
    case CategoryRule::Of::kAnnotation: {
      const auto& path = trace_.details[block.details].user_metadata;
      return path && trace_.strings[*path].find(rule.text) != std::string_view::npos;
    }
  }
  return false;
}

// The innermost frame of the user.
bool RuleMatch::fits_site(const CategoryRule& rule, StackId stack) const {
  for (const std::uint32_t id : trace_.stacks.frame_ids(stack)) {
    const Frame& frame = trace_.stacks.frame(id);
    const std::string_view file = trace_.strings[frame.file];
    if (!is_user_frame(file, trace_.strings[frame.name])) continue;
    return is_place(file, frame.line, rule.text);
  }
  return false;
}

// Any frame, by its file or its function.
bool RuleMatch::fits_stack(const CategoryRule& rule, StackId stack) const {
  return std::ranges::any_of(trace_.stacks.frame_ids(stack), [&](std::uint32_t id) {
    const Frame& frame = trace_.stacks.frame(id);
    return trace_.strings[frame.file].find(rule.text) != std::string_view::npos ||
           trace_.strings[frame.name].find(rule.text) != std::string_view::npos;
  });
}

}  // namespace headroom::analysis::internal
