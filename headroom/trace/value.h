// A tree of data as a file had it: what a trace keeps of settings and of fields it has no name for,
// so that writing it again loses nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace headroom::trace {

struct Value {
  using List = std::vector<Value>;
  struct Tuple {
    List items{};
    friend bool operator==(const Tuple&, const Tuple&) = default;
  };
  using Dict = std::vector<std::pair<std::string, Value>>;  // in the order of the file

  // An integer is an int64 where it fits and an uint64 above.
  std::variant<std::monostate,
               bool,
               std::int64_t,
               std::uint64_t,
               double,
               std::string,
               List,
               Tuple,
               Dict>
      data{};

  // The member of a dictionary, or null.
  [[nodiscard]] const Value* find(std::string_view key) const noexcept;

  friend bool operator==(const Value&, const Value&) = default;
};

}  // namespace headroom::trace
