#include "headroom/train/internal/words.h"

#include <array>
#include <charconv>

#include "headroom/base/suggest.h"

namespace headroom::train::internal {

std::string unknown_word(std::string_view what,
                         std::string_view typed,
                         std::span<const std::string_view> known) {
  std::string out = "there is no " + std::string(what) + " '" + std::string(typed) + "'";
  if (const auto meant = suggest(typed, known)) {
    out += "; did you mean '" + std::string(*meant) + "'? There are";
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
