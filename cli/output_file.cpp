#include "cli/output_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <fmt/format.h>

#include "headroom/base/error.h"

namespace headroom::cli {

void check_output_file(const std::string& path, bool may_overwrite) {
  std::error_code none;
  if (!may_overwrite && std::filesystem::exists(path, none)) {
    throw Error(fmt::format("'{}' exists; --force overwrites it", path));
  }
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder, none)) {
    throw Error(
        fmt::format("'{}' cannot be written: there is no folder '{}'", path, folder.string()));
  }
}

void write_output_file(const std::string& path, std::string_view text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw Error(fmt::format("'{}' cannot be written: {}", path, std::strerror(errno)));
}

}  // namespace headroom::cli
