#include "headroom/analysis/internal/recomputed.h"

#include <algorithm>
#include <cstdint>
#include <unordered_set>

namespace headroom::analysis::internal {
namespace {

// So many sizes in a row that a backward does not ask for by accident.
constexpr std::size_t kRow = 4;

std::uint64_t row_hash(std::span<const Lifetime> blocks, std::size_t at) {
  std::uint64_t hash = 0;
  for (std::size_t k = 0; k < kRow; ++k) {
    hash = (hash ^ blocks[at + k].requested_bytes) * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 29U;
  }
  return hash;
}

}  // namespace

std::vector<char> find_recomputed(std::span<const Lifetime> forward,
                                  std::span<const Lifetime> backward,
                                  std::span<const CategoryAnswer> known) {
  std::vector<char> out(backward.size(), 0);
  std::unordered_set<std::uint64_t> rows;
  for (std::size_t i = 0; i + kRow <= forward.size(); ++i) rows.insert(row_hash(forward, i));
  for (std::size_t i = 0; i + kRow <= backward.size(); ++i) {
    const bool has_known = std::ranges::any_of(known.subspan(i, kRow), [](const auto& answer) {
      return answer.category == memory::Category::kGradient;
    });
    if (has_known || !rows.contains(row_hash(backward, i))) continue;
    for (std::size_t k = 0; k < kRow; ++k) out[i + k] = 1;
  }
  // Behind what is computed again comes its gradient, which often has the next size in the row. The
  // last result that is computed again is needed by nobody and goes at once.
  for (std::size_t i = 0; i < out.size(); ++i) {
    const bool is_last = i + 1 == out.size() || out[i + 1] == 0;
    if (out[i] != 0 && is_last) out[i] = 0;
  }
  return out;
}

}  // namespace headroom::analysis::internal
