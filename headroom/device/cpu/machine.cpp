#include "headroom/device/cpu/internal/machine.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <limits>
#include <unistd.h>

namespace headroom::device::internal {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

std::optional<std::uint64_t> leading_number(std::string_view text) noexcept {
  std::uint64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> read_number(const fs::path& file) {
  const auto text = read_text(file);
  return text ? leading_number(*text) : std::nullopt;  // also for "max"
}

// `MemTotal:       24661660 kB`
std::optional<std::uint64_t> kilobytes(std::string_view text, std::string_view key) noexcept {
  const auto line = find_line(text, key);
  const auto number = line ? leading_number(*line) : std::nullopt;
  if (!number) return std::nullopt;
  return *number * 1024;
}

// The names of the files differ between the two versions of control groups, nothing else here.
struct GroupFiles {
  const char* limit;
  const char* usage;
  const char* reclaimable;  // a line of memory.stat
};
constexpr GroupFiles kVersion1{
    "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr GroupFiles kVersion2{"memory.max", "memory.current", "inactive_file"};

// A group is bounded by its own limit and by those of all groups above it.
void bound_by_groups(const fs::path& mount,
                     const fs::path& group,
                     const GroupFiles& files,
                     MachineMemory& memory) {
  fs::path at = group.relative_path();
  for (;;) {
    const fs::path folder = mount / at;
    const std::uint64_t limit = read_number(folder / files.limit).value_or(kNoLimit);
    if (limit < memory.total_bytes) memory.total_bytes = limit;
    if (limit != kNoLimit) {
      const std::uint64_t used = read_number(folder / files.usage).value_or(0);
      const std::string stat = read_text(folder / "memory.stat").value_or("");
      const auto line = find_line(stat, files.reclaimable);
      const std::uint64_t reclaimable = line ? leading_number(*line).value_or(0) : 0;
      const std::uint64_t held = used - std::min(used, reclaimable);
      memory.available_bytes = std::min(memory.available_bytes, limit - std::min(limit, held));
    }
    if (at.empty()) return;
    at = at.parent_path();
  }
}

// Lines of /proc/self/cgroup: `4:memory:/some/group` (version 1), `0::/some/group` (version 2).
void bound_by_containers(const fs::path& root, MachineMemory& memory) {
  const std::string groups = read_text(root / "proc/self/cgroup").value_or("");
  const fs::path mount = root / "sys/fs/cgroup";
  std::string_view rest = groups;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const std::string controllers =
        "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
    const fs::path group(line.substr(second + 1));
    if (controllers == ",,") {
      bound_by_groups(mount, group, kVersion2, memory);
    } else if (controllers.find(",memory,") != std::string::npos) {
      bound_by_groups(mount / "memory", group, kVersion1, memory);
    }
  }
}

}  // namespace

std::optional<std::string> read_text(const fs::path& file) {
  std::ifstream in(file);
  if (!in) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(in), {});
}

std::optional<std::string_view> find_line(std::string_view text, std::string_view key) noexcept {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (!line.starts_with(key)) continue;
    line.remove_prefix(key.size());
    if (!line.empty() && line.find_first_of(" \t:") != 0) continue;  // a longer word
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(" \t:")));
    return line;
  }
  return std::nullopt;
}

MachineMemory read_machine_memory(const fs::path& root) {
  const std::string text = read_text(root / "proc/meminfo").value_or("");
  MachineMemory memory;
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  memory.total_bytes = kilobytes(text, "MemTotal")
                           .value_or(static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * page);
  memory.available_bytes = kilobytes(text, "MemAvailable").value_or(memory.total_bytes);
  bound_by_containers(root, memory);
  memory.available_bytes = std::min(memory.available_bytes, memory.total_bytes);
  return memory;
}

std::uint64_t resident_anonymous_bytes(const fs::path& root) {
  const std::string text = read_text(root / "proc/self/status").value_or("");
  return kilobytes(text, "RssAnon").value_or(0);
}

}  // namespace headroom::device::internal
