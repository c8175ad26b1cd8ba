// Whether bytes are UTF-8 as Python writes strings: surrogates, which stand for the bytes of odd
// file names, are let through.
#pragma once

#include <string_view>

namespace headroom::trace::internal {

[[nodiscard]] bool is_utf8(std::string_view text) noexcept;
[[nodiscard]] bool is_ascii(std::string_view text) noexcept;

}  // namespace headroom::trace::internal
