#include "headroom/train/internal/words.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <vector>

namespace headroom::train::internal {
namespace {

// Letters to add, drop or change.
std::size_t letters_apart(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string unknown_word(std::string_view what,
                         std::string_view typed,
                         std::span<const std::string_view> known) {
  std::string out = "there is no " + std::string(what) + " '" + std::string(typed) + "'";
  const auto nearest = std::ranges::min_element(
      known, {}, [typed](std::string_view word) { return letters_apart(typed, word); });
  if (nearest != known.end() &&
      letters_apart(typed, *nearest) <= std::max<std::size_t>(2, typed.size() / 3)) {
    out += "; did you mean '" + std::string(*nearest) + "'? There are";
  } else {
    out += "; there are";
  }
  const char* separator = ": ";
  for (const std::string_view word : known) {
    out += separator + std::string(word);
    separator = ", ";
  }
  return out;
}

std::string number_word(double number) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number).ptr;
  return {text.data(), end};
}

}  // namespace headroom::train::internal
