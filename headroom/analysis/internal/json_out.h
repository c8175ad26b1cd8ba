// JSON into a stream, piece by piece: what is exported may be larger than memory should hold twice.
#pragma once

#include <ostream>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace headroom::analysis::internal {

class JsonOut {
 public:
  explicit JsonOut(std::ostream& out) : out_(out) {}
  JsonOut(const JsonOut&) = delete;
  JsonOut& operator=(const JsonOut&) = delete;

  // As it is.
  template <class... Args>
  void raw(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(fmt::appender(buffer_), format, std::forward<Args>(args)...);
    if (buffer_.size() >= kFlushBytes) flush();
  }
  // In quotes. Names in a recording are whatever a program called its files; what is not UTF-8
  // becomes U+FFFD, so that the whole stays JSON.
  void string(std::string_view text);

  // To be called at the end: a destructor could not say that it failed.
  void flush() {
    out_.write(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
    buffer_.clear();
  }

 private:
  static constexpr std::size_t kFlushBytes = 1U << 16U;

  std::ostream& out_;
  fmt::memory_buffer buffer_;
};

}  // namespace headroom::analysis::internal
