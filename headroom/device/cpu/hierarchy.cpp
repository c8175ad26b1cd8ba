#include "headroom/device/cpu/internal/hierarchy.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <sched.h>
#include <set>
#include <string_view>
#include <thread>
#include <unistd.h>

#include "headroom/device/cpu/internal/machine.h"

namespace headroom::device::internal {
namespace {

namespace fs = std::filesystem;

struct Cache {
  std::uint64_t size_bytes = 0;
  std::uint64_t line_bytes = 0;
  std::set<std::string> instances;  // each named by the processors that share it
};

std::string first_line(const fs::path& file) {
  std::string text = read_text(file).value_or("");
  text.erase(std::min(text.size(), text.find('\n')));
  return text;
}

// `48K`, `2048K`, `32M`; 0 when it is something else.
std::uint64_t parse_size(std::string_view text) noexcept {
  std::uint64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return 0;
  if (stop == text.data() + text.size()) return value;
  switch (*stop) {
    case 'K':
      return value << 10U;
    case 'M':
      return value << 20U;
    case 'G':
      return value << 30U;
    default:
      return 0;
  }
}

// Data and unified caches by level. Instances are counted among the usable processors only.
std::map<int, Cache> read_caches(const std::vector<int>& processors, const fs::path& root) {
  std::map<int, Cache> caches;
  for (const int processor : processors) {
    const fs::path folder =
        root / ("sys/devices/system/cpu/cpu" + std::to_string(processor)) / "cache";
    for (int index = 0; index < 16; ++index) {
      const fs::path entry = folder / ("index" + std::to_string(index));
      const auto level = static_cast<int>(parse_size(first_line(entry / "level")));
      if (level == 0) break;
      const std::uint64_t size = parse_size(first_line(entry / "size"));
      if (size == 0 || first_line(entry / "type") == "Instruction") continue;
      Cache& cache = caches[level];
      // Efficiency cores have smaller caches; the largest is the one worth naming.
      cache.size_bytes = std::max(cache.size_bytes, size);
      cache.line_bytes =
          std::max(cache.line_bytes, parse_size(first_line(entry / "coherency_line_size")));
      std::string sharers = first_line(entry / "shared_cpu_list");
      cache.instances.insert(sharers.empty() ? std::to_string(processor) : std::move(sharers));
    }
  }
  return caches;
}

// The caches as the C library found them. It does not know which cores share one.
std::map<int, Cache> guess_caches(const std::vector<int>& processors) {
  std::map<int, Cache> caches;
#if defined(_SC_LEVEL1_DCACHE_SIZE)
  const auto add = [&](int level, int size_name, int line_name) {
    const long size = sysconf(size_name);
    const long line = sysconf(line_name);
    if (size <= 0) return;
    Cache& cache = caches[level];
    cache.size_bytes = static_cast<std::uint64_t>(size);
    cache.line_bytes = static_cast<std::uint64_t>(std::max(line, 0L));
    for (const int processor : processors) {
      cache.instances.insert(level < 3 ? std::to_string(processor) : "all");
    }
  };
  add(1, _SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL1_DCACHE_LINESIZE);
  add(2, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL2_CACHE_LINESIZE);
  add(3, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL3_CACHE_LINESIZE);
#endif
  return caches;
}

std::string sharing(std::size_t instances, std::size_t processors) {
  if (instances >= processors) return "core";
  if (instances == 1) return "all cores";
  return std::to_string((processors + instances - 1) / instances) + " cores";
}

std::string processor_name(const fs::path& root) {
  const std::string text = read_text(root / "proc/cpuinfo").value_or("");
  for (const std::string_view key : {"model name", "Model", "cpu model", "Processor"}) {
    if (const auto found = find_line(text, key); found && !found->empty()) {
      return std::string(*found);
    }
  }
  return "processor";
}

constexpr const char* architecture() noexcept {
#if defined(__x86_64__)
  return "x86-64";
#elif defined(__aarch64__)
  return "aarch64";
#elif defined(__riscv)
  return "riscv";
#elif defined(__powerpc64__)
  return "ppc64";
#else
  return "unknown";
#endif
}

}  // namespace

std::vector<int> usable_processors() {
  std::vector<int> processors;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
      if (CPU_ISSET(processor, &set)) processors.push_back(processor);
    }
  }
  if (processors.empty()) {  // more processors than the set has room for
    const int count = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    for (int processor = 0; processor < count; ++processor) processors.push_back(processor);
  }
  return processors;
}

CpuDescription describe_cpu(const std::vector<int>& processors, const fs::path& root) {
  CpuDescription cpu{.name = processor_name(root),
                     .architecture = architecture(),
                     .cores = static_cast<int>(processors.size()),
                     .hierarchy = {}};
  std::map<int, Cache> caches = read_caches(processors, root);
  if (caches.empty()) caches = guess_caches(processors);
  for (const auto& [level, cache] : caches) {
    cpu.hierarchy.push_back({.name = "L" + std::to_string(level) + (level == 1 ? "d" : ""),
                             .size_bytes = cache.size_bytes,
                             .instances = static_cast<int>(cache.instances.size()),
                             .line_bytes = cache.line_bytes,
                             .shared_by = sharing(cache.instances.size(), processors.size())});
  }
  cpu.hierarchy.push_back({.name = "main memory",
                           .size_bytes = read_machine_memory(root).total_bytes,
                           .instances = 1,
                           .line_bytes = 0,
                           .shared_by = "machine"});
  return cpu;
}

const CpuDescription& this_cpu() {
  static const auto* const cpu = new CpuDescription(describe_cpu(usable_processors()));
  return *cpu;
}

}  // namespace headroom::device::internal
