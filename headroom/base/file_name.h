// The name of a file, without its folders.
#pragma once

#include <string_view>

namespace headroom {

// `traces/run.hrt` is `run.hrt`; empty for a folder that is written with a slash at its end. Lies
// in `path`.
[[nodiscard]] constexpr std::string_view file_name(std::string_view path) noexcept {
  return path.substr(path.find_last_of('/') + 1);
}

}  // namespace headroom
