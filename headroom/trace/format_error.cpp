#include "headroom/trace/format_error.h"

#include "headroom/base/bytes.h"

namespace headroom::trace {

std::string to_string(const FormatError& error) {
  if (!error.offset) return error.message;
  return "at byte " + format_count(*error.offset) + ": " + error.message;
}

}  // namespace headroom::trace
