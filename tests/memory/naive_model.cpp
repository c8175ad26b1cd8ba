#include "tests/memory/naive_model.h"

#include <algorithm>
#include <tuple>

namespace headroom::memory::testing {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;

}  // namespace

// --- Sizes ---------------------------------------------------------------------------------------

std::uint64_t NaiveModel::round(std::uint64_t size) const {
  if (size < 512) return 512;
  int log2 = 0;
  while (size >> (log2 + 1) != 0) ++log2;
  const int entry = std::min(std::max(log2 - 20, 0), 15);
  const std::uint64_t divisions = config_.roundup_power2_divisions[static_cast<std::size_t>(entry)];
  if (divisions > 1 && size > 512 * divisions) {
    const std::uint64_t floor = std::uint64_t{1} << log2;
    if (size == floor) return size;
    std::uint64_t step = floor;
    for (std::uint64_t d = divisions; d > 1; d /= 2) step /= 2;
    return step == 0 ? 2 * floor : up_to_multiple(size, step);
  }
  return up_to_multiple(size, 512);
}

std::uint64_t NaiveModel::segment_for(std::uint64_t rounded) const {
  if (rounded <= kMiB) return 2 * kMiB;
  if (rounded < 10 * kMiB) return config_.large_segment_bytes;
  return up_to_multiple(rounded, 2 * kMiB);
}

std::uint64_t NaiveModel::reservation_bytes(bool is_small) const {
  const std::uint64_t page = is_small ? 2 * kMiB : config_.large_segment_bytes;
  const std::uint64_t full = capacity_ + capacity_ / 8;
  std::uint64_t wanted = config_.expandable_reserve_bytes.value_or(full);
  if (config_.expandable_reserve_fraction) {
    wanted = static_cast<std::uint64_t>(*config_.expandable_reserve_fraction *
                                        static_cast<double>(capacity_));
  }
  return up_to_multiple(std::max(std::min(wanted, full), page), page);
}

// --- Looking -------------------------------------------------------------------------------------

bool NaiveModel::is_capturing() const {
  return captures_ > 0 || (version_.minor <= 12 && !scopes_.empty());
}

NaiveModel::Pool NaiveModel::route(std::uint64_t rounded, StreamId stream) const {
  Pool pool{.is_small = rounded <= kMiB};
  for (const Scope& scope : scopes_) {  // the newest is the last
    if (std::ranges::count(scope.streams, stream) > 0) pool.id = scope.id;
  }
  return pool;
}

std::uint64_t& NaiveModel::clock(const Pool& pool) { return clocks_[{pool.id, pool.is_small}]; }

std::int64_t NaiveModel::reserved() const {
  return stats_.reserved_bytes[0].current + stats_.reserved_bytes[1].current;
}

std::optional<NaiveModel::Place> NaiveModel::find(DeviceAddress address) {
  for (std::size_t s = 0; s < segments_.size(); ++s) {
    for (std::size_t b = 0; b < segments_[s].blocks.size(); ++b) {
      if (segments_[s].blocks[b].address == address) return Place{s, b};
    }
  }
  return std::nullopt;
}

bool NaiveModel::is_held(DeviceAddress address) const {
  for (const Segment& segment : segments_) {
    for (const Block& block : segment.blocks) {
      if (block.address == address) return block.is_allocated;
    }
  }
  return false;
}

std::vector<NaiveModel::Place> NaiveModel::free_blocks(const Pool& pool,
                                                       std::optional<StreamId> stream) {
  std::vector<Place> places;
  for (std::size_t s = 0; s < segments_.size(); ++s) {
    const Segment& segment = segments_[s];
    if (segment.pool != pool.id || segment.is_small != pool.is_small) continue;
    if (stream && segment.stream != *stream) continue;
    for (std::size_t b = 0; b < segment.blocks.size(); ++b) {
      if (segment.blocks[b].is_free() && segment.blocks[b].is_mapped) places.push_back({s, b});
    }
  }
  std::ranges::sort(places, [&](Place x, Place y) {
    const auto key = [&](Place place) {
      const Segment& segment = segment_of(place);
      return std::tuple(segment.stream,
                        at(place).size,
                        version_.minor >= 13 ? segment.serial : 0,
                        at(place).address);
    };
    return key(x) < key(y);
  });
  return places;
}

