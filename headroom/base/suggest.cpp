#include "headroom/base/suggest.h"

#include <algorithm>
#include <vector>

namespace headroom {

// Optimal string alignment: row i holds the distances from the first i letters of `a`. Three rows
// are enough, because a swap looks back two.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before_last.swap(last);
    last.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({change, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::optional<std::string_view> suggest(std::string_view typed,
                                        std::span<const std::string_view> known) {
  // A third of the letters may be wrong; past that it is another word. Nothing that long is one.
  constexpr std::size_t kLongestWord = 64;
  if (typed.empty() || typed.size() > kLongestWord) return std::nullopt;
  std::size_t best = (typed.size() + 2) / 3 + 1;
  std::optional<std::string_view> found;
  for (const std::string_view word : known) {
    const std::size_t distance = word.starts_with(typed) ? 1 : edit_distance(typed, word);
    if (distance < best) {
      best = distance;
      found = word;
    }
  }
  return found;
}

}  // namespace headroom
