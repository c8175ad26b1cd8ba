// Finds the PYTORCH_ALLOC_CONF under which recorded traffic takes the least memory, by replaying
// it.
//
//   const Program* programs[] = {&program};
//   const TuneResult result = tune(programs, {.limit_bytes = 12_GiB});
//   if (result.best.fits) print("export PYTORCH_ALLOC_CONF=" + result.best.conf);
//
// Every key alone first, and a few values of every two; then, from the best of each combination of
// keys, every other value of every key, in turn until nothing improves. What passes the best so far
// is stopped there, and what must pass it is not begun. The answer depends on the traffic and the
// options alone: not on threads or time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/memory/allocator_choice.h"
#include "headroom/memory/config.h"
#include "headroom/replay/player.h"
#include "headroom/replay/program.h"

namespace headroom::replay {

// One setting, and what became of the traffic under it. With several programs the bytes are those
// of the one that took most; driver_us and retries are sums.
struct Candidate {
  std::string conf{};  // as the variable takes it; empty is the factory settings
  memory::AllocatorConfig config{};
  bool fits = true;  // no allocation failed, in any program, wherever segments were placed
  std::uint64_t peak_reserved = 0;  // up to the failure where it does not fit
  // Over the placements of segments, which the driver chooses; see replay_bounds().
  std::uint64_t peak_reserved_low = 0;
  std::uint64_t peak_reserved_high = 0;
  double driver_us = 0;
  std::uint64_t retries = 0;
  // The mean over the programs of peak_reserved_high / peak_live_if_served: what is ranked by.
  double overhead = 0;
  // How much of the traffic was served before the first failure; 1 where it fits.
  double served = 1;
  int parts = 0;  // settings that differ from the factory's: what one has to remember
  std::vector<std::uint64_t> peaks{};  // peak_reserved of each program

  // The allocator that it speaks of.
  [[nodiscard]] memory::AllocatorChoice choice() const {
    return {.config = config, .paged = std::nullopt, .is_default = false};
  }
};

struct TuneProgress {
  std::uint64_t tried = 0;
  std::uint64_t planned = 0;        // as far as it is known yet; grows
  const Candidate* best = nullptr;  // so far
};

struct TuneOptions {
  // The most that may be reserved; else as recorded (with_settings() says how).
  std::optional<std::uint64_t> limit_bytes{};
  std::optional<std::uint64_t> card_bytes{};
  // Keys that are left out, of tunable_keys(): they have their factory value.
  std::vector<std::string> without{};
  // Unset: each program's own. Settings are written so that this version reads them.
  std::optional<memory::PyTorchVersion> version{};
  int threads = 0;  // 0: as many as the machine has
  // Called on the thread that called tune().
  std::function<void(const TuneProgress&)> progress{};
};

struct TuneResult {
  Candidate current{};  // as recorded; conf is that of the first program
  Candidate best{};     // may be the current one
  // The best that does not use expandable segments, which not everybody can (Windows, old cards,
  // memory shared between processes). Empty where that is `best`, or there is none.
  std::optional<Candidate> best_without_expandable{};
  // The best first; `best` is the first. Without those that were stopped early, and without those
  // whose additional settings bring less than kWorthAPart.
  std::vector<Candidate> candidates{};
  std::uint64_t tried = 0;  // settings replayed, be it in part
  // False where it uses a key that TuneOptions::without names: then it is no answer.
  bool is_current_allowed = true;
  bool has_limit = false;  // something bounds what may be reserved, short of the card
  double seconds = 0;

  // Nothing is to be gained by another setting, or next to nothing.
  [[nodiscard]] bool is_current_best() const noexcept;
  [[nodiscard]] std::uint64_t saved_bytes() const noexcept;
};

// A setting with more parts must save this share of the peak for one or two of them, and again for
// each further one; the recorded settings are good enough when no other saves as much. Predictions
// are right to half of it, and a setting that is fitted more closely to one recording does not help
// the next.
inline constexpr double kWorthAPart = 0.01;

// Whether `a` is the better answer: it fits, then reserves less, then calls the driver less, then
// has fewer parts. Of two that do not fit: it serves more, then has fewer parts.
[[nodiscard]] bool is_better(const Candidate& a, const Candidate& b) noexcept;

// The keys that are searched: what TuneOptions::without may name.
[[nodiscard]] std::span<const std::string_view> tunable_keys() noexcept;

// Throws InvalidArgument where there is no program, or `without` names a key that is not searched.
[[nodiscard]] TuneResult tune(std::span<const Program* const> programs,
                              const TuneOptions& options = {});

}  // namespace headroom::replay
