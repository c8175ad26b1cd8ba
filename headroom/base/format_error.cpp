#include "headroom/base/format_error.h"

#include "headroom/base/bytes.h"

namespace headroom {

std::string to_string(const FormatError& error) {
  if (!error.offset) return error.message;
  return "at byte " + format_count(*error.offset) + ": " + error.message;
}

}  // namespace headroom
