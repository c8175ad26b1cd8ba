// FormatError: a fault in a file, and where it is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "headroom/base/result.h"

namespace headroom {

struct FormatError {
  std::string message{};                  // what was found, and what to try
  std::optional<std::uint64_t> offset{};  // of the byte, in the file once unpacked
};

// "at byte 1,234: opcode GLOBAL would import ...".
[[nodiscard]] std::string to_string(const FormatError& error);

// The beginning of a text out of a file, short enough for a message: a name may be of any length.
[[nodiscard]] std::string excerpt(std::string_view text);

template <class T>
using FormatResult = Result<T, FormatError>;

}  // namespace headroom
