// Where in a snapshot a value is, for messages: `device_traces[0][17].size`. A chain on the stack
// of calls, so that walking costs a few stores and only an error makes a string.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace headroom::trace::internal {

class Path {
 public:
  Path() = default;  // the whole
  Path(const Path& parent, std::string_view name) : parent_(&parent), name_(name) {}
  Path(const Path& parent, std::uint64_t index) : parent_(&parent), index_(index) {}

  [[nodiscard]] std::string text() const;

 private:
  const Path* parent_ = nullptr;
  std::string_view name_{};  // of a member; empty for an item of a list
  std::uint64_t index_ = 0;
};

}  // namespace headroom::trace::internal
