// `headroom info`, in three steps that tests can take one by one: look into a recording, then draw
// what was found or write it as JSON.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headroom/analysis/categories.h"
#include "headroom/analysis/groups.h"
#include "headroom/analysis/histograms.h"
#include "headroom/analysis/index.h"
#include "headroom/analysis/site_tree.h"
#include "headroom/trace/file.h"

#include "cli/command.h"

namespace headroom::cli {

// A peak with when it was.
struct PeakInfo {
  std::uint64_t bytes = 0;
  std::uint64_t after_events = 0;
  std::int64_t after_us = 0;  // since the first event
};

// Blocks that share something, and how their allocation is reached.
struct HolderInfo {
  analysis::Group group{};
  std::string plain_name{};  // of a category, for people
  std::string known_by{};    // of a category, where it was not recorded
  // Both for the first `top` only. Of the largest block, innermost frame first.
  std::vector<std::string> stack{};
  std::vector<std::string> short_stack{};  // without wrappers and with short names
};

// Sizes asked for, by category and by how each is known.
using CategorySums =
    std::array<std::array<std::uint64_t, analysis::kCertaintyCount>, memory::kCategoryCount>;

struct DeviceInfo {
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

  // What was there before the first event: nothing, where the history is whole.
  bool is_whole_history = true;
  bool has_final_state = false;
  std::uint64_t start_blocks = 0;
  analysis::Totals start{};
  analysis::Totals end{};

  PeakInfo peak_live{};
  PeakInfo peak_allocated{};
  PeakInfo peak_active{};
  PeakInfo peak_reserved{};
  std::uint64_t reserved_at_peak = 0;  // when allocated was highest

  // The highest values of equal runs of events, at most kCurvePoints.
  static constexpr std::size_t kCurvePoints = 512;
  std::vector<double> allocated_curve{};
  std::vector<double> reserved_curve{};

  std::vector<analysis::HistogramBin> sizes{};
  analysis::LifetimeHistogram lifetimes{};

  // What was allocated when allocated was highest, the largest first, all of it.
  bool has_stacks = false;
  std::uint64_t blocks_at_peak = 0;
  std::vector<HolderInfo> sites{};              // empty without stacks
  std::vector<analysis::SiteNode> site_tree{};  // the same, split by the frames below
  std::vector<HolderInfo> stacks{};             // the same, by whole stacks
  std::vector<HolderInfo> modules{};            // by annotation where there are any, else by stack
  std::vector<HolderInfo> by_size{};
  std::vector<HolderInfo> categories{};  // empty where none is known
  CategorySums categories_at_peak{};
  std::vector<HolderInfo> annotations{};  // the same

  analysis::Anomalies anomalies{};
};

struct InfoReport {
  std::string path{};
  trace::Format format = trace::Format::kPickle;
  bool is_packed = false;
  std::uint64_t file_bytes = 0;
  std::string note{};  // what the file lacks
  std::string producer{};
  std::string settings{};
  std::uint64_t annotations = 0;
  bool has_stacks = false;
  std::vector<DeviceInfo> devices{};  // that have events or segments
};

// What holders are listed by; unset is by site where there are stacks.
enum class InfoBy : std::uint8_t { kSite, kStack, kModule };

struct InfoQuestion {
  std::string path{};
  std::size_t top = 8;                  // holders to list
  std::optional<std::string> device{};  // only this one, by name or number
  std::optional<InfoBy> by{};
  std::string rules_path{};  // of category rules; empty: none
  analysis::CategoryRules rules{};
};

// Throws UsageError for a device that the recording does not have.
[[nodiscard]] InfoReport look_into(const trace::TraceFile& file, const InfoQuestion& question);

[[nodiscard]] std::string draw_info(const InfoReport& report,
                                    const InfoQuestion& question,
                                    const Context& context);

// Follows docs/format/info.schema.json.
[[nodiscard]] std::string info_json(const InfoReport& report, const InfoQuestion& question);

}  // namespace headroom::cli
