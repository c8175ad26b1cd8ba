#include "headroom/base/input_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "headroom/base/error.h"
#include "headroom/base/internal/reason.h"

namespace headroom {

using internal::fail_with_reason;

namespace {

void refuse_what_is_no_file(mode_t mode) {
  if (S_ISDIR(mode)) throw Error("it is a directory: name a file");
  if (S_ISREG(mode) || S_ISFIFO(mode) || S_ISSOCK(mode)) return;
  throw Error(S_ISCHR(mode)
                  ? "it is a device or a terminal, which has no end: name a file or a pipe"
                  : "it is a disk, not a file: name a file or a pipe");
}

std::uint64_t machine_bytes() {
  const auto pages = static_cast<std::uint64_t>(std::max(0L, ::sysconf(_SC_PHYS_PAGES)));
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

InputFile::InputFile(const std::string& path) {
  struct stat found {};
  // Before it is opened, which alone may do something to a device.
  if (::stat(path.c_str(), &found) == 0) refuse_what_is_no_file(found.st_mode);
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) fail_with_reason("it cannot be opened", errno);
  try {
    if (::fstat(descriptor_, &found) != 0) fail_with_reason("it cannot be read", errno);
    refuse_what_is_no_file(found.st_mode);
  } catch (...) {
    (void)::close(descriptor_);
    throw;
  }
  is_pipe_ = !S_ISREG(found.st_mode);
  if (!is_pipe_) size_bytes_ = static_cast<std::uint64_t>(found.st_size);
  most_bytes_ = std::min(std::max(size_bytes_, kMostPipeBytes), machine_bytes());
}

InputFile::~InputFile() { (void)::close(descriptor_); }

std::size_t InputFile::read(std::span<std::byte> to) {
  std::size_t done = 0;
  while (done < to.size()) {
    const ssize_t got = ::read(descriptor_, to.data() + done, to.size() - done);
    if (got == 0) break;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_with_reason("it cannot be read", errno);
    done += static_cast<std::size_t>(got);
  }
  read_bytes_ += done;
  if (read_bytes_ > most_bytes_) {
    throw Error("it has not ended after " + format_bytes(most_bytes_) +
                ", the most that is read of a pipe or into this machine's memory: give a file that "
                "fits");
  }
  return done;
}

std::size_t InputFile::read_at(std::uint64_t offset, std::span<std::byte> to) const {
  std::size_t done = 0;
  while (done < to.size()) {
    const ssize_t got =
        ::pread(descriptor_, to.data() + done, to.size() - done, static_cast<off_t>(offset + done));
    if (got == 0) break;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_with_reason("it cannot be read", errno);
    done += static_cast<std::size_t>(got);
  }
  return done;
}

void InputFile::refuse_larger_than_memory() const {
  if (size_bytes_ <= most_bytes_) return;
  throw Error("it has " + format_bytes(size_bytes_) + ", and this machine " +
              format_bytes(most_bytes_) + " of memory to read it into");
}

std::vector<std::byte> read_input(const std::string& path, const CheckStart& check) {
  constexpr std::size_t kStartBytes = 4_KiB;
  constexpr std::size_t kPieceBytes = 1_MiB;
  InputFile file(path);
  std::vector<std::byte> out(kStartBytes);
  out.resize(file.read(out));
  if (check) check(out);
  if (out.size() < kStartBytes) return out;
  file.refuse_larger_than_memory();
  // One more than it says, to see the end without growing.
  std::size_t wanted = std::max<std::uint64_t>(file.size_bytes() + 1, kStartBytes) - kStartBytes;
  for (;;) {
    const std::size_t before = out.size();
    out.resize(before + std::max(wanted, kPieceBytes));
    const std::size_t got = file.read(std::span(out).subspan(before));
    out.resize(before + got);
    if (got < std::max(wanted, kPieceBytes)) return out;
    wanted = before / 2;
  }
}

}  // namespace headroom
