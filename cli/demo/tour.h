// The first act of `headroom demo`: a real PyTorch recording, replayed and diagnosed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headroom/diagnose/doctor.h"
#include "headroom/trace/file.h"

#include "cli/command.h"

namespace headroom::cli {

// One setting on the smaller card.
struct TourRow {
  std::string conf{};               // empty: as recorded
  std::uint64_t peak_reserved = 0;  // without a limit
  bool fits = false;                // under the tour's limit
};

struct Tour {
  std::string sample{};  // the file's name
  std::uint64_t events = 0;
  std::uint64_t allocs = 0;
  std::uint64_t same_addresses = 0;  // of them
  std::uint64_t segment_mismatches = 0;
  diagnose::Diagnosis diagnosis{};
  std::uint64_t limit_bytes = 0;  // of the smaller card
  std::vector<TourRow> rows{};
  std::optional<TourRow> paged{};  // our own allocator
  std::string export_line{};
};

// The same bytes each time.
[[nodiscard]] Tour play_tour(const trace::TraceFile& file, std::string sample);

[[nodiscard]] std::string draw_tour(const Tour& tour, const Context& context);

}  // namespace headroom::cli
