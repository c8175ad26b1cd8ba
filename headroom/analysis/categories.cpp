#include "headroom/analysis/categories.h"

#include <algorithm>
#include <array>

#include "headroom/analysis/internal/lifetime_roles.h"
#include "headroom/analysis/internal/rule_match.h"
#include "headroom/analysis/internal/stack_roles.h"

namespace headroom::analysis {
namespace {

using internal::Asker;
using memory::Category;

// Who asked for a block says more than how it lives; only the two together tell state from a
// temporary of the optimiser, and parameters from what a model needed while it was built.
CategoryAnswer joined(Asker asker, const CategoryAnswer& lived, bool lives_long) {
  const auto by_stack = [](Category category) {
    return CategoryAnswer{.category = category, .certainty = Certainty::kStack};
  };
  switch (asker) {
    case Asker::kUnknown:
      return lived;
    case Asker::kModel:
      return by_stack(lives_long || lived.category == Category::kParameter ? Category::kParameter
                                                                           : Category::kActivation);
    case Asker::kForward:
      if (lived.category == Category::kWorkspace) return lived;
      return by_stack(Category::kActivation);
    case Asker::kBackward:
      if (lived.category == Category::kWorkspace) return lived;
      return by_stack(Category::kGradient);
    case Asker::kOptimizer:
      return by_stack(lives_long || lived.category == Category::kOptimizerState
                          ? Category::kOptimizerState
                          : Category::kActivation);
    case Asker::kOptimizerState:
      return by_stack(Category::kOptimizerState);
    case Asker::kData:
      return by_stack(Category::kData);
    case Asker::kWorkspace:
      return by_stack(Category::kWorkspace);
  }
  return lived;
}

// To the end, or over a good part of the recording: no temporary does.
bool lives_long(const Lifetime& block, std::uint32_t events) {
  if (block.is_final()) return true;
  return !block.is_initial() && block.end_event - block.alloc_event > events / 3;
}

bool all_recorded(const TraceIndex& index) {
  return std::ranges::all_of(index.lifetimes(), [&](const Lifetime& block) {
    return index.trace().details[block.details].category.has_value();
  });
}

}  // namespace

std::string_view to_string(Certainty certainty) noexcept {
  constexpr std::array<std::string_view, kCertaintyCount> kNames{
      "none", "guess", "lifetime", "stack", "recorded", "rule"};
  return kNames[static_cast<std::size_t>(certainty)];
}

Categories::Categories(const TraceIndex& index, const CategoryRules& rules)
    : answers_(index.lifetimes().size()) {
  const auto blocks = index.lifetimes();
  if (!all_recorded(index)) {
    answers_ = internal::roles_by_lifetime(index);
    internal::Askers askers(index);
    for (std::size_t id = 0; id < blocks.size(); ++id) {
      const bool is_long = lives_long(blocks[id], index.end_position());
      answers_[id] = joined(askers.asker_of(blocks[id]), answers_[id], is_long);
    }
  }
  internal::RuleMatch match(index.trace(), rules);
  for (std::size_t id = 0; id < blocks.size(); ++id) {
    const auto& recorded = index.trace().details[blocks[id].details].category;
    if (recorded) answers_[id] = {.category = *recorded, .certainty = Certainty::kRecorded};
    const auto ruled = match.category_of(blocks[id]);
    if (ruled) answers_[id] = {.category = *ruled, .certainty = Certainty::kRule};
  }
}

}  // namespace headroom::analysis
