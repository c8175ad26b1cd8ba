// A recording in numbers: for each device its peaks, who held them, sizes, lifetimes
// and what is odd about its history. `headroom info` prints it.
//
//   const auto file = trace::read_trace("run.pickle");
//   const RecordingSummary summary = look_into(*file, {.top = 3});
//   for (const DeviceSummary& device : summary.devices) print(device.peak_allocated.bytes);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headroom/analysis/categories.h"
#include "headroom/analysis/category_rules.h"
#include "headroom/analysis/groups.h"
#include "headroom/analysis/histograms.h"
#include "headroom/analysis/index.h"
#include "headroom/analysis/site_tree.h"
#include "headroom/trace/file.h"

namespace headroom::analysis {

// A peak with when it was.
struct PeakMoment {
  std::uint64_t bytes = 0;
  std::uint64_t after_events = 0;
  std::int64_t after_us = 0;  // since the first event
};

// Blocks that share something, and how their allocation is reached.
struct Holder {
  Group group{};
  std::string plain_name{};  // of a category, for people
  std::string known_by{};    // of a category, where it was not recorded
  // Both for the first `top` only. Of the largest block, innermost frame first.
  std::vector<std::string> stack{};
  std::vector<std::string> short_stack{};  // without wrappers and with short names
};

// Sizes asked for, by category and by how each is known.
using CategorySums = std::array<std::array<std::uint64_t, kCertaintyCount>, memory::kCategoryCount>;
// Sizes of blocks, which are rounded up.
using CategoryBytes = std::array<std::uint64_t, memory::kCategoryCount>;

struct DeviceSummary {
  std::string name{};
  int device = 0;
  int rank = 0;
  bool is_host = false;
  std::uint64_t events = 0;
  std::uint64_t allocs = 0;
  std::uint64_t frees = 0;            // free_requested
  std::uint64_t frees_completed = 0;  // the same but for what another stream still holds
  std::uint64_t ooms = 0;
  std::uint64_t segments = 0;  // in the final state
  std::uint64_t segment_allocs = 0;
  std::uint64_t segment_frees = 0;
  std::uint64_t dropped_events = 0;
  std::int64_t first_time_us = 0;
  std::int64_t duration_us = 0;

  // The state before the first event: empty, where the history is whole.
  bool is_whole_history = true;
  bool has_final_state = false;
  std::uint64_t start_blocks = 0;
  Totals start{};
  Totals end{};

  PeakMoment peak_live{};
  PeakMoment peak_allocated{};
  PeakMoment peak_active{};
  PeakMoment peak_reserved{};
  std::uint64_t reserved_at_peak = 0;  // when allocated was highest

  // The highest values of equal runs of events, at most kCurvePoints.
  static constexpr std::size_t kCurvePoints = 512;
  std::vector<double> allocated_curve{};
  std::vector<double> reserved_curve{};

  std::vector<HistogramBin> sizes{};
  LifetimeHistogram lifetimes{};

  // All that was allocated when allocated was highest, the largest first.
  bool has_stacks = false;
  std::uint64_t blocks_at_peak = 0;
  std::vector<Holder> sites{};        // empty without stacks
  std::vector<SiteNode> site_tree{};  // the same, split by the frames below
  std::vector<Holder> stacks{};       // the same, by whole stacks
  std::vector<Holder> modules{};      // by annotation where there are any, else by stack
  std::vector<Holder> by_size{};
  std::vector<Holder> categories{};  // empty where none is known
  CategorySums categories_at_peak{};
  CategoryBytes block_categories_at_peak{};  // the same as blocks: they add up to peak_allocated
  std::vector<Holder> annotations{};         // the same

  Anomalies anomalies{};
};

struct RecordingSummary {
  trace::Format format = trace::Format::kPickle;
  bool is_packed = false;
  std::uint64_t file_bytes = 0;
  std::string note{};  // what the file lacks
  std::string producer{};
  std::string settings{};
  std::uint64_t annotations = 0;
  bool has_stacks = false;
  std::vector<DeviceSummary> devices{};  // that have events or segments
};

struct SummaryOptions {
  std::size_t top = 8;                  // holders that get text, of each list
  std::optional<std::string> device{};  // only this one, by name or number
  CategoryRules rules{};
};

// Throws InvalidArgument for a device that the recording does not have.
[[nodiscard]] RecordingSummary look_into(const trace::TraceFile& file,
                                         const SummaryOptions& options = {});

}  // namespace headroom::analysis
