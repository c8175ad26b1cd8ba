// From a place in a module to function, file and line: by libdw where the build found it, else by
// the dynamic linker, which knows the names of exported functions of loaded modules.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "headroom/trace/record/internal/raw_frame.h"

namespace headroom::trace::internal {

struct Symbol {
  std::string function{};
  std::string file{};
  std::int64_t line = 0;  // 0 where it is not known
};

class Symboliser {
 public:
  Symboliser();
  ~Symboliser();
  Symboliser(const Symboliser&) = delete;
  Symboliser& operator=(const Symboliser&) = delete;

  // Inlined functions first; empty when the module is not here, is another build, or knows nothing.
  [[nodiscard]] std::vector<Symbol> find(const RawFrame& raw);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// `std::vector<int>::push_back(int const&)` from `_ZN...`; a name that is not mangled as it is.
[[nodiscard]] std::string demangle(const char* name);

}  // namespace headroom::trace::internal
