// What is wrong with a recorded program's memory, and what to do: the rules behind
// `headroom doctor`.
//
//   const analysis::TraceIndex index(trace, trace.devices[0]);
//   const Diagnosis diagnosis = diagnose(index, {.prove = prove_by_replay});
//   print(to_string(diagnosis.health), diagnosis.summary);
//
// A leak comes first, for whatever else is wrong, it makes worse. Then the failure: recorded, or of
// the traffic under a limit that is asked about; explain() says which kind. Without one, the peak.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/analysis/growth.h"
#include "headroom/analysis/index.h"
#include "headroom/base/bytes.h"
#include "headroom/memory/account.h"
#include "headroom/memory/config.h"

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

// What the traffic takes under other settings, found by running it.
struct ProvedSetting {
  std::string conf{};  // of PYTORCH_CUDA_ALLOC_CONF; empty are the factory settings
  std::uint64_t peak_reserved = 0;
  bool fits = true;
};
struct Proof {
  ProvedSetting current{};
  ProvedSetting best{};
  std::optional<ProvedSetting> best_without_expandable{};  // where `best` uses it
  std::optional<ProvedSetting> expandable{};  // alone, where that is not `best`: easy to remember
  std::optional<ProvedSetting> paged{};       // our own allocator, whose `conf` is empty
};

// A failure that was not recorded, but happens under the limit or card asked about.
struct ForeseenFailure {
  memory::Account account{};
  std::size_t event = 0;  // of the recording
};

struct DoctorOptions {
  std::optional<std::uint64_t> card_bytes{};
  std::optional<std::uint64_t> limit_bytes{};
  // Bounds for continuous integration.
  std::optional<std::uint64_t> max_peak_bytes{};    // of reserved
  std::optional<std::uint64_t> max_growth_bytes{};  // an iteration; what grows less is no leak
  // Both run the traffic; without them nothing is proved and no limit is tried.
  std::function<std::optional<Proof>(const analysis::TraceIndex&)> prove{};
  std::function<std::optional<ForeseenFailure>(const analysis::TraceIndex&)> foresee{};
};

struct Finding {
  std::string kind{};       // leak, growth, fragmentation, shortage, cached, peak
  std::uint64_t bytes = 0;  // a step for leak and growth; saved, gained or over the bound else
  std::string site{};       // the line of the program; empty where it is nobody's
  std::string remedy{};
  bool is_proved = false;  // by replay
  std::string text{};      // one sentence, for people
};

enum class Moment : std::uint8_t { kPeak, kFailure, kForeseenFailure };

struct Diagnosis {
  Health health = Health::kHealthy;
  bool is_over_bounds = false;  // --max-peak or --max-growth
  std::string summary{};        // one sentence
  Moment moment = Moment::kPeak;
  std::uint32_t position = 0;       // that moment, in the index
  memory::Account account{};        // at that moment
  std::vector<Finding> findings{};  // by effect
  std::optional<analysis::Growth> growth{};
  std::size_t iterations = 0;
  std::uint64_t failures = 0;
  std::uint64_t peak_live = 0;
  std::uint64_t peak_allocated = 0;
  std::uint64_t peak_reserved = 0;
  std::optional<Proof> proof{};

  [[nodiscard]] bool is_good() const noexcept {
    return health == Health::kHealthy && !is_over_bounds;
  }
};

[[nodiscard]] Diagnosis diagnose(const analysis::TraceIndex& index, const DoctorOptions& options);

// What a pasted message says, by the same rules: explain()'s verdict as health.
[[nodiscard]] Health health_of(memory::Verdict verdict) noexcept;

// `export PYTORCH_CUDA_ALLOC_CONF=...`
[[nodiscard]] std::string export_line(std::string_view conf);

}  // namespace headroom::diagnose
