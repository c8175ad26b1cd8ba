#include "headroom/memory/stats.h"

#include <cstdio>
#include <string_view>
#include <vector>

namespace headroom::memory {
namespace {

struct NamedArray {
  const char* name;
  StatArray Statistics::*member;
};
constexpr std::array<NamedArray, 9> kArrays{{
    {"allocation", &Statistics::allocation},
    {"segment", &Statistics::segment},
    {"active", &Statistics::active},
    {"inactive_split", &Statistics::inactive_split},
    {"allocated_bytes", &Statistics::allocated_bytes},
    {"reserved_bytes", &Statistics::reserved_bytes},
    {"active_bytes", &Statistics::active_bytes},
    {"inactive_split_bytes", &Statistics::inactive_split_bytes},
    {"requested_bytes", &Statistics::requested_bytes},
}};

struct NamedStat {
  const char* name;
  Stat Statistics::*member;
};
constexpr std::array<NamedStat, 2> kStats{{
    {"oversize_allocations", &Statistics::oversize_allocations},
    {"oversize_segments", &Statistics::oversize_segments},
}};

template <class Function>
void for_each_stat(Statistics& stats, Function&& function) {
  for (const NamedArray& entry : kArrays) {
    StatArray& array = stats.*entry.member;
    function(array.all);
    function(array.small_pool);
    function(array.large_pool);
  }
  for (const NamedStat& entry : kStats) function(stats.*entry.member);
  function(stats.live_bytes);
  function(stats.sleeping_bytes);
  for (Stat& stat : stats.category_bytes) function(stat);
}

void put(std::map<std::string, std::int64_t>& out, const std::string& prefix, const Stat& stat) {
  out[prefix + ".current"] = stat.current;
  out[prefix + ".peak"] = stat.peak;
  out[prefix + ".allocated"] = stat.allocated;
  out[prefix + ".freed"] = stat.freed;
}

// --- The summary table -------------------------------------------------------------------------

enum class RowUnit : std::uint8_t { kBytes, kCount };

struct Metric {
  StatArray Statistics::*array;
  const char* label;
  RowUnit unit;
};
constexpr std::array<Metric, 9> kMetrics{{
    {&Statistics::allocated_bytes, "Allocated memory", RowUnit::kBytes},
    {&Statistics::active_bytes, "Active memory", RowUnit::kBytes},
    {&Statistics::requested_bytes, "Requested memory", RowUnit::kBytes},
    {&Statistics::reserved_bytes, "GPU reserved memory", RowUnit::kBytes},
    {&Statistics::inactive_split_bytes, "Non-releasable memory", RowUnit::kBytes},
    {&Statistics::allocation, "Allocations", RowUnit::kCount},
    {&Statistics::active, "Active allocs", RowUnit::kCount},
    {&Statistics::segment, "GPU reserved segments", RowUnit::kCount},
    {&Statistics::inactive_split, "Non-releasable allocs", RowUnit::kCount},
}};

constexpr std::size_t kSummaryWidth = 75;

// The unit comes from `scale_by`, the `all` row of the same column, so that a column reads evenly.
std::string cell(std::int64_t value, std::int64_t scale_by, RowUnit unit) {
  static constexpr std::array<const char*, 6> kByteUnits{"B  ", "KiB", "MiB", "GiB", "TiB", "PiB"};
  static constexpr std::array<const char*, 3> kCountUnits{" ", "K", "M"};
  const bool bytes = unit == RowUnit::kBytes;
  const std::int64_t step = bytes ? 1024 : 1000;
  const std::int64_t threshold = bytes ? 768 * 1024 : 750 * 1000;
  const std::size_t last = (bytes ? kByteUnits.size() : kCountUnits.size()) - 1;
  std::size_t index = 0;
  while (scale_by >= threshold && index < last) {
    scale_by /= step;
    value /= step;
    ++index;
  }
  std::array<char, 40> text{};
  if (bytes) {
    std::snprintf(
        text.data(), text.size(), "%6lld %s", static_cast<long long>(value), kByteUnits[index]);
  } else {
    std::snprintf(
        text.data(), text.size(), "%7lld %s ", static_cast<long long>(value), kCountUnits[index]);
  }
  return text.data();
}

std::string padded(std::string_view text, std::size_t width) {
  std::string out(text);
  if (out.size() < width) out.append(width - out.size(), ' ');
  return out;
}

std::string row(std::string_view name, const Stat& stat, const Stat& all, RowUnit unit) {
  return " " + padded(name, 21) + " | " + cell(stat.current, all.current, unit) + " | " +
         cell(stat.peak, all.peak, unit) + " | " + cell(stat.allocated, all.allocated, unit) +
         " | " + cell(stat.freed, all.freed, unit) + " ";
}

std::string title_line(int device_index) {
  return "                  PyTorch CUDA memory summary, device ID " +
         padded(std::to_string(device_index), 17) + " ";
}

std::string counters_line(const Statistics& stats) {
  return "            CUDA OOMs: " + padded(std::to_string(stats.num_ooms), 12) +
         " |        cudaMalloc retries: " + padded(std::to_string(stats.num_alloc_retries), 8) +
         "  ";
}

}  // namespace

void Statistics::sum_up() noexcept {
  for (const NamedArray& entry : kArrays) (this->*entry.member).sum_up();
}

void Statistics::reset_peak() noexcept {
  for_each_stat(*this, [](Stat& stat) { stat.reset_peak(); });
  peak_is_exact = true;
}

void Statistics::reset_accumulated() noexcept {
  for_each_stat(*this, [](Stat& stat) { stat.reset_accumulated(); });
  num_alloc_retries = num_ooms = num_sync_all_streams = 0;
  num_device_alloc = num_device_free = num_oom_rejections = 0;
}

std::map<std::string, std::int64_t> flatten(const Statistics& stats) {
  std::map<std::string, std::int64_t> out;
  for (const NamedArray& entry : kArrays) {
    const StatArray& array = stats.*entry.member;
    const std::string name = entry.name;
    put(out, name + ".all", array.all);
    put(out, name + ".small_pool", array.small_pool);
    put(out, name + ".large_pool", array.large_pool);
  }
  for (const NamedStat& entry : kStats) put(out, entry.name, stats.*entry.member);
  out["num_alloc_retries"] = stats.num_alloc_retries;
  out["num_ooms"] = stats.num_ooms;
  out["num_sync_all_streams"] = stats.num_sync_all_streams;
  out["num_device_alloc"] = stats.num_device_alloc;
  out["num_device_free"] = stats.num_device_free;
  out["num_oom_rejections"] = stats.num_oom_rejections;
  out["max_split_size"] = stats.max_split_size;
  return out;
}

std::string memory_summary(const Statistics& stats, int device_index, bool abbreviated) {
  const std::string thick(kSummaryWidth, '=');
  const std::string thin(kSummaryWidth, '-');
  std::vector<std::string> lines{
      thick,
      title_line(device_index),
      thin,
      counters_line(stats),
      thick,
      "        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  "};
  for (const Metric& metric : kMetrics) {
    const StatArray& array = stats.*metric.array;
    lines.push_back(thin);
    lines.push_back(row(metric.label, array.all, array.all, metric.unit));
    if (abbreviated) continue;
    lines.push_back(row("      from large pool", array.large_pool, array.all, metric.unit));
    lines.push_back(row("      from small pool", array.small_pool, array.all, metric.unit));
  }
  lines.push_back(thin);
  lines.push_back(row("Oversize allocations",
                      stats.oversize_allocations,
                      stats.oversize_allocations,
                      RowUnit::kCount));
  lines.push_back(thin);
  lines.push_back(row(
      "Oversize GPU segments", stats.oversize_segments, stats.oversize_segments, RowUnit::kCount));
  lines.push_back(thick);

  std::string out;
  for (const std::string& line : lines) out += "|" + line + "|\n";
  return out;
}

}  // namespace headroom::memory