std::uint64_t NaiveModel::size_with_growth(Place place) {
  const Segment& segment = segment_of(place);
  std::uint64_t size = at(place).size;
  if (place.block + 1 < segment.blocks.size() && !segment.blocks[place.block + 1].is_mapped) {
    size += segment.blocks[place.block + 1].size;
  }
  return size;
}

std::optional<NaiveModel::Place> NaiveModel::search(const Request& request) {
  if (limit_ && config_.garbage_collection_threshold > 0) ++clock(request.pool);
  std::vector<Place> places = free_blocks(request.pool, request.stream);
  std::erase_if(places, [&](Place place) { return at(place).size < request.rounded; });
  if (places.empty()) return std::nullopt;
  std::size_t i = 0;
  if (segment_of(places[0]).page > 0) {
    if (config_.expandable_segments) {
      while (segment_of(places[i]).page > 0 && i + 1 < places.size() &&
             size_with_growth(places[i + 1]) < size_with_growth(places[i])) {
        ++i;
      }
    } else {
      while (i < places.size() && segment_of(places[i]).page > 0) ++i;
      if (i == places.size()) return std::nullopt;
    }
  }
  const std::uint64_t size = at(places[i]).size;
  const std::uint64_t oversize = config_.max_split_bytes;
  if (request.rounded < oversize && size >= oversize) return std::nullopt;
  const std::uint64_t rounding =
      config_.max_non_split_rounding_bytes.value_or(config_.large_segment_bytes);
  if (request.rounded >= oversize && size >= request.rounded + rounding) return std::nullopt;
  return places[i];
}

// --- Allocating ----------------------------------------------------------------------------------

ModelAnswer NaiveModel::allocate(std::uint64_t size, StreamId stream) {
  if (size == 0) return {};
  if (size >= std::uint64_t{1} << 60U) return {.outcome = ModelOutcome::kTooLarge};
  process_events();
  Request request{.asked = size, .rounded = round(size), .stream = stream};
  request.segment = segment_for(request.rounded);
  request.pool = route(request.rounded, stream);

  std::optional<Place> place = search(request);
  bool is_rejected = false;
  if (!place) {
    if (limit_ && config_.garbage_collection_threshold > 0) collect_garbage();
    place = grow(request, false, &is_rejected);
    if (!place && !is_rejected && release_available(request)) {
      place = grow(request, false, &is_rejected);
    }
    if (!place && !is_rejected && !is_capturing()) {
      release_all();
      place = grow(request, true, &is_rejected);
    }
  }
  if (place) return {.address = hand_out(request, *place)};
  if (is_rejected) return {.outcome = ModelOutcome::kRejected};
  ++stats_.num_ooms;
  events_.push_back({.action = Action::kOutOfMemory,
                     .address = free_bytes(),
                     .size_bytes = request.rounded,
                     .stream = stream});
  return {.outcome = ModelOutcome::kOutOfMemory};
}

std::optional<NaiveModel::Place> NaiveModel::grow(const Request& request,
                                                  bool is_retry,
                                                  bool* is_rejected) {
  if (is_retry) ++stats_.num_alloc_retries;
  if (limit_ && used_bytes() + request.segment > *limit_) return std::nullopt;
  if (config_.throw_on_device_out_of_memory) {
    const auto share =
        static_cast<std::uint64_t>(config_.memory_fraction * static_cast<double>(capacity_));
    if (used_bytes() + request.segment > share) {
      ++stats_.num_oom_rejections;
      *is_rejected = true;
      return std::nullopt;
    }
  }
  if (config_.expandable_segments) return grow_expandable(request);
  if (used_bytes() + request.segment > capacity_) return std::nullopt;
  const bool small = request.pool.is_small;
  segments_.push_back({.serial = next_serial_++,
                       .stream = request.stream,
                       .pool = request.pool.id,
                       .is_small = small,
                       .blocks = {{.address = next_segment_at_, .size = request.segment}}});
  stats_.segment[small].move(1);
  stats_.reserved_bytes[small].move(positive(request.segment));
  ++stats_.num_device_alloc;
  if (request.segment >= config_.max_split_bytes) stats_.oversize_segments.move(1);
  emit(Action::kSegmentAlloc, next_segment_at_, request.segment, segments_.back());
  return Place{segments_.size() - 1, 0};
}

