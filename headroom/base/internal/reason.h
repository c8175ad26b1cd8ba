// Why the system refused a call, as the end of a message.
#pragma once

#include <string>
#include <system_error>

#include "headroom/base/error.h"

namespace headroom::internal {

// "it cannot be opened: No such file or directory".
[[noreturn]] inline void fail_with_reason(const std::string& what, int reason) {
  throw Error(what + ": " + std::generic_category().message(reason));
}

}  // namespace headroom::internal
