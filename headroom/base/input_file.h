// A file that a user named, to be read without trust: what is no file and no pipe is refused
// before a byte of it is read, and nothing is read without end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"

namespace headroom {

// A pipe does not say how long it is; what is longer than this has to come as a file.
inline constexpr std::uint64_t kMostPipeBytes = 1_GiB;

// All functions throw Error; the message does not name the file, which the caller knows: "it is a
// directory ...".
class InputFile {
 public:
  explicit InputFile(const std::string& path);
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  [[nodiscard]] bool is_pipe() const noexcept { return is_pipe_; }
  // Of a file; 0 of a pipe, and of a file that does not say.
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return size_bytes_; }

  // The bytes that come next; fewer than there is room for only at the end.
  [[nodiscard]] std::size_t read(std::span<std::byte> to);
  // Of a file: the bytes at `offset`, without a limit.
  [[nodiscard]] std::size_t read_at(std::uint64_t offset, std::span<std::byte> to) const;
  // To be called before its size is believed.
  void refuse_larger_than_memory() const;

 private:
  int descriptor_ = -1;
  bool is_pipe_ = false;
  std::uint64_t size_bytes_ = 0;
  std::uint64_t most_bytes_ = 0;
  std::uint64_t read_bytes_ = 0;
};

// Throws to refuse a file by its first bytes, of which it sees up to 4 KiB.
using CheckStart = std::function<void(std::span<const std::byte>)>;

// All of a file. One that is larger than the memory of the machine is refused.
[[nodiscard]] std::vector<std::byte> read_input(const std::string& path,
                                                const CheckStart& check = {});

}  // namespace headroom
