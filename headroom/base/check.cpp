#include "headroom/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace headroom::internal {

void check_failed(const char* condition, const char* meaning, const char* file, int line) noexcept {
  std::fprintf(stderr,
               "headroom: internal check failed at %s:%d: %s (%s). This is a bug in headroom; "
               "please report it with this line.\n",
               file,
               line,
               meaning,
               condition);
  std::abort();
}

}  // namespace headroom::internal