std::optional<NaiveModel::Place> NaiveModel::grow_expandable(const Request& request) {
  // Unmapped blocks of the stream and pool by address, each with the free block before it.
  std::vector<Place> unmapped;
  for (std::size_t s = 0; s < segments_.size(); ++s) {
    const Segment& segment = segments_[s];
    if (segment.pool != request.pool.id || segment.is_small != request.pool.is_small ||
        segment.stream != request.stream) {
      continue;
    }
    for (std::size_t b = 0; b < segment.blocks.size(); ++b) {
      if (!segment.blocks[b].is_mapped) unmapped.push_back({s, b});
    }
  }
  std::ranges::sort(unmapped, [&](Place x, Place y) { return at(x).address < at(y).address; });
  std::optional<Place> found;
  for (Place place : unmapped) {
    const std::vector<Block>& blocks = segment_of(place).blocks;
    if (place.block > 0 && blocks[place.block - 1].is_free()) --place.block;
    std::uint64_t room = 0;
    for (std::size_t b = place.block; b < blocks.size() && blocks[b].is_free(); ++b) {
      room += blocks[b].size;
    }
    if (room >= request.rounded) {
      found = place;
      break;
    }
  }
  if (!found) {
    const std::uint64_t size = reservation_bytes(request.pool.is_small);
    if (size < request.rounded) return std::nullopt;
    const std::uint64_t page = request.pool.is_small ? 2 * kMiB : config_.large_segment_bytes;
    segments_.push_back(
        {.serial = next_serial_++,
         .stream = request.stream,
         .pool = request.pool.id,
         .is_small = request.pool.is_small,
         .page = page,
         .blocks = {{.address = next_reservation_at_, .size = size, .is_mapped = false}}});
    found = Place{segments_.size() - 1, 0};
  }
  Place place = *found;
  if (!at(place).is_mapped && !map(&place, std::min(at(place).size, request.rounded))) {
    return std::nullopt;
  }
  while (at(place).size < request.rounded) {
    Place next{place.segment, place.block + 1};
    if (!map(&next, std::min(request.rounded - at(place).size, at(next).size))) return std::nullopt;
    place = next;
  }
  return place;
}

// Gives the front of an unmapped block pages; *place is then the mapped block, merged.
bool NaiveModel::map(Place* place, std::uint64_t bytes) {
  Segment& segment = segment_of(*place);
  const std::uint64_t mapped = up_to_multiple(bytes, segment.page);
  if (used_bytes() + mapped > capacity_) return false;
  Block& block = at(*place);
  const DeviceAddress start = block.address;
  const std::uint64_t rest = block.size - mapped;
  block.is_mapped = true;
  block.size = mapped;
  if (rest > 0) {
    segment.blocks.insert(segment.blocks.begin() + static_cast<std::ptrdiff_t>(place->block) + 1,
                          Block{.address = start + mapped, .size = rest, .is_mapped = false});
  }
  int count = 0;
  std::uint64_t absorbed = 0;
  *place = merge(*place, &count, &absorbed);
  at(*place).freed_at = clock({.id = segment.pool, .is_small = segment.is_small});
  stats_.reserved_bytes[segment.is_small].move(positive(mapped));
  ++stats_.num_device_alloc;
  emit(Action::kSegmentMap, start, mapped, segment);
  return true;
}

