#include "headroom/base/new_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <random>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/internal/reason.h"

namespace headroom {

using internal::fail_with_reason;

namespace {

namespace fs = std::filesystem;

constexpr mode_t kReadableByUmask = 0666;

// The file under the name, a link followed; nothing where there is none.
std::optional<struct stat> status_of(const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) == 0) return found;
  return std::nullopt;
}

bool is_taken(const std::string& path) {
  struct stat found {};
  return ::lstat(path.c_str(), &found) == 0;  // a link that leads nowhere is something too
}

// Where links lead to in the end, whether there is something or not.
std::string followed(const std::string& path) {
  constexpr int kMostLinks = 40;  // as the system's own limit
  fs::path at = path;
  std::error_code error;
  for (int i = 0; i < kMostLinks; ++i) {
    const fs::path target = fs::read_symlink(at, error);
    if (error) return at.string();
    at = target.is_absolute() ? target : at.parent_path() / target;
  }
  throw Error("it is a link to a link and so on without end: name a file");
}

// "/proc/self/fd/3": the name of a file that has none.
std::string name_of_descriptor(int descriptor) {
  return "/proc/self/fd/" + std::to_string(descriptor);
}

}  // namespace

void check_new_file(const std::string& path, bool overwrite) {
  const auto status = status_of(path);
  if (status && S_ISDIR(status->st_mode)) throw Error("it is a directory: name a file");
  if (status && !S_ISREG(status->st_mode)) {
    throw Error("it is not a regular file: name another");
  }
  if (!overwrite && is_taken(path)) {
    throw Error("it exists already: name another, or say that it may be overwritten");
  }
}

NewFile::NewFile(const std::string& path, bool overwrite) : overwrite_(overwrite) {
  check_new_file(path, overwrite);
  path_ = followed(path);
  open_beside();
  // A private file stays private.
  if (const auto before = status_of(path_)) {
    (void)::fchmod(::fileno(file_), before->st_mode & 0777U);
  }
}

NewFile::~NewFile() {
  if (file_ != nullptr) (void)std::fclose(file_);
  if (!temporary_.empty()) (void)std::remove(temporary_.c_str());
}

void NewFile::open_beside() {
  int descriptor = open_unnamed();
  if (descriptor < 0) {
    temporary_ = name_beside();
    descriptor =
        ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kReadableByUmask);
  }
  const int reason = errno;
  if (descriptor >= 0) file_ = ::fdopen(descriptor, "wb");
  if (file_ != nullptr) return;
  if (descriptor < 0) temporary_.clear();
  fail_with_reason("it cannot be made", reason);
}

// A file that is gone with its process, however that ends. Not every file system has them.
int NewFile::open_unnamed() const {
  const std::string folder = fs::path(path_).parent_path().string();
  const int descriptor = ::open(
      folder.empty() ? "." : folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, kReadableByUmask);
  if (descriptor < 0) return -1;
  if (::access(name_of_descriptor(descriptor).c_str(), F_OK) == 0) return descriptor;
  (void)::close(descriptor);  // without /proc it could never be given a name
  return -1;
}

std::string NewFile::name_beside() const {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device random;
  std::string out = path_ + ".part-";
  for (int i = 0; i < 8; ++i) out += kLetters[random() % kLetters.size()];
  return out;
}

void NewFile::write(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) == bytes.size()) return;
  fail_with_reason("it cannot be written", errno);
}

void NewFile::commit() {
  // A full disk may be known only here. close() has nothing left to say.
  if (std::fflush(file_) != 0 || ::fsync(::fileno(file_)) != 0) {
    fail_with_reason("it cannot be written", errno);
  }
  give_name();
  (void)std::fclose(std::exchange(file_, nullptr));
}

void NewFile::give_name() {
  if (!overwrite_) return take_name_of_new();
  if (temporary_.empty()) {
    const std::string name = name_beside();
    if (::linkat(AT_FDCWD,
                 name_of_descriptor(::fileno(file_)).c_str(),
                 AT_FDCWD,
                 name.c_str(),
                 AT_SYMLINK_FOLLOW) != 0) {
      fail_with_reason("it cannot be given its name", errno);
    }
    temporary_ = name;
  }
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    fail_with_reason("it cannot be given its name", errno);
  }
  temporary_.clear();
}

// Fails where the name was taken while we wrote.
void NewFile::take_name_of_new() {
  const std::string from = temporary_.empty() ? name_of_descriptor(::fileno(file_)) : temporary_;
  if (::linkat(AT_FDCWD, from.c_str(), AT_FDCWD, path_.c_str(), AT_SYMLINK_FOLLOW) == 0) return;
  const int reason = errno;
  check_new_file(path_, false);
  // A file system without links: nothing is under the name, as was seen just now.
  const bool can_rename = !temporary_.empty() && (reason == EPERM || reason == EOPNOTSUPP);
  if (!can_rename || std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    fail_with_reason("it cannot be given its name", can_rename ? errno : reason);
  }
  temporary_.clear();
}

}  // namespace headroom
