#include "headroom/replay/player.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "headroom/base/checked.h"
#include "headroom/replay/internal/machine.h"

namespace headroom::replay {

using internal::Machine;

namespace {

// Where the run stops to look: the samples' places and the observers'.
std::vector<std::size_t> stops(const Program& program, const ReplayOptions& options) {
  std::vector<std::size_t> out;
  const std::size_t count = program.ops.size();
  const std::size_t samples = std::min(options.timeline_samples, count);
  for (std::size_t i = 1; i <= samples; ++i) out.push_back(count * i / samples);
  for (const Observer& observer : options.observers) {
    if (observer.at_op < count) out.push_back(observer.at_op + 1);
  }
  // A look at the bytes now and then costs less than one at every op.
  constexpr std::size_t kLooks = 64;
  for (std::size_t i = 1; options.stop_above_bytes != UINT64_MAX && i < kLooks; ++i) {
    out.push_back(count * i / kLooks);
  }
  out.push_back(count);
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

void observe(Machine& machine, const ReplayOptions& options, std::size_t op) {
  for (const Observer& observer : options.observers) {
    if (observer.at_op == op && observer.look) observer.look(machine.allocator());
  }
}

// The share of the card that may be reserved, whichever is the smaller bound.
std::uint64_t most_that_may_be(const ReplayOptions& options) {
  return std::min(options.limit_bytes.value_or(UINT64_MAX),
                  options.card_bytes - options.outside_bytes);
}

}  // namespace

ReplayResult replay(const Program& program, const ReplayOptions& options) {
  const auto started = std::chrono::steady_clock::now();
  Machine machine(program, options);
  std::vector<TimelineSample> timeline;
  std::size_t at = 0;
  bool is_complete = true;
  for (const std::size_t stop : stops(program, options)) {
    const bool goes_on = machine.run(at, stop);
    if (options.timeline_samples > 0 && stop > 0) timeline.push_back(machine.sample(stop - 1));
    is_complete = goes_on && machine.watch().peak_reserved <= options.stop_above_bytes;
    at = goes_on ? stop : machine.watch().op + 1;
    if (!is_complete) break;
    if (stop > 0) observe(machine, options, stop - 1);
  }
  ReplayResult result;
  machine.finish(result);
  result.is_complete = is_complete;
  result.ops = at;
  result.timeline = std::move(timeline);
  result.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return result;
}

bool depends_on_addresses(const ReplayOptions& options) noexcept {
  return !options.paged && options.version < memory::kPyTorch213 &&
         !options.config.expandable_segments;
}

ReplayResult replay_bounds(const Program& program, const ReplayOptions& options) {
  ReplayResult result = replay(program, options);
  if (!depends_on_addresses(options)) return result;
  ReplayOptions other = options;
  other.order = options.order == device::AddressOrder::kDescending
                    ? device::AddressOrder::kAscending
                    : device::AddressOrder::kDescending;
  other.timeline_samples = 0;
  other.observers.clear();
  other.sink = nullptr;
  const ReplayResult again = replay(program, other);
  result.peak_reserved_low = std::min(result.peak_reserved, again.peak_reserved);
  result.peak_reserved_high = std::max(result.peak_reserved, again.peak_reserved);
  result.fits = result.fits && again.fits;
  if (!result.first_failure) result.first_failure = again.first_failure;
  result.seconds += again.seconds;
  return result;
}

std::optional<std::uint64_t> limit_of(const ReplayOptions& options) noexcept {
  const double fraction = options.config.memory_fraction;
  if (options.limit_bytes || fraction == 1) return options.limit_bytes;
  return static_cast<std::uint64_t>(fraction * static_cast<double>(options.card_bytes));
}

ReplayOptions with_settings(const Program& program,
                            const memory::AllocatorConfig& config,
                            const Bounds& bounds) {
  ReplayOptions options{.config = config,
                        .version = program.version,
                        .card_bytes = bounds.card_bytes.value_or(kDefaultCardBytes)};
  if (bounds.limit_bytes) {
    options.limit_bytes = bounds.limit_bytes;
    options.config.memory_fraction = 1;
    return options;
  }
  // A limit that was set in the settings string is no setting one would change.
  options.config.memory_fraction = program.config.memory_fraction;
  const RecordedLimit& limit = program.limit;
  options.limit_bytes = limit.said_bytes;
  if (limit.said_bytes || limit.fraction || !limit.floor_bytes) return options;
  if (!limit.was_device_full) {
    options.limit_bytes = limit.floor_bytes;
    return options;
  }
  const bool is_same_card = !bounds.card_bytes || can_be_card_of(limit, *bounds.card_bytes);
  if (is_same_card && *limit.floor_bytes < options.card_bytes) {
    options.outside_bytes = options.card_bytes - *limit.floor_bytes;
  }
  return options;
}

ReplayOptions as_recorded(const Program& program, const Bounds& bounds) {
  return with_settings(program, program.config, bounds);
}

ReplayOptions with_paged(const Program& program,
                         const memory::PagedOptions& paged,
                         const Bounds& bounds) {
  ReplayOptions options = with_settings(program, {}, bounds);
  options.paged = paged;
  return options;
}

// --- The smallest limit --------------------------------------------------------------------------

namespace {

class LimitSearch {
 public:
  LimitSearch(const Program& program, const ReplayOptions& options)
      : program_(program), options_(options) {
    options_.stop_at_failure = true;
    options_.timeline_samples = 0;
    options_.observers.clear();
    options_.sink = nullptr;
    options_.checks_bound = false;
  }

