// "Did you mean": the known word nearest to a mistyped one.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace headroom {

// Letters to add, drop, change or swap with a neighbour to get from one word to the other.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

// The nearest of `known`, if it is near enough that the user may have meant it: at most a third of
// the letters are wrong, or it begins with what was typed.
[[nodiscard]] std::optional<std::string_view> suggest(std::string_view typed,
                                                      std::span<const std::string_view> known);

}  // namespace headroom
