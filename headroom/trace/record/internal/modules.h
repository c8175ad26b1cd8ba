// The program and the libraries that are loaded, by their addresses.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace headroom::trace::internal {

struct Module {
  std::string path{};
  std::string build_id{};  // hexadecimal; empty where the linker left none
  std::uint64_t base = 0;  // what was added to the addresses in the file
};

class Modules {
 public:
  // Whose code `address` is; null when it is none's. Looks again when a library was loaded since.
  [[nodiscard]] const Module* find(std::uint64_t address);

 private:
  struct Range {
    std::uint64_t end = 0;
    std::uint32_t module = 0;
  };
  [[nodiscard]] const Module* look_up(std::uint64_t address) const;
  void refresh();

  std::vector<Module> modules_;
  std::map<std::uint64_t, Range> code_;  // by where it begins
  std::uint64_t loads_seen_ = 0;         // how many libraries had been loaded by the last refresh
};

}  // namespace headroom::trace::internal
