// The faults in a recorded program's memory, and the advice: the rules behind
// `headroom doctor`.
//
//   const analysis::TraceIndex index(trace, trace.devices[0]);
//   const Diagnosis diagnosis = examine(index, {.bounds = {.card_bytes = 24_GiB}});
//   print(to_string(diagnosis.health), report::summary_text(diagnosis));
//
// A leak comes first, for whatever else is wrong, it makes worse. Then the failure: recorded, or of
// the traffic on a card or under a limit that is asked about; explain() says which kind. Without
// one, the peak. Everything here is a value; report/doctor_text.h has the sentences.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/analysis/growth.h"
#include "headroom/analysis/index.h"
#include "headroom/analysis/site_tree.h"
#include "headroom/analysis/spread.h"
#include "headroom/base/bytes.h"
#include "headroom/diagnose/limit.h"
#include "headroom/diagnose/proofs.h"
#include "headroom/memory/account.h"

namespace headroom::diagnose {

enum class Health : std::uint8_t { kHealthy, kFragmentation, kShortage, kLeak };

[[nodiscard]] std::string_view to_string(Health health) noexcept;

// Without a failure, cached memory counts as fragmentation from this share of what was reserved at
// the peak, and this many bytes. Below it lies what caching costs any program (a fixed-shape
// ResNet-50 leaves 17 %, most of it in whole segments that PyTorch gives back before it fails);
// traffic that fragments leaves a third and more.
inline constexpr double kFragmentedShare = 0.20;
inline constexpr std::uint64_t kFragmentedBytes = 64_MiB;
// A setting is worth a word when it saves this share.
inline constexpr double kWorthSaving = 0.02;
// Pages that few blocks keep are a finding from this share of what was reserved.
inline constexpr double kSpreadShare = 0.10;

struct DoctorOptions {
  Bounds bounds{};
  // For continuous integration.
  std::optional<std::uint64_t> max_peak_bytes{};    // of reserved
  std::optional<std::uint64_t> max_growth_bytes{};  // per iteration; what grows less is no leak
  bool has_replays = true;  // without, nothing is proved and no bound is tried
  ReplayChoices replays{};
};

enum class FindingKind : std::uint8_t {
  kLeak,
  kGrowth,
  kFragmentation,
  kShortage,
  kCached,
  kPeak,
};

[[nodiscard]] std::string_view to_string(FindingKind kind) noexcept;

enum class Advice : std::uint8_t {
  kKeepNoGraph,       // from step to step
  kFindHolder,        // of what grows
  kMendLeakFirst,     // before the failure it brought about
  kSetting,           // of PyTorch's allocator
  kPagedAllocator,    // ours
  kFromAccount,       // `remedy`
  kOneStream,         // cached blocks serve only their own
  kRecordFromStart,   // most was reserved before the recording begins
  kMakeSizesRepeat,   // no setting helps
  kKeepApart,         // the blocks that stay, as `spread` says
  kStayBelowMaxPeak,  // the bound of continuous integration
};

// Why a setting is named beside a better one.
enum class Besides : std::uint8_t { kNothing, kIsSimple, kNeedsNoExpandable };

struct Finding {
  FindingKind kind = FindingKind::kLeak;
  Advice advice = Advice::kKeepNoGraph;
  // Per step for leak and growth; saved, gained or over the bound else.
  std::uint64_t bytes = 0;
  std::string site{};                    // the line of the program; empty where it is nobody's
  std::optional<ProvedSetting> proof{};  // of kSetting and kPagedAllocator
  Besides besides = Besides::kNothing;
  memory::Remedy remedy{};    // of kFromAccount
  analysis::Spread spread{};  // of kKeepApart

  [[nodiscard]] bool is_proved() const noexcept { return proof.has_value(); }
};

enum class Moment : std::uint8_t { kPeak, kFailure, kForeseenFailure };

// The failures that were recorded.
struct Failures {
  std::uint64_t count = 0;
  std::uint64_t bursts = 0;  // of failures in quick succession
  bool went_on = false;      // the program allocated on after the last one
};

// No CUDA context takes less of a card; an H200's takes 526 MiB.
inline constexpr std::uint64_t kLeastContextBytes = 128_MiB;

// The effect of the bounds that the user asked about.
struct WhatIf {
  Bounds bounds{};
  bool fits = true;
  std::uint64_t peak_reserved = 0;
  bool is_recorded = false;  // they can be those of the recording, whose outcome this is

  // The requests fit on the card, and CUDA itself does not any more.
  [[nodiscard]] bool leaves_no_context() const noexcept {
    return fits && bounds.card_bytes && peak_reserved + kLeastContextBytes > *bounds.card_bytes;
  }
};

struct Diagnosis {
  Health health = Health::kHealthy;
  bool is_over_bounds = false;  // --max-peak or --max-growth
  Moment moment = Moment::kPeak;
  std::uint32_t position = 0;               // that moment, in the index
  memory::Account account{};                // at that moment
  std::vector<analysis::SiteNode> sites{};  // who held what then, where stacks were kept
  memory::Explanation explanation{};        // of a failure
  std::optional<LimitRange> limit{};        // when it was recorded
  std::optional<WhatIf> what_if{};          // where a card or a limit was named
  std::vector<Finding> findings{};          // by effect
  std::optional<analysis::Growth> growth{};
  std::size_t iterations = 0;
  Failures failures{};
  bool is_of_headroom = false;  // our own runtime was recorded, not PyTorch
  bool uses_streams = false;    // several, or frees that wait for another
  bool is_whole = true;         // the history starts with an empty device
  std::uint64_t peak_live = 0;
  std::uint64_t peak_allocated = 0;
  std::uint64_t peak_reserved = 0;
  std::uint64_t max_peak_bytes = 0;  // the bound, where it was passed
  std::optional<Proof> proof{};

  [[nodiscard]] bool is_good() const noexcept {
    return health == Health::kHealthy && !is_over_bounds &&
           !(what_if && what_if->leaves_no_context());
  }
};

[[nodiscard]] Diagnosis examine(const analysis::TraceIndex& index, const DoctorOptions& options);

// The health of a pasted message, by the same rules: explain()'s verdict.
[[nodiscard]] Health health_of(memory::Verdict verdict) noexcept;

}  // namespace headroom::diagnose
