#include <cstdlib>
#include <cxxabi.h>
#include <memory>

#include "headroom/trace/record/internal/symboliser.h"

namespace headroom::trace::internal {

std::string demangle(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return status == 0 && plain != nullptr ? plain.get() : name;
}

}  // namespace headroom::trace::internal
