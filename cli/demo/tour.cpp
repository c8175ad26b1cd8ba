#include "cli/demo/tour.h"

#include <algorithm>
#include <utility>

#include "headroom/base/bytes.h"
#include "headroom/replay/infer_empty_caches.h"
#include "headroom/replay/player.h"
#include "headroom/replay/program.h"
#include "headroom/replay/verify.h"
#include "headroom/report/doctor_text.h"

namespace headroom::cli {
namespace {

using replay::Program;
using replay::ReplayOptions;

// Little more than was ever live at once (12.1 GiB): what counts is how well it is used.
constexpr std::uint64_t kSmallerCard = 12_GiB + 512_MiB;

memory::AllocatorConfig config_of(const std::string& conf, memory::PyTorchVersion version) {
  auto parsed = memory::parse_config(conf, {.version = version});
  if (!parsed) throw Error(parsed.error());
  return std::move(parsed->config);
}

TourRow try_out(const Program& program, const std::string& conf, ReplayOptions options) {
  TourRow row{.conf = conf};
  row.peak_reserved = replay::replay_bounds(program, options).peak_reserved;
  options.limit_bytes = kSmallerCard;
  options.stop_at_failure = true;
  row.fits = replay::replay_bounds(program, options).fits;
  return row;
}

// The settings that people try, and those that were found.
std::vector<TourRow> try_all(const Program& program, const diagnose::Diagnosis& diagnosis) {
  std::vector<std::string> confs{"", "max_split_size_mb:128", "roundup_power2_divisions:4"};
  if (diagnosis.proof) {
    if (diagnosis.proof->best_without_expandable) {
      confs.push_back(diagnosis.proof->best_without_expandable->conf);
    }
    confs.push_back(diagnosis.proof->best.conf);
    if (diagnosis.proof->expandable) confs.push_back(diagnosis.proof->expandable->conf);
  }
  std::vector<TourRow> rows;
  rows.reserve(confs.size());
  for (const std::string& conf : confs) {
    rows.push_back(
        try_out(program, conf, with_settings(program, config_of(conf, program.version))));
  }
  return rows;
}

// The setting that fits and takes least; else the one that takes least at all.
const TourRow& best_of(const std::vector<TourRow>& rows) {
  return *std::ranges::min_element(
      rows, {}, [](const TourRow& row) { return std::pair(!row.fits, row.peak_reserved); });
}

}  // namespace

Tour play_tour(const trace::TraceFile& file, std::string sample) {
  const auto devices = replay::replayable(file.trace);
  if (devices.empty()) throw Error(sample + ": has no history");
  const trace::DeviceTrace& device = *devices.front();
  const Program program = replay::compile_with_empty_caches(file.trace, device);
  const replay::Verification verified = replay::verify(program);
  const analysis::TraceIndex index(file.trace, device);
  Tour tour{.sample = std::move(sample),
            .events = program.events,
            .allocs = program.allocs,
            .same_addresses = program.allocs - verified.address_mismatches,
            .segment_mismatches = verified.segment_mismatches,
            .diagnosis = diagnose::examine(index, {}),
            .limit_bytes = kSmallerCard};
  tour.rows = try_all(program, tour.diagnosis);
  tour.paged = try_out(program, "paged", with_paged(program));
  tour.export_line = report::export_line(best_of(tour.rows).conf);
  return tour;
}

}  // namespace headroom::cli
