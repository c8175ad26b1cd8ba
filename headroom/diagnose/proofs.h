// A recorded program's traffic under other settings, on other cards and under other
// limits, by replaying it: doctor's proofs.
//
// "Proved" means replayed from the first request to the last without a failure, under the limit
// that is written beside it. Of a history that starts in the middle every allocator starts with the
// blocks that were live then, so that none inherits what another had cached.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "headroom/analysis/category_rules.h"
#include "headroom/analysis/index.h"
#include "headroom/diagnose/limit.h"
#include "headroom/memory/account.h"
#include "headroom/memory/allocator_choice.h"
#include "headroom/memory/config.h"
#include "headroom/replay/program.h"

namespace headroom::diagnose {

struct ReplayChoices {
  std::optional<memory::PyTorchVersion> version{};     // else as far as the recording says
  int threads = 0;                                     // 0: as many as the machine has
  std::function<void(const std::string&)> progress{};  // told what is being done
  analysis::CategoryRules rules{};                     // for the accounts
};

// One run: of what, under what, and what came out.
struct ProvedSetting {
  memory::AllocatorChoice choice{};
  std::string conf{};  // of PYTORCH_CUDA_ALLOC_CONF; empty are the factory settings, and paged
  std::uint64_t peak_reserved = 0;
  bool fits = true;
  std::optional<std::uint64_t> limit_bytes{};  // it ran under; the low end of a range
  double driver_us = 0;                        // that the driver's calls would have taken
};

struct Proof {
  ProvedSetting current{};
  ProvedSetting best{};
  std::optional<ProvedSetting> best_without_expandable{};  // where `best` uses it
  std::optional<ProvedSetting> expandable{};  // alone, where that is not `best`: easy to remember
  std::optional<ProvedSetting> paged{};       // our own allocator
};

// The outcome on a card or under a limit, with the settings of the recording.
struct Foreseen {
  bool fits = true;
  std::uint64_t peak_reserved = 0;
  // Where it does not fit: the first failure, as the allocator explained it.
  memory::Account account{};
  std::size_t event = 0;  // of the recording
};

class Replays {
 public:
  // Refers to the index. The bounds are those that will be asked about.
  Replays(const analysis::TraceIndex& index, ReplayChoices choices, const Bounds& bounds = {});

  // Whether the bounds would have changed nothing: then the recording is the answer.
  [[nodiscard]] bool run_as_recorded(const Bounds& bounds) const {
    return replay::runs_as_recorded(program_, bounds);
  }
  [[nodiscard]] Foreseen foresee(const Bounds& bounds) const;
  // Nothing where our own paged allocator was recorded, whom PyTorch's settings say nothing.
  [[nodiscard]] std::optional<Proof> prove(const Bounds& bounds) const;

 private:
  [[nodiscard]] ProvedSetting prove_paged(const replay::Program& program,
                                          const Bounds& bounds) const;

  const analysis::TraceIndex& index_;
  ReplayChoices choices_;
  replay::Program program_;  // as recorded
};

}  // namespace headroom::diagnose
