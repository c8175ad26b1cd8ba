#include "cli/decisions.h"

#include <fstream>

#include <fmt/format.h>

#include "headroom/base/error.h"

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

void DecisionLog::write(const std::string& path) const {
  std::ofstream file(path, std::ios::binary);
  file << text_;
  file.close();
  if (!file || !is_whole_) throw Error("cannot write the decisions to " + path);
}

}  // namespace headroom::cli