DeviceAddress NaiveModel::hand_out(const Request& request, Place place) {
  Segment& segment = segment_of(place);
  const bool small = segment.is_small;
  const bool was_split = is_split(place);
  const std::uint64_t rest = at(place).size - request.rounded;
  const bool splits = small || config_.expandable_segments
                          ? rest >= 512
                          : request.rounded < config_.max_split_bytes && rest > kMiB;
  if (splits) {
    at(place).size = request.rounded;
    segment.blocks.insert(segment.blocks.begin() + static_cast<std::ptrdiff_t>(place.block) + 1,
                          Block{.address = at(place).address + request.rounded,
                                .size = rest,
                                .freed_at = clock({.id = segment.pool, .is_small = small})});
    if (segment.page == 0 && was_split) {
      stats_.inactive_split_bytes[small].move(negative(request.rounded));
    } else if (segment.page == 0) {
      stats_.inactive_split_bytes[small].move(positive(rest));
      stats_.inactive_split[small].move(1);
    }
  } else if (was_split && segment.page == 0) {
    stats_.inactive_split_bytes[small].move(negative(at(place).size));
    stats_.inactive_split[small].move(-1);
  }
  Block& block = at(place);
  block.is_allocated = true;
  block.requested = request.asked;
  stats_.allocation[small].move(1);
  stats_.allocated_bytes[small].move(positive(block.size));
  stats_.active[small].move(1);
  stats_.active_bytes[small].move(positive(block.size));
  stats_.requested_bytes[small].move(positive(request.asked));
  if (block.size >= config_.max_split_bytes) stats_.oversize_allocations.move(1);
  emit(Action::kAlloc, block.address, request.asked, segment);
  return block.address;
}

// --- Pools ---------------------------------------------------------------------------------------

bool NaiveModel::begin_pool(PoolId id, std::vector<StreamId> streams) {
  for (const Scope& scope : scopes_) {
    if (scope.id == id) return false;
  }
  const auto pool = std::ranges::find(private_pools_, id, &PrivatePool::id);
  if (pool == private_pools_.end()) {
    private_pools_.push_back({.id = id});
    std::ranges::sort(private_pools_, {}, &PrivatePool::id);
  } else if (pool->users == 0) {
    return false;
  } else {
    ++pool->users;
  }
  scopes_.push_back({.id = id, .streams = std::move(streams)});
  return true;
}

bool NaiveModel::end_pool(PoolId id) {
  return std::erase_if(scopes_, [&](const Scope& scope) { return scope.id == id; }) > 0;
}

bool NaiveModel::release_pool(PoolId id) {
  const auto pool = std::ranges::find(private_pools_, id, &PrivatePool::id);
  if (pool == private_pools_.end() || pool->users == 0) return false;
  --pool->users;
  return true;
}

bool NaiveModel::is_released(PoolId id) const {
  const auto pool = std::ranges::find(private_pools_, id, &PrivatePool::id);
  return pool != private_pools_.end() && pool->users == 0;
}

bool NaiveModel::end_capture() {
  if (captures_ == 0) return false;
  --captures_;
  return true;
}

// --- What can be seen ----------------------------------------------------------------------------

void NaiveModel::emit(Action action,
                      DeviceAddress address,
                      std::uint64_t size,
                      const Segment& segment) {
  events_.push_back({.action = action,
                     .address = address,
                     .size_bytes = size,
                     .stream = segment.stream,
                     .pool = segment.pool});
}

std::vector<SegmentInfo> NaiveModel::segments() const {
  std::vector<SegmentInfo> infos;
  for (const Segment& segment : segments_) {
    bool was_mapped = false;
    for (const Block& block : segment.blocks) {
      if (block.is_mapped && !was_mapped) {
        infos.push_back({.address = block.address,
                         .stream = segment.stream,
                         .pool = segment.pool,
                         .is_small = segment.is_small,
                         .is_expandable = segment.page > 0});
      }
      was_mapped = block.is_mapped;
      if (!block.is_mapped) continue;
      infos.back().size_bytes += block.size;
      infos.back().blocks.push_back({.address = block.address,
                                     .size_bytes = block.size,
                                     .requested_bytes = block.requested,
                                     .state = block.is_allocated ? BlockState::kAllocated
                                              : block.is_free()  ? BlockState::kInactive
                                                                 : BlockState::kPendingFree});
    }
  }
  std::ranges::sort(infos, {}, &SegmentInfo::address);
  return infos;
}

std::vector<std::pair<DeviceAddress, DeviceAddress>> NaiveModel::ranges() const {
  std::vector<std::pair<DeviceAddress, DeviceAddress>> ranges;
  ranges.reserve(segments_.size());
  for (const Segment& segment : segments_) ranges.emplace_back(segment.begin(), segment.end());
  return ranges;
}

}  // namespace headroom::memory::testing
