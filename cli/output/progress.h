// Progress: told in a line what is being done, by what takes long; an empty line ends it.
#pragma once

#include <functional>
#include <string_view>

namespace headroom::cli {

using Progress = std::function<void(std::string_view)>;

}  // namespace headroom::cli
