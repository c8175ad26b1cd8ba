// The category of each block of a recording: parameters, gradients, activations, ...
//
//   const Categories categories(index);
//   for (std::uint32_t id : index.allocated_at(peak)) bytes[categories.category_of(id)] += ...;
//
// Our own recordings say it. Others do not, and it is inferred: from the stacks and annotations
// where there are any (the frames of an optimiser, of the backward engine, of a model's
// construction), else from the lifetimes alone, as docs/guide/categories.md describes. Each answer
// says how sure it is; where nothing fits it is `unknown`. The time is linear in the recording.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "headroom/analysis/category_rules.h"
#include "headroom/analysis/index.h"
#include "headroom/memory/types.h"

namespace headroom::analysis {

// How a category is known, the least sure first.
enum class Certainty : std::uint8_t {
  kNone,      // it is not: the category is `unknown`
  kGuess,     // it lives as such blocks do, but so may others
  kLifetime,  // sizes, births and ends fit together: a gradient for its parameter, and so on
  kStack,     // frames or annotations name it
  kRecorded,  // the recording says it
  kRule,      // a rule of the user does
};
inline constexpr std::size_t kCertaintyCount = static_cast<std::size_t>(Certainty::kRule) + 1;

// `guess`, `lifetime`, `stack`, `recorded`, `rule`; `none`.
[[nodiscard]] std::string_view to_string(Certainty certainty) noexcept;

struct CategoryAnswer {
  memory::Category category = memory::Category::kUnknown;
  Certainty certainty = Certainty::kNone;

  friend bool operator==(const CategoryAnswer&, const CategoryAnswer&) = default;
};

class Categories {
 public:
  // Neither is kept.
  explicit Categories(const TraceIndex& index, const CategoryRules& rules = {});

  // By the lifetime's number in TraceIndex::lifetimes().
  [[nodiscard]] memory::Category category_of(std::uint32_t lifetime) const {
    return answers_[lifetime].category;
  }
  [[nodiscard]] Certainty certainty_of(std::uint32_t lifetime) const {
    return answers_[lifetime].certainty;
  }

 private:
  std::vector<CategoryAnswer> answers_;
};

}  // namespace headroom::analysis
