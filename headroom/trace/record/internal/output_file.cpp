#include "headroom/trace/record/internal/output_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>

#include "headroom/base/error.h"

namespace headroom::trace::internal {

OutputFile::OutputFile(std::string path, bool overwrite) : path_(std::move(path)) {
  constexpr int kReadableByAll = 0644;
  const int exclusive = overwrite ? O_TRUNC : O_EXCL;
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | exclusive, kReadableByAll);
  if (descriptor_ >= 0) return;
  if (errno == EEXIST) {
    throw Error(path_ + " exists: choose another name, or have it overwritten");
  }
  error_ = errno;
  throw Error("cannot create " + path_ + ": " + error());
}

OutputFile::~OutputFile() { close(); }

bool OutputFile::write(std::span<const std::byte> bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      error_ = written == 0 ? ENOSPC : errno;
      return false;
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return true;
}

bool OutputFile::close() noexcept {
  if (descriptor_ < 0) return true;
  const int closed = ::close(descriptor_);
  if (closed != 0) error_ = errno;
  descriptor_ = -1;
  return closed == 0;
}

std::string OutputFile::error() const { return std::generic_category().message(error_); }

}  // namespace headroom::trace::internal
