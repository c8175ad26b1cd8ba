#include "headroom/replay/verify.h"

#include <algorithm>
#include <utility>

#include "headroom/replay/cards.h"
#include "headroom/replay/internal/checked_run.h"

namespace headroom::replay {

using internal::CheckedRun;
using internal::Reading;
using internal::Readings;

namespace {

// How often a run is begun again with another reading of a request that gave memory back.
constexpr int kMostRuns = 64;

// A way to run the recording, and how far it agrees.
struct Attempt {
  ReplayOptions options{};
  Readings readings{};
  std::optional<std::uint32_t> first_mismatch{};

  [[nodiscard]] bool is_exact() const noexcept { return !first_mismatch; }
  [[nodiscard]] bool gets_further_than(const Attempt& other) const noexcept {
    return other.first_mismatch && (is_exact() || *first_mismatch > *other.first_mismatch);
  }
};

// Finds readings under which a run gets furthest, changing one at a time: one of the last before
// the first mismatch, since a wrong reading shows at once or soon.
class ReadingSearch {
 public:
  ReadingSearch(const Program& program, ReplayOptions options) : program_(program) {
    best_.options = std::move(options);
  }

  Attempt run() {
    CheckedRun current = try_run(best_.readings);
    best_.first_mismatch = current.first_mismatch_event;
    while (!best_.is_exact() && improve(current)) {
    }
    return std::move(best_);
  }

 private:
  CheckedRun try_run(const Readings& readings) {
    ++runs_;
    return internal::run_checked(program_, best_.options, readings, {.stop_at_mismatch = true});
  }

  bool improve(CheckedRun& current) {
    const std::size_t recent = std::min<std::size_t>(current.choices.size(), 3);
    for (std::size_t back = 1; back <= recent; ++back) {
      const auto choice = current.choices[current.choices.size() - back];
      for (std::size_t i = 0; i < internal::kReadingCount; ++i) {
        if (runs_ >= kMostRuns) return false;
        if (try_reading(choice.first, static_cast<Reading>(i), choice.second, current)) return true;
      }
    }
    return false;
  }

  bool try_reading(std::uint32_t event, Reading reading, Reading taken, CheckedRun& current) {
    if (reading == taken) return false;
    Readings changed = best_.readings;
    changed[event] = reading;
    CheckedRun run = try_run(changed);
    if (run.first_mismatch_event && *run.first_mismatch_event <= *best_.first_mismatch) {
      return false;
    }
    best_.readings = std::move(changed);
    best_.first_mismatch = run.first_mismatch_event;
    current = std::move(run);
    return true;
  }

  const Program& program_;
  Attempt best_;
  int runs_ = 0;
};

class Verifier {
 public:
  Verifier(const Program& program, const VerifyOptions& options)
      : program_(program),
        options_(options),
        version_(options.version.value_or(program.version)),
        card_(options.card_bytes.value_or(kDefaultCardBytes)) {}

  Verification run() {
    Attempt best = attempt(version_, card_);
    try_other_tie(best);
    try_cards(best);
    Verification out = compare(best);
    if (!options_.version && out.is_exact()) {
      out.is_version_proved =
          !attempt(other_tie(best.options.version), best.options.card_bytes).is_exact();
    }
    return out;
  }

 private:
  static memory::PyTorchVersion other_tie(memory::PyTorchVersion version) {
    return version < memory::kPyTorch213 ? memory::kPyTorch213 : memory::kPyTorch212;
  }

  Attempt attempt(memory::PyTorchVersion version, std::uint64_t card) {
    ReplayOptions options = as_recorded(program_, {.card_bytes = card});
    options.version = version;
    if (options_.limit_bytes) options.limit_bytes = options_.limit_bytes;
    return ReadingSearch(program_, std::move(options)).run();
  }

  void take_if_further(Attempt& best, Attempt other) {
    if (other.gets_further_than(best)) best = std::move(other);
  }

  void try_other_tie(Attempt& best) {
    if (best.is_exact() || options_.version) return;
    take_if_further(best, attempt(other_tie(version_), card_));
  }

  // The recorded limit is a share of a card that the recording does not name.
  void try_cards(Attempt& best) {
    if (options_.card_bytes || options_.limit_bytes || !program_.limit.fraction) return;
    for (const Card& card : cards()) {
      if (best.is_exact()) return;
      if (card.size_bytes == card_) continue;
      take_if_further(best, attempt(best.options.version, card.size_bytes));
    }
  }

  Verification compare(const Attempt& attempt) {
    ReplayOptions options = attempt.options;
    options.sink = options_.sink;
    return internal::run_checked(
               program_, options, attempt.readings, {.timeline_samples = options_.timeline_samples})
        .verification;
  }

  const Program& program_;
  const VerifyOptions& options_;
  memory::PyTorchVersion version_;
  std::uint64_t card_;
};

}  // namespace

Verification verify(const Program& program, const VerifyOptions& options) {
  return Verifier(program, options).run();
}

}  // namespace headroom::replay
