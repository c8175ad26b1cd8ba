// `headroom tune`, in steps that tests can take one by one: search, then draw what was found or
// write it as JSON.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headroom/replay/tune.h"
#include "headroom/trace/trace.h"

#include "cli/command.h"

namespace headroom::cli {

struct TuneRequest {
  std::vector<std::string> paths{};
  replay::TuneOptions options{};
};

// Whose decisions a recording has: only PyTorch's own were made under its settings.
enum class MadeBy : std::uint8_t {
  kPyTorch,
  kNative,  // our allocator that decides as PyTorch's
  kPaged,   // our other one, which none of PyTorch's settings change
};

// One history that was replayed: a device of a file.
struct TunedHistory {
  std::string name{};  // the file's, with the device where it has several
  std::uint64_t allocs = 0;
  std::uint64_t peak_live = 0;
  std::uint64_t failures = 0;        // recorded ones
  std::uint64_t start_reserved = 0;  // before the first event; 0 where the history is whole
  MadeBy made_by = MadeBy::kPyTorch;
  std::uint64_t recorded_reserved = 0;  // at the peak, by whoever made it
};

struct TuneReport {
  TuneRequest request{};
  std::vector<TunedHistory> histories{};
  memory::PyTorchVersion version{};
  bool is_version_known = false;
  replay::TuneResult result{};

  // Of any history: then PyTorch's settings were not in force while that was recorded.
  [[nodiscard]] bool is_made_by(MadeBy maker) const {
    return std::ranges::any_of(histories,
                               [maker](const TunedHistory& one) { return one.made_by == maker; });
  }
};

// Throws Error where no recording has a history to replay.
[[nodiscard]] TuneReport search_settings(std::span<const trace::Trace> traces,
                                         const TuneRequest& request,
                                         const Context& context);

[[nodiscard]] std::string draw_tune(const TuneReport& report, const Context& context);

// Follows docs/format/tune.schema.json.
[[nodiscard]] std::string tune_json(const TuneReport& report);

}  // namespace headroom::cli
