// "Did you mean": the known word nearest to a mistyped one.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace headroom::cli {

// Letters to add, drop, change or swap with a neighbour to get from one word to the other.
[[nodiscard]] int edit_distance(std::string_view a, std::string_view b);

// The nearest of `known`, if it is near enough that the user may have meant it.
[[nodiscard]] std::optional<std::string> suggest(std::string_view typed,
                                                 std::span<const std::string> known);

}  // namespace headroom::cli
