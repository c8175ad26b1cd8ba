// Runs a program on a real CachingAllocator or PagedAllocator over addresses without memory.
//
//   ReplayOptions options = as_recorded(program);         // or with_settings(program, config),
//                                                         // or with_paged(program, {})
//   options.limit_bytes = 12_GiB;
//   const ReplayResult result = replay(program, options);
//   if (!result.fits) report(result.first_failure);
//
// There is no emulator beside the allocator: what replay says is what the allocator does. What no
// recording says is where the driver would have put a segment that PyTorch did not ask for; before
// 2.13 PyTorch breaks ties between equal blocks by address, so replay_bounds() runs both orders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/memory/out_of_memory.h"
#include "headroom/memory/paged/paged_allocator.h"
#include "headroom/memory/stats.h"
#include "headroom/replay/bounds.h"
#include "headroom/replay/program.h"

namespace headroom::replay {

// The card of which a recorded fraction is taken where nothing better is known: an H200's bytes.
inline constexpr std::uint64_t kDefaultCardBytes = 150'109'880'320;

// Called once, after op `at_op` was run, to look at the allocator there.
struct Observer {
  std::size_t at_op = 0;
  std::function<void(const memory::Allocator&)> look{};
};

struct ReplayOptions {
  memory::AllocatorConfig config{};
  memory::PyTorchVersion version{};
  // A PagedAllocator instead: of `config` only memory_fraction then matters.
  std::optional<memory::PagedOptions> paged{};
  std::uint64_t card_bytes = kDefaultCardBytes;  // past it the driver refuses
  std::uint64_t outside_bytes = 0;               // of the card, held by others
  // The most that may be reserved; where unset, config.memory_fraction of the card.
  std::optional<std::uint64_t> limit_bytes{};
  device::AddressOrder order = device::AddressOrder::kDescending;
  // Looks at a PagedAllocator's bound after every op; ReplayResult::bound says what was found.
  bool checks_bound = false;
  // The time from one request to the next, besides what the driver takes: the device's clock goes
  // on by both. Where it is 0 the clock stands still.
  double work_us_per_request = 0;
  // Stops at the first allocation that fails, where only `fits` matters.
  bool stop_at_failure = false;
  // Stops soon after more than this was reserved, where only less is of interest.
  std::uint64_t stop_above_bytes = UINT64_MAX;
  std::size_t timeline_samples = 0;   // about how many, at equal distances in ops
  std::vector<Observer> observers{};  // by at_op
  memory::EventSink* sink = nullptr;  // told of every decision
};

struct TimelineSample {
  std::size_t op = 0;  // after this op
  std::uint64_t live = 0;
  std::uint64_t allocated = 0;
  std::uint64_t active = 0;
  std::uint64_t reserved = 0;
};

// Priced with device::h200_call_costs().
struct DriverCalls {
  std::uint64_t device_allocs = 0;  // as PyTorch counts: segments taken, and maps; or handles
  std::uint64_t device_frees = 0;
  std::uint64_t handles_created = 0;
  std::uint64_t handles_mapped = 0;
  std::uint64_t handles_unmapped = 0;
  double driver_us = 0;
};

struct FailedAllocation {
  std::size_t op = 0;
  std::uint64_t size_bytes = 0;
  StreamId stream = StreamId::kDefault;
  bool was_recorded = false;  // PyTorch failed here too
  std::uint64_t reserved = 0;
  // The allocator's own account. It knows the sizes of the blocks, and not whose they are.
  std::shared_ptr<const memory::OutOfMemoryReport> report{};
};

// A PagedAllocator's bound where it was tightest, or else where it was first exceeded.
struct TightestBound {
  std::size_t op = 0;
  memory::PagedBound bound{};
};

struct ReplayResult {
  std::uint64_t events = 0;  // of the recording
  std::uint64_t allocs = 0;
  // Of what was served here: a recorded failure that is served counts for its moment, a request
  // that fails does not. Program::peak_live is the recording's.
  std::uint64_t peak_live = 0;
  std::uint64_t peak_allocated = 0;
  std::uint64_t peak_active = 0;
  std::uint64_t peak_reserved = 0;
  // Over the placements that were tried; both equal peak_reserved where nothing is to be guessed.
  std::uint64_t peak_reserved_low = 0;
  std::uint64_t peak_reserved_high = 0;
  std::size_t peak_op = 0;  // at which reserved was first highest
  DriverCalls calls{};
  double driver_us_second_half = 0;  // of the ops

  // No allocation failed: neither one that PyTorch could serve, nor a recorded failure.
  bool fits = true;
  std::uint64_t ooms = 0;
  std::uint64_t recorded_ooms_served = 0;
  std::uint64_t retries = 0;
  // Of the first. Past a request that failed here or there what follows is a guess: the program
  // would have done something else.
  std::optional<FailedAllocation> first_failure{};
  std::optional<std::size_t> unknown_past_op{};
  std::optional<TightestBound> bound{};  // where it was looked at

  bool is_complete = true;  // false where stop_at_failure or stop_above_bytes ended it early
  std::size_t ops = 0;      // that were run

  // False where the state before the first event contradicts itself and was left out.
  bool is_start_restored = true;
  std::vector<TimelineSample> timeline{};
  memory::Statistics statistics{};  // at the end; movements since the start
  double seconds = 0;

  [[nodiscard]] bool is_bound_exceeded() const noexcept { return bound && !bound->bound.is_kept(); }
};

// The most that may be reserved, where that is less than the card.
[[nodiscard]] std::optional<std::uint64_t> limit_of(const ReplayOptions& options) noexcept;

// The settings the recording was made under, with the card and the limit as far as they are known,
// or those that are asked about.
[[nodiscard]] ReplayOptions as_recorded(const Program& program, const Bounds& bounds = {});
// Other settings on the same card, under the same limit.
[[nodiscard]] ReplayOptions with_settings(const Program& program,
                                          const memory::AllocatorConfig& config,
                                          const Bounds& bounds = {});
// Our allocator on the same card, under the same limit.
[[nodiscard]] ReplayOptions with_paged(const Program& program,
                                       const memory::PagedOptions& paged = {},
                                       const Bounds& bounds = {});

[[nodiscard]] ReplayResult replay(const Program& program, const ReplayOptions& options);

// As replay(), and again with the other address order where it could matter: fills
// peak_reserved_low and _high; `fits` only where all runs fit.
[[nodiscard]] ReplayResult replay_bounds(const Program& program, const ReplayOptions& options);

// Whether two address orders can give two answers.
[[nodiscard]] bool depends_on_addresses(const ReplayOptions& options) noexcept;

// The least bound above which every 1 % step up to 1.3 times it survives, to within `tolerance`;
// nothing where even the card is not enough. Survival is not monotone: a little more memory may
// fail where a little less did not.
struct SmallestLimit {
  std::uint64_t bytes = 0;
  std::uint64_t retries = 0;  // that it then takes
  std::uint64_t runs = 0;     // that it took to find
};
[[nodiscard]] std::optional<SmallestLimit> smallest_limit(const Program& program,
                                                          const ReplayOptions& options,
                                                          double tolerance = 0.001);

}  // namespace headroom::replay
