// Reading and writing a large recording take seconds: they report their progress through this.
#pragma once

#include <functional>

namespace headroom::trace {

// Called from time to time with the part of the work that is done, from 0 to 1.
using Progress = std::function<void(double)>;

}  // namespace headroom::trace
