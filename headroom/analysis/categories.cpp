#include "headroom/analysis/categories.h"

#include <array>

namespace headroom::analysis {

std::string_view to_string(Certainty certainty) noexcept {
  constexpr std::array<std::string_view, kCertaintyCount> kNames{
      "none", "guess", "lifetime", "stack", "recorded", "rule"};
  return kNames[static_cast<std::size_t>(certainty)];
}

Categories::Categories(const TraceIndex& index, const CategoryRules& /*rules*/)
    : answers_(index.lifetimes().size()) {
  for (std::size_t id = 0; id < answers_.size(); ++id) {
    const auto& details = index.trace().details[index.lifetimes()[id].details];
    if (!details.category) continue;
    answers_[id] = {.category = *details.category, .certainty = Certainty::kRecorded};
  }
}

}  // namespace headroom::analysis
