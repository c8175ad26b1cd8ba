#include "headroom/trace/internal/bytes_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <system_error>

#include "headroom/base/bytes.h"
#include "headroom/trace/internal/failure.h"

namespace headroom::trace::internal {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kReadBytes = 1_MiB;

struct Closer {
  void operator()(std::FILE* file) const noexcept { (void)std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Closer>;

// For the first request only, and bounded: a size is a hint, and some files lie.
std::size_t size_hint(const std::string& path) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  return error ? 0 : static_cast<std::size_t>(std::min<std::uintmax_t>(size, 1_GiB));
}

std::string random_ending() {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device random;
  std::string out;
  for (int i = 0; i < 8; ++i) out += kLetters[random() % kLetters.size()];
  return out;
}

}  // namespace

Buffer read_whole(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) fail("it is a directory, and a recording is a file");
  const File file(std::fopen(path.c_str(), "rb"));
  if (!file) fail(std::string("it cannot be opened: ") + std::strerror(errno));
  Buffer out;
  std::size_t wanted = size_hint(path) + 1;  // one more, to see the end without growing
  for (;;) {
    const std::span<std::byte> room = out.room(wanted);
    const std::size_t count = std::fread(room.data(), 1, std::min(room.size(), wanted), file.get());
    out.add(count);
    if (count < std::min(room.size(), wanted)) break;
    wanted = kReadBytes;
  }
  if (std::ferror(file.get()) != 0) fail(std::string("it cannot be read: ") + std::strerror(errno));
  return out;
}

NewFile::NewFile(const std::string& path, bool overwrite)
    : path_(path), temporary_(path + ".part-" + random_ending()), overwrite_(overwrite) {
  refuse_existing();
  file_ = std::fopen(temporary_.c_str(), "wbx");
  if (file_ == nullptr) fail_with_errno("it cannot be made");
}

NewFile::~NewFile() {
  if (file_ == nullptr) return;
  (void)std::fclose(file_);
  (void)std::remove(temporary_.c_str());
}

void NewFile::refuse_existing() const {
  std::error_code error;
  const fs::file_status status = fs::status(path_, error);
  if (!fs::exists(status)) return;
  if (fs::is_directory(status)) fail("it is a directory: name a file");
  if (!fs::is_regular_file(status)) fail("it is not a regular file: name another");
  if (!overwrite_) fail("it exists already: name another, or say that it may be overwritten");
}

void NewFile::fail_with_errno(std::string_view what) const {
  fail(std::string(what) + ": " + std::strerror(errno));
}

void NewFile::write(std::span<const std::byte> bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) {
    fail_with_errno("it cannot be written");
  }
}

void NewFile::commit() {
  if (std::fflush(file_) != 0) fail_with_errno("it cannot be written");
  refuse_existing();  // it may have appeared while we wrote
  std::FILE* const file = std::exchange(file_, nullptr);
  const bool is_closed = std::fclose(file) == 0;
  std::error_code error;
  if (is_closed) fs::rename(temporary_, path_, error);
  if (is_closed && !error) return;
  (void)std::remove(temporary_.c_str());
  if (!is_closed) fail_with_errno("it cannot be written");
  fail("it cannot be given its name: " + error.message());
}

}  // namespace headroom::trace::internal
