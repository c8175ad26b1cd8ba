#include "headroom/memory/caching/caching_allocator.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "headroom/base/checked.h"
#include "headroom/base/error.h"
#include "headroom/base/fork.h"
#include "headroom/memory/allocator_choice.h"
#include "headroom/memory/caching/internal/caching_state.h"

namespace headroom::memory {

using internal::BlockPool;
using internal::CachingState;

CachingAllocator::CachingAllocator(device::Device& device, CachingOptions options)
    : AllocatorCore(device), state_(std::make_unique<CachingState>(device)) {
  state_->config = std::move(options.config);
  state_->version = options.version;
  if (state_->config.max_split_bytes != AllocatorConfig::kUnlimited) {
    stats_.max_split_size = static_cast<std::int64_t>(state_->config.max_split_bytes);
  }
  if (state_->config.memory_fraction != 1.0) set_memory_fraction(state_->config.memory_fraction);
}

CachingAllocator::~CachingAllocator() {
  if (is_forked()) {
    keep_for_ever(state_.release());
    return;
  }
  begin_destruction();
  try {
    const std::lock_guard lock(mutex_);
    CachingState& s = *state_;
    s.scopes.clear();
    for (auto& [id, pool] : s.private_pools) pool->use_count = 0;
    // Blocks still held go back with the rest; their holders have outlived the allocator.
    std::vector<Block*> held;
    s.active.for_each([&](Block& block) {
      if (block.is_allocated) held.push_back(&block);
    });
    for (Block* block : held) {
      block->is_allocated = false;
      record_free_requested(record_of(*block));
      s.pending.add(*block, [this](Block& done) { complete_free(done); });
    }
    release_everything();
  } catch (...) {  // Without host memory the device keeps what we could not give back.
    return;
  }
}

AllocatorConfig CachingAllocator::config() const {
  const std::lock_guard lock(mutex_);
  return state_->config;
}

PyTorchVersion CachingAllocator::version() const noexcept { return state_->version; }

void CachingAllocator::configure(const AllocatorConfig& config) {
  const std::lock_guard lock(mutex_);
  state_->config = config;
}

void CachingAllocator::do_configure(const AllocatorChoice& wanted) {
  if (wanted.paged) {
    throw InvalidArgument("configure: this is PyTorch's allocator; " + to_string(wanted) +
                          " is another");
  }
  configure(wanted.config);
}

AllocatorChoice CachingAllocator::core_settings() const {
  return {.config = state_->config,
          .paged = std::nullopt,
          .is_default = false,
          .version = state_->version};
}

std::optional<std::uint64_t> CachingAllocator::limit_for_fraction(double fraction) const {
  // 2.9 keeps a limit for an explicit 1.0; rounding came with 2.13.
  if (fraction == 1.0 && state_->version >= kPyTorch210) return std::nullopt;
  const double bytes = fraction * static_cast<double>(device_.properties().total_bytes);
  return static_cast<std::uint64_t>(state_->version >= kPyTorch213 ? std::round(bytes) : bytes);
}

// --- Private pools -------------------------------------------------------------------------------

void CachingAllocator::do_begin_allocate_to_pool(PoolId id, StreamFilter filter) {
  const std::lock_guard lock(mutex_);
  state_->begin_scope(id, std::move(filter));
}

void CachingAllocator::do_end_allocate_to_pool(PoolId id) {
  std::shared_ptr<const internal::PoolScope> ended;  // let go of after the lock
  const std::lock_guard lock(mutex_);
  ended = state_->end_scope(id);
}

internal::PoolUse* CachingAllocator::find_pool(PoolId id) const noexcept {
  return state_->find_private_pool(id);
}

void CachingAllocator::make_pool(PoolId id) { state_->make_private_pool(id); }

// --- Taking memory ahead -------------------------------------------------------------------------

// The bytes that were asked for, or all that the device and the limit allow, in whole steps.
device::DeviceResult<std::uint64_t> CachingAllocator::bytes_to_reserve(
    std::optional<std::uint64_t> size_bytes, std::uint64_t step) const {
  if (size_bytes) {
    const auto rounded = checked_round_up(*size_bytes, step);
    return rounded && *rounded < device::kAbsurdSize ? *rounded : device::kAbsurdSize;
  }
  const auto info = device_.memory_info();
  if (!info) return Unexpected(info.error());
  std::uint64_t wanted = info->free_bytes;
  if (limit_is_set()) {
    const std::uint64_t reserved = reserved_bytes();
    wanted = std::min(wanted, limit_value() > reserved ? limit_value() - reserved : 0);
  }
  return round_down(wanted, step);
}

AllocationResult<std::uint64_t> CachingAllocator::do_reserve(
    std::optional<std::uint64_t> size_bytes, StreamId stream) {
  const TagScope tag(*this);
  std::unique_lock lock(mutex_);
  if (auto known = check_stream(stream); !known) {
    return Unexpected(fail(lock, {.reason = FailureReason::kDevice, .status = known.error()}));
  }
  prepare();
  BlockPool& pool = state_->large;
  const bool is_expandable = uses_expandable(pool);
  const std::uint64_t step =
      is_expandable ? state_->config.large_segment_bytes : kSegmentRoundingBytes;
  const auto wanted_or = bytes_to_reserve(size_bytes, step);
  if (!wanted_or) {
    return Unexpected(fail(lock, {.reason = FailureReason::kDevice, .status = wanted_or.error()}));
  }
  const std::uint64_t wanted = *wanted_or;

  // A block at or above max_split_size would serve nothing smaller, so take pieces below it. Pages
  // merge into one block all the same.
  std::uint64_t piece = wanted;
  const std::uint64_t max_split = state_->config.max_split_bytes;
  if (max_split != AllocatorConfig::kUnlimited && !is_expandable) {
    piece = std::min(piece, round_down(max_split - 1, step));
  }
  std::uint64_t taken = 0;
  std::uint64_t in_front = 0;  // a free run that pages would be added to
  Grown grown{};
  while (taken < wanted && piece >= step) {
    const std::uint64_t missing = std::min(piece, wanted - taken);
    const std::uint64_t before = reserved_bytes();
    const Request request{.asked = missing,
                          .rounded = in_front + missing,
                          .segment = missing,
                          .stream = stream,
                          .pool = &pool,
                          .index = &pool.index_of(stream)};
    request.index->prepare(1);
    grown = grow(lock, request, /*is_retry=*/false);
    if (is_expandable) {
      taken += reserved_bytes() - before;
    } else if (grown.outcome == Growth::kDone) {
      taken += missing;
    }
    if (grown.outcome == Growth::kDone) {
      request.index->prepare(1);  // mapping may have used the spare
      insert_free(*grown.block);
      if (is_expandable) in_front = grown.block->size;
      prepare();
    } else if (size_bytes) {
      break;  // all or an error
    } else {
      piece = round_down(piece / 2, step);  // the device is in pieces itself
    }
  }
  if (!size_bytes || taken >= wanted) return taken;
  const FailureReason reason =
      grown.outcome == Growth::kDeviceFailed ? FailureReason::kDevice : FailureReason::kOutOfMemory;
  return Unexpected(fail(lock,
                         {.reason = reason,
                          .status = grown.status,
                          .asked_bytes = *size_bytes,
                          .rounded_bytes = wanted,
                          .segment_bytes = wanted - taken,
                          .stream = stream}));
}

}  // namespace headroom::memory
