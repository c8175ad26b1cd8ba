// How long work on a long file says that it is getting on.
#pragma once

#include <functional>

namespace headroom::trace {

// Called now and then with what part of the work is done, 0 to 1.
using Progress = std::function<void(double)>;

}  // namespace headroom::trace
