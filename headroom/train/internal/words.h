// Words that users type, and what is said of those that mean nothing.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace headroom::train::internal {

// "there is no model 'gtp2'; did you mean 'gpt2'? There are: mlp, deepnet, ...".
[[nodiscard]] std::string unknown_word(std::string_view what,
                                       std::string_view typed,
                                       std::span<const std::string_view> known);

// As short as can be: "0.1", "nan".
[[nodiscard]] std::string number_word(double number);

}  // namespace headroom::train::internal
