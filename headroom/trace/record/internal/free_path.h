// Names for files that must not replace others.
#pragma once

#include <string>

namespace headroom::trace::internal {

// `%p` becomes the number of this process.
[[nodiscard]] std::string expand_path(const std::string& pattern);

// `path`, or where that exists `name-1.pickle.zst`, `name-2.pickle.zst` and so on.
[[nodiscard]] std::string free_path(const std::string& path);

}  // namespace headroom::trace::internal
