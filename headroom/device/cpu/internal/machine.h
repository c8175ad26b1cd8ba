// The machine's memory as this process may use it: what is installed, bounded by the control
// groups (containers) the process is in.
//
// All functions read files below `root`, so that a test can show them another machine, and answer
// with what they find: a missing file is never an error.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace headroom::device::internal {

struct MachineMemory {
  std::uint64_t total_bytes = 0;
  std::uint64_t available_bytes = 0;  // without pushing anybody into swap or to the killer
};

[[nodiscard]] MachineMemory read_machine_memory(const std::filesystem::path& root = "/");

// Memory of this process that no file is behind: its heap, its stacks and the segments it touched.
[[nodiscard]] std::uint64_t resident_anonymous_bytes(const std::filesystem::path& root = "/");

[[nodiscard]] std::optional<std::string> read_text(const std::filesystem::path& file);
// The rest of the line that begins with `key`, without the blanks and the colon before it.
[[nodiscard]] std::optional<std::string_view> find_line(std::string_view text,
                                                        std::string_view key) noexcept;

}  // namespace headroom::device::internal
