#include "headroom/replay/internal/halves.h"

#include <algorithm>
#include <vector>

namespace headroom::replay::internal {

namespace {

bool is_plain(const Op& op) { return op.kind == OpKind::kAllocate || op.kind == OpKind::kFree; }

bool can_be_halved(const Program& program) {
  return program.start.is_empty() && std::ranges::all_of(program.ops, is_plain);
}

Program without_ops(const Program& program) {
  return {.trace = program.trace,
          .device = program.device,
          .slot_count = program.slot_count,
          .streams = program.streams,
          .pools = program.pools};
}

}  // namespace

std::unique_ptr<Halves> Halves::split(const Program& program) {
  if (!can_be_halved(program)) return nullptr;
  return std::unique_ptr<Halves>(new Halves(program));
}

Halves::Halves(const Program& program)
    : whole_(program), small_(without_ops(program)), large_(without_ops(program)) {
  std::vector<bool> is_small(program.slot_count);
  for (const Op& op : program.ops) {
    // Rounding up to a division never passes a power of two, so it makes no small block a large
    // one.
    if (op.kind == OpKind::kAllocate) is_small[op.slot] = op.size_bytes <= memory::kSmallBytes;
    (is_small[op.slot] ? small_ : large_).ops.push_back(op);
  }
  large_floor_.emplace(large_);
}

// Nothing is given back, so the peaks of the halves add up whenever they are.
std::uint64_t Halves::least_reserved(const ReplayOptions& options) {
  return small_under(options).reserved + large_floor_->bytes_under(options.config);
}

Halves::Small Halves::small_under(const ReplayOptions& options) {
  const Key key{options.config.roundup_power2_divisions[0],
                {options.config.expandable_segments, options.order}};
  const std::scoped_lock lock(mutex_);
  const auto [at, is_new] = known_.try_emplace(key);
  if (is_new) {
    ReplayOptions alone = options;
    alone.stop_above_bytes = UINT64_MAX;
    const ReplayResult result = replay::replay(small_, alone);
    at->second = {.reserved = result.peak_reserved, .driver_us = result.calls.driver_us};
  }
  return at->second;
}

ReplayResult Halves::replay(const ReplayOptions& options) {
  const Small small = small_under(options);
  ReplayOptions rest = options;
  if (options.stop_above_bytes != UINT64_MAX) {
    rest.stop_above_bytes -= std::min(rest.stop_above_bytes, small.reserved);
  }
  ReplayResult result = replay::replay(large_, rest);
  result.peak_reserved += small.reserved;
  // Together they may be refused what each alone was given.
  if (!result.fits || result.retries > 0 ||
      result.peak_reserved > options.card_bytes - options.outside_bytes) {
    return replay::replay(whole_, options);
  }
  result.peak_reserved_low = result.peak_reserved_high = result.peak_reserved;
  result.calls.driver_us += small.driver_us;
  return result;
}

}  // namespace headroom::replay::internal