  std::optional<SmallestLimit> run(double tolerance) {
    std::uint64_t low = std::max<std::uint64_t>(program_.peak_live, 1) - 1;  // fails: it is less
    std::uint64_t high = most_that_may_be(options_);
    if (low >= high || !survives(high)) return std::nullopt;
    step_ = std::max(memory::kMinBlockBytes,
                     static_cast<std::uint64_t>(tolerance * static_cast<double>(low)));
    high = enough_for_all(high);
    // Each round ends with a bound that survives and, just below it, one that does not. A failure
    // at one of the steps above starts another round there.
    for (;;) {
      high = bisect(low, high);
      const std::optional<std::uint64_t> failing = highest_failure_above(high);
      if (!failing) break;
      low = *failing;
      high = next_step(high, *failing);
    }
    options_.limit_bytes = high;
    ++runs_;
    return SmallestLimit{
        .bytes = high, .retries = replay(program_, options_).retries, .runs = runs_};
  }

 private:
  bool survives(std::uint64_t limit) {
    if (limit >= enough_) return true;
    ++runs_;
    options_.limit_bytes = limit;
    return replay(program_, options_).fits;
  }

  // A bound that is never touched; above it nothing changes. Garbage collection has no such bound.
  std::uint64_t enough_for_all(std::uint64_t most) {
    if (!options_.paged && options_.config.garbage_collection_threshold > 0) return most;
    options_.limit_bytes = most;
    ++runs_;
    const ReplayResult result = replay(program_, options_);
    if (!result.fits || result.retries > 0) return most;
    std::uint64_t largest = 0;
    for (const Op& op : program_.ops) largest = std::max(largest, op.size_bytes);
    enough_ = std::min(most, result.peak_reserved + most_taken_for(largest));
    return enough_;
  }

  // The most that the allocator may take from the device for one request.
  [[nodiscard]] std::uint64_t most_taken_for(std::uint64_t size_bytes) const {
    const memory::AllocatorConfig& config = options_.config;
    if (!options_.paged) {
      return memory::new_segment_size(memory::rounded_size(size_bytes, config), config);
    }
    return round_up(size_bytes, options_.paged->large_page_bytes) +
           options_.paged->large_page_bytes;
  }

  // `low` fails and `high` survives.
  std::uint64_t bisect(std::uint64_t low, std::uint64_t high) {
    while (high - low > step_) {
      const std::uint64_t middle = low + (high - low) / 2;
      (survives(middle) ? high : low) = middle;
    }
    return high;
  }

  static std::uint64_t at_percent(std::uint64_t bound, std::uint64_t percent) {
    return static_cast<std::uint64_t>(static_cast<double>(bound) *
                                      (1.0 + static_cast<double>(percent) / 100.0));
  }

  std::optional<std::uint64_t> highest_failure_above(std::uint64_t bound) {
    for (std::uint64_t percent = 30; percent > 0; --percent) {
      const std::uint64_t limit = at_percent(bound, percent);
      if (!survives(limit)) return limit;
    }
    return std::nullopt;
  }

  static std::uint64_t next_step(std::uint64_t bound, std::uint64_t failing) {
    std::uint64_t percent = 1;
    while (at_percent(bound, percent) <= failing) ++percent;
    return at_percent(bound, percent);
  }

  const Program& program_;
  ReplayOptions options_;
  std::uint64_t enough_ = UINT64_MAX;
  std::uint64_t step_ = 1;
  std::uint64_t runs_ = 0;
};

}  // namespace

std::optional<SmallestLimit> smallest_limit(const Program& program,
                                            const ReplayOptions& options,
                                            double tolerance) {
  return LimitSearch(program, options).run(tolerance);
}

}  // namespace headroom::replay
