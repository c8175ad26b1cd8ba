// The cost of recording per allocation, and how quickly recordings are read and written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/output/progress.h"
#include "cli/output/spread.h"

namespace headroom::cli {

struct RecordingCost {
  std::string name;      // "file, 20 frames"
  Spread pair_ns{};      // of allocate and free, which are three events
  Spread added_ns{};     // an event, beside the same round without a sink
  double budget_ns = 0;  // what it may add; 0 where nothing was promised
};

// One way to read or write the events of a file.
struct FileCost {
  std::string name;  // "read pickle", "Python's pickle.load"
  std::uint64_t file_bytes = 0;
  Spread ms{};
  std::optional<Spread> ratio{};  // Python's time over this, round by round
};

struct TraceBenchOptions {
  std::string file{};  // a snapshot; empty: samples/gpt2_varlen.pickle.zst where it is there
  int rounds = 7;
  std::uint64_t pairs = 2'000;  // in each of the ten measurements a round takes the quickest of
};

struct TraceBench {
  std::vector<RecordingCost> recording{};
  Spread packing_ns{};  // an event, in the recorder's own thread
  std::string file{};
  std::uint64_t file_events = 0;
  std::vector<FileCost> files{};
  std::vector<std::string> notes{};
};

// Throws Error when options.file cannot be read.
[[nodiscard]] TraceBench bench_trace(const TraceBenchOptions& options, const Progress& progress);

}  // namespace headroom::cli
