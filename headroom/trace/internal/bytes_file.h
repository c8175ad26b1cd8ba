// Whole files: read in one piece, or written so that the name never shows half of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/trace/internal/buffer.h"

namespace headroom::trace::internal {

// Up to the end, whatever size the file says it has. Throws Failure; the message does not name
// the file.
[[nodiscard]] Buffer read_whole(const std::string& path);

// A new file under a name of its own beside `path`; commit() gives it the name `path`. Without it,
// the file is gone when this goes. Throws Failure.
class NewFile {
 public:
  NewFile(const std::string& path, bool overwrite);
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile();

  void write(std::span<const std::byte> bytes);
  void commit();

 private:
  [[noreturn]] void fail_with_errno(std::string_view what) const;
  void refuse_existing() const;

  std::string path_;
  std::string temporary_;
  bool overwrite_;
  std::FILE* file_ = nullptr;
};

}  // namespace headroom::trace::internal
