// A std::ostream's way into a NewFile. What the file throws when it cannot be written passes
// through the stream, if its exceptions are on.
#pragma once

#include <span>
#include <streambuf>

#include "headroom/base/new_file.h"

namespace headroom::trace::internal {

// Without a buffer of its own: our exports hand over large pieces.
class FileBuffer final : public std::streambuf {
 public:
  explicit FileBuffer(NewFile& file) : file_(file) {}

 protected:
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    file_.write(std::as_bytes(std::span(text, static_cast<std::size_t>(size))));
    return size;
  }
  int_type overflow(int_type c) override {
    const char one = traits_type::to_char_type(c);
    xsputn(&one, 1);
    return traits_type::not_eof(c);
  }

 private:
  NewFile& file_;
};

}  // namespace headroom::trace::internal
