#include "headroom/trace/file.h"

#include <filesystem>
#include <fstream>

#include "headroom/trace/hrt_writer.h"

namespace headroom::trace {

FormatResult<void> write_trace(const Trace& trace,
                               const std::string& path,
                               const WriteOptions& options) {
  std::error_code error;
  if (!options.overwrite && std::filesystem::exists(path, error)) {
    return Unexpected(FormatError{.message = path + " exists"});
  }
  const auto bytes = write_hrt(trace);
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) return Unexpected(FormatError{.message = "cannot write " + path});
  return {};
}

}  // namespace headroom::trace
