#include "headroom/trace/record/internal/output_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>

#include "headroom/base/error.h"

namespace headroom::trace::internal {

OutputFile::OutputFile(std::string path, bool overwrite) : path_(std::move(path)) {
  constexpr int kReadableByAll = 0644;
  const int exclusive = overwrite ? O_TRUNC : O_EXCL;
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | exclusive, kReadableByAll);
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

bool OutputFile::read_at(std::uint64_t offset, std::span<std::byte> out) noexcept {
  while (!out.empty()) {
    const ssize_t read = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
    if (read < 0 && errno == EINTR) continue;
    if (read <= 0) {
      error_ = read == 0 ? EIO : errno;
      return false;
    }
    offset += static_cast<std::uint64_t>(read);
    out = out.subspan(static_cast<std::size_t>(read));
  }
  return true;
}

bool OutputFile::rename_to(const std::string& path) noexcept {
  if (std::rename(path_.c_str(), path.c_str()) != 0) {
    error_ = errno;
    return false;
  }
  path_ = path;
  return true;
}

void OutputFile::remove() noexcept { (void)std::remove(path_.c_str()); }

bool OutputFile::close() noexcept {
  if (descriptor_ < 0) return true;
  const int closed = ::close(descriptor_);
  if (closed != 0) error_ = errno;
  descriptor_ = -1;
  return closed == 0;
}

std::string OutputFile::error() const { return std::generic_category().message(error_); }

}  // namespace headroom::trace::internal
