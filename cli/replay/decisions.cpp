#include "cli/replay/decisions.h"

#include <iterator>

#include <fmt/format.h>

#include "headroom/base/error.h"

#include "cli/output/output_file.h"

namespace headroom::cli {

void DecisionLog::record(const memory::Event& event) noexcept {
  try {
    fmt::format_to(std::back_inserter(text_),
                   "{},{},{},{}\n",
                   memory::to_string(event.action),
                   event.address,
                   event.size_bytes,
                   device::to_integer(event.stream));
  } catch (...) {  // write() says so
    is_whole_ = false;
  }
}

void DecisionLog::write(const std::string& path, bool may_overwrite) const {
  if (!is_whole_) throw Error("there was not enough memory to keep the decisions for " + path);
  write_output_file(path, text_, may_overwrite);
}

}  // namespace headroom::cli
