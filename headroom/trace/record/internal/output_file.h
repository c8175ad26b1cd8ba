// A file that is only ever added to, and may be read again by who writes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace headroom::trace::internal {

class OutputFile {
 public:
  // Throws Error when it cannot be made, or exists and is not to be overwritten.
  OutputFile(std::string path, bool overwrite);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Written bytes are the system's: they stay when this process dies.
  bool write(std::span<const std::byte> bytes) noexcept;
  // All of `out`, from `offset` on.
  bool read_at(std::uint64_t offset, std::span<std::byte> out) noexcept;
  // Another name, in the place of a file that has it.
  bool rename_to(const std::string& path) noexcept;
  void remove() noexcept;
  // False when the system could not keep it after all.
  bool close() noexcept;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  // Why the last call failed.
  [[nodiscard]] std::string error() const;

 private:
  std::string path_;
  int descriptor_ = -1;
  int error_ = 0;
};

}  // namespace headroom::trace::internal
