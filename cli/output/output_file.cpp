#include "cli/output/output_file.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "headroom/base/error.h"
#include "headroom/base/new_file.h"

#include "cli/command.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

bool is_device_or_pipe(const std::string& path) {
  std::error_code none;
  const fs::file_status found = fs::status(path, none);
  return fs::exists(found) && !fs::is_regular_file(found) && !fs::is_directory(found);
}

void write_directly(const std::string& path, std::string_view text) {
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) throw Error(std::generic_category().message(errno));
  const bool is_written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int reason = errno;
  if (std::fclose(file) != 0) throw Error(std::generic_category().message(errno));
  if (!is_written) throw Error(std::generic_category().message(reason));
}

}  // namespace

void check_output_file(const std::string& path, bool may_overwrite) {
  std::error_code none;
  if (is_device_or_pipe(path)) return;
  if (fs::is_directory(path, none)) {
    throw Error(fmt::format("'{}' is a directory; name a file", path));
  }
  const fs::file_status found = fs::symlink_status(path, none);
  if (!may_overwrite && fs::exists(found)) {
    throw Error(
        fs::exists(path, none)
            ? fmt::format("'{}' exists; --force overwrites it", path)
            : fmt::format("'{}' is a link that leads to no file; --force makes that file", path));
  }
  const fs::path folder = fs::path(path).parent_path();
  if (!folder.empty() && !fs::is_directory(folder, none)) {
    throw Error(
        fmt::format("'{}' cannot be written: there is no folder '{}'", path, folder.string()));
  }
}

void check_output_ending(const std::string& path, std::string_view ending) {
  if (is_device_or_pipe(path) || fs::path(path).extension() == ending) return;
  throw UsageError(fmt::format("-o: '{}' does not end in {}; name it {}",
                               path,
                               ending,
                               fs::path(path).replace_extension(ending).string()));
}

void write_output_file(const std::string& path, std::string_view text, bool may_overwrite) {
  try {
    if (is_device_or_pipe(path)) return write_directly(path, text);
    NewFile file(path, may_overwrite);
    file.write(text);
    file.commit();
  } catch (const Error& error) {
    throw Error(fmt::format("'{}' cannot be written: {}", path, error.what()));
  }
}

}  // namespace headroom::cli
