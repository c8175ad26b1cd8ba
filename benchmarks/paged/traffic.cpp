#include "benchmarks/paged/traffic.h"

#include <algorithm>
#include <utility>

#include "headroom/base/check.h"
#include "headroom/base/checked.h"

namespace headroom::bench {
namespace {

std::uint64_t live_size(std::uint64_t size_bytes) {
  return round_up(size_bytes, memory::kMinBlockBytes);
}

}  // namespace

Traffic::Traffic(const TrafficOptions& options) : options_(options), random_(options.seed) {
  program_.streams = {memory::StreamId::kDefault};
  program_.pools = {memory::PoolId{}};
}

int Traffic::times(int count) const noexcept {
  return static_cast<int>(std::max<std::int64_t>(std::int64_t{count} * options_.percent / 100, 1));
}

Block Traffic::allocate(std::uint64_t size_bytes, unsigned stream, unsigned pool) {
  HEADROOM_CHECK(size_bytes > 0, "traffic asks for nothing");
  const std::uint16_t stream_number = stream_index(stream);
  const std::uint8_t pool_number = pool_index(pool);
  std::uint32_t slot = program_.slot_count;
  if (free_slots_.empty()) {
    ++program_.slot_count;
    sizes_.push_back(0);
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  sizes_[slot] = size_bytes;
  live_ += live_size(size_bytes);
  if (live_ > program_.peak_live) {
    program_.peak_live = live_;
    program_.peak_live_op = program_.ops.size();
  }
  ++program_.allocs;
  push({.size_bytes = size_bytes,
        .slot = slot,
        .stream = stream_number,
        .kind = replay::OpKind::kAllocate,
        .pool = pool_number});
  return {slot};
}

void Traffic::free(Block block) {
  check_held(block);
  push({.slot = block.slot, .kind = replay::OpKind::kFree});
  live_ -= live_size(std::exchange(sizes_[block.slot], 0));
  free_slots_.push_back(block.slot);
}

// It is live until it completes, whoever asked for its end.
Hold Traffic::free_while_used(Block block) {
  check_held(block);
  holds_.push_back({.op = program_.ops.size(),
                    .slot = block.slot,
                    .size_bytes = std::exchange(sizes_[block.slot], 0)});
  push({.slot = block.slot, .kind = replay::OpKind::kFreeHeld});
  return {static_cast<std::uint32_t>(holds_.size() - 1)};
}

// Holds are numbered as they complete; see replay/program.h.
void Traffic::complete(Hold hold) {
  HEADROOM_CHECK(hold.number < holds_.size() && holds_[hold.number].is_open,
                 "traffic completes a free that is not pending");
  OpenHold& open = holds_[hold.number];
  open.is_open = false;
  const std::uint64_t number = ++completed_;
  program_.ops[open.op].size_bytes = number;
  push({.size_bytes = number, .slot = open.slot, .kind = replay::OpKind::kComplete});
  live_ -= live_size(open.size_bytes);
  free_slots_.push_back(open.slot);
}

void Traffic::use_briefly(std::uint64_t size_bytes, unsigned stream) {
  free(allocate(size_bytes, stream));
}

void Traffic::empty_cache() {
  ++program_.empty_caches;
  push({.kind = replay::OpKind::kEmptyCache});
}

Made Traffic::finish() {
  for (const OpenHold& open : holds_) {
    if (open.is_open) program_.ops[open.op].size_bytes = ++completed_;
  }
  program_.events = program_.ops.size();
  program_.peak_live_if_served = program_.peak_live;
  return {.program = std::move(program_), .steps = steps_, .kept_bytes = live_};
}

void Traffic::push(const replay::Op& op) { program_.ops.push_back(op); }

std::uint16_t Traffic::stream_index(unsigned stream) {
  while (program_.streams.size() <= stream) {
    program_.streams.push_back(memory::StreamId{program_.streams.size()});
  }
  return static_cast<std::uint16_t>(stream);
}

std::uint8_t Traffic::pool_index(unsigned pool) {
  while (program_.pools.size() <= pool) {
    program_.pools.push_back(memory::PoolId{.graph = program_.pools.size()});
  }
  return static_cast<std::uint8_t>(pool);
}

void Traffic::check_held(Block block) const {
  HEADROOM_CHECK(block.slot < sizes_.size() && sizes_[block.slot] != 0,
                 "traffic frees a block that is not there");
}

}  // namespace headroom::bench
