// Freeing and giving back, in NaiveModel.
#include <algorithm>

#include "tests/memory/naive_model.h"

namespace headroom::memory::testing {
// --- Freeing -------------------------------------------------------------------------------------

bool NaiveModel::free(DeviceAddress address) {
  const std::optional<Place> place = find(address);
  if (!place || !at(*place).is_allocated) return false;
  Block& block = at(*place);
  const Segment& segment = segment_of(*place);
  block.is_allocated = false;
  stats_.allocation[segment.is_small].move(-1);
  stats_.allocated_bytes[segment.is_small].move(negative(block.size));
  emit(Action::kFreeRequested, address, block.requested, segment);
  if (block.size >= config_.max_split_bytes) stats_.oversize_allocations.move(-1);
  if (block.uses.empty()) {
    complete_free(address);
  } else if (is_capturing()) {
    deferred_.push_back(address);
  } else {
    record_events(address);
  }
  return true;
}

bool NaiveModel::record_stream(DeviceAddress address, StreamId stream) {
  const std::optional<Place> place = find(address);
  if (!place || !at(*place).is_allocated) return false;
  std::vector<StreamId>& uses = at(*place).uses;
  if (stream != segment_of(*place).stream && std::ranges::count(uses, stream) == 0) {
    uses.push_back(stream);
  }
  return true;
}

NaiveModel::Place NaiveModel::merge(Place place, int* count, std::uint64_t* bytes) {
  std::vector<Block>& blocks = segment_of(place).blocks;
  const auto is_like = [&](const Block& other) {
    return other.is_free() && other.is_mapped == blocks[place.block].is_mapped;
  };
  if (place.block > 0 && is_like(blocks[place.block - 1])) {
    const Block before = blocks[place.block - 1];
    blocks[place.block].address = before.address;
    blocks[place.block].size += before.size;
    blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(place.block) - 1);
    --place.block;
    ++*count;
    *bytes += before.size;
  }
  if (place.block + 1 < blocks.size() && is_like(blocks[place.block + 1])) {
    const std::uint64_t size = blocks[place.block + 1].size;
    blocks[place.block].size += size;
    blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(place.block) + 1);
    ++*count;
    *bytes += size;
  }
  return place;
}

void NaiveModel::complete_free(DeviceAddress address) {
  Place place = *find(address);
  Segment& segment = segment_of(place);
  const bool small = segment.is_small;
  const std::uint64_t size = at(place).size;
  const std::uint64_t requested = std::exchange(at(place).requested, 0);
  int absorbed = 0;
  std::uint64_t absorbed_bytes = 0;
  place = merge(place, &absorbed, &absorbed_bytes);
  at(place).freed_at = clock({.id = segment.pool, .is_small = small});
  if (segment.page == 0) {
    const bool stays_split = is_split(place);
    const std::int64_t net_bytes =
        (stays_split ? positive(at(place).size) : 0) + negative(absorbed_bytes);
    stats_.inactive_split[small].move((stays_split ? 1 : 0) - absorbed);
    stats_.inactive_split_bytes[small].move(net_bytes);
  }
  stats_.active[small].move(-1);
  stats_.active_bytes[small].move(negative(size));
  stats_.requested_bytes[small].move(negative(requested));
  emit(Action::kFreeCompleted, address, requested, segment);
}

// --- Events of the device ------------------------------------------------------------------------

void NaiveModel::record_events(DeviceAddress address) {
  Block& block = at(*find(address));
  for (const StreamId stream : block.uses) {
    Queue& queue = queues_[stream];
    queue.pending.push_back({.position = ++queue.recorded, .address = address});
    ++block.events;
  }
  block.uses.clear();
}

void NaiveModel::settle_deferred() {
  while (!deferred_.empty()) {
    const DeviceAddress address = deferred_.back();
    deferred_.pop_back();
    record_events(address);
  }
}

void NaiveModel::finish(const Pending& entry) {
  if (--at(*find(entry.address)).events == 0) complete_free(entry.address);
}

void NaiveModel::complete_events(StreamId stream) {
  queues_[stream].completed = queues_[stream].recorded;
}

void NaiveModel::process_events() {
  if (is_capturing()) return;
  settle_deferred();
  for (auto& [stream, queue] : queues_) {
    while (!queue.pending.empty() && queue.pending.front().position <= queue.completed) {
      finish(queue.pending.front());
      queue.pending.erase(queue.pending.begin());
    }
  }
}

void NaiveModel::wait_for_all() {
  settle_deferred();
  for (auto& [stream, queue] : queues_) {
    if (!queue.pending.empty()) {
      queue.completed = std::max(queue.completed, queue.pending.back().position);
    }
  }
  process_events();
}

// --- Giving back ---------------------------------------------------------------------------------

void NaiveModel::release_segment(DeviceAddress address) {
  const std::size_t index = find(address)->segment;
  const Segment segment = segments_[index];
  const std::uint64_t size = segment.end() - segment.begin();
  segments_.erase(segments_.begin() + static_cast<std::ptrdiff_t>(index));
  stats_.segment[segment.is_small].move(-1);
  stats_.reserved_bytes[segment.is_small].move(negative(size));
  ++stats_.num_device_free;
  if (size >= config_.max_split_bytes) stats_.oversize_segments.move(-1);
  emit(Action::kSegmentFree, address, size, segment);
}

// Takes the whole pages out of a free block, and the segment away when nothing else is left.
void NaiveModel::unmap(DeviceAddress address) {
  Place place = *find(address);
  Segment& segment = segment_of(place);
  const DeviceAddress base = segment.begin();
  const Block whole = at(place);
  const DeviceAddress first = base + up_to_multiple(whole.address - base, segment.page);
  const DeviceAddress last =
      base + (whole.address + whole.size - base) / segment.page * segment.page;
  if (first >= last) return;
  // The segment's stream is waited for.
  ++queues_[segment.stream].recorded;
  complete_events(segment.stream);

  const std::uint64_t now = clock({.id = segment.pool, .is_small = segment.is_small});
  std::vector<Block> parts;
  if (whole.address < first) {
    parts.push_back({.address = whole.address, .size = first - whole.address, .freed_at = now});
  }
  const std::size_t middle = place.block + parts.size();
  parts.push_back({.address = first, .size = last - first, .is_mapped = false});
  if (last < whole.address + whole.size) {
    parts.push_back({.address = last, .size = whole.address + whole.size - last, .freed_at = now});
  }
  segment.blocks.erase(segment.blocks.begin() + static_cast<std::ptrdiff_t>(place.block));
  segment.blocks.insert(segment.blocks.begin() + static_cast<std::ptrdiff_t>(place.block),
                        parts.begin(),
                        parts.end());
  place.block = middle;
  int count = 0;
  std::uint64_t absorbed = 0;
  place = merge(place, &count, &absorbed);
  stats_.reserved_bytes[segment.is_small].move(negative(last - first));
  ++stats_.num_device_free;
  emit(Action::kSegmentUnmap, first, last - first, segment);
  if (!is_split(place)) {
    segments_.erase(segments_.begin() + static_cast<std::ptrdiff_t>(place.segment));
  }
}

void NaiveModel::release_pool_blocks(const Pool& pool) {
  std::vector<DeviceAddress> whole;
  std::vector<DeviceAddress> expandable;
  for (const Place place : free_blocks(pool, std::nullopt)) {
    if (segment_of(place).page > 0) {
      expandable.push_back(at(place).address);
    } else if (!is_split(place)) {
      whole.push_back(at(place).address);
    }
  }
  for (const DeviceAddress address : whole) release_segment(address);
  for (const DeviceAddress address : expandable) unmap(address);
}

void NaiveModel::release_all() {
  if (!is_capturing()) {
    ++stats_.num_sync_all_streams;
    wait_for_all();
    release_pool_blocks({.is_small = false});
    release_pool_blocks({.is_small = true});
  }
  for (const PrivatePool& pool : private_pools_) {
    if (pool.users > 0) continue;
    release_pool_blocks({.id = pool.id, .is_small = true});
    release_pool_blocks({.id = pool.id, .is_small = false});
  }
}

std::uint64_t NaiveModel::empty_cache() {
  const std::uint64_t before = used_bytes();
  if (!is_capturing()) {
    // Ours, not PyTorch's: reservations without a page go.
    std::erase_if(segments_, [](const Segment& segment) {
      return segment.blocks.size() == 1 && !segment.blocks[0].is_mapped;
    });
  }
  release_all();
  return before - used_bytes();
}

// Ours, not PyTorch's: the largest first, until enough has gone.
std::uint64_t NaiveModel::trim(std::uint64_t keep_bytes) {
  if (keep_bytes == 0) return empty_cache();
  if (is_capturing()) return 0;
  const std::uint64_t before = used_bytes();
  wait_for_all();
  std::vector<std::pair<std::uint64_t, DeviceAddress>> candidates;
  std::vector<Pool> pools{{.is_small = false}, {.is_small = true}};
  for (const PrivatePool& pool : private_pools_) {
    if (pool.users > 0) continue;
    pools.push_back({.id = pool.id, .is_small = true});
    pools.push_back({.id = pool.id, .is_small = false});
  }
  for (const Pool& pool : pools) {
    for (const Place place : free_blocks(pool, std::nullopt)) {
      if (segment_of(place).page > 0 || !is_split(place)) {
        candidates.emplace_back(at(place).size, at(place).address);
      }
    }
  }
  std::ranges::stable_sort(candidates,
                           [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [size, address] : candidates) {
    const std::int64_t active = stats_.active_bytes[0].current + stats_.active_bytes[1].current;
    if (reserved() - active <= positive(keep_bytes)) break;
    if (segment_of(*find(address)).page > 0) {
      unmap(address);
    } else {
      release_segment(address);
    }
  }
  return before - used_bytes();
}

bool NaiveModel::release_available(const Request& request) {
  const std::uint64_t oversize = config_.max_split_bytes;
  if (oversize == AllocatorConfig::kUnlimited) return false;
  const std::uint64_t wanted = std::max(request.rounded, oversize);
  const std::vector<Place> places = free_blocks(request.pool, request.stream);
  std::size_t i = 0;
  while (i < places.size() && at(places[i]).size < wanted) ++i;
  if (i < places.size() && segment_of(places[i]).page == 0) {
    // A part of a segment cannot be given back, although PyTorch would try.
    if (is_split(places[i])) return false;
    release_segment(at(places[i]).address);
    return true;
  }
  std::vector<std::pair<std::uint64_t, DeviceAddress>> going;
  std::uint64_t released = 0;
  while (i > 0 && released < wanted) {
    --i;
    const std::uint64_t size = at(places[i]).size;
    if (size < oversize) break;
    if (segment_of(places[i]).page > 0 || is_split(places[i])) continue;
    going.emplace_back(size, at(places[i]).address);
    released += size;
  }
  for (const auto& [size, address] : going) release_segment(address);
  return released >= wanted;
}

void NaiveModel::collect_garbage() {
  const auto allowed = static_cast<std::uint64_t>(config_.garbage_collection_threshold *
                                                  static_cast<double>(*limit_));
  if (used_bytes() <= allowed) return;
  const std::uint64_t target = used_bytes() - allowed;
  const Pool large{};
  const std::uint64_t now = clock(large);
  const auto age = [&](Place place) { return static_cast<double>(now - at(place).freed_at); };
  double total_age = 0;
  int count = 0;
  for (const Place place : free_blocks(large, std::nullopt)) {
    if (is_split(place)) continue;
    total_age += age(place);
    ++count;
  }
  std::uint64_t reclaimed = 0;
  for (bool has_freed = true; reclaimed < target && has_freed && count > 0;) {
    has_freed = false;
    const double threshold = total_age / count;
    std::vector<DeviceAddress> going;
    for (const Place place : free_blocks(large, std::nullopt)) {
      if (is_split(place) || segment_of(place).page > 0 || age(place) < threshold) continue;
      has_freed = true;
      reclaimed += at(place).size;
      total_age -= age(place);
      --count;
      going.push_back(at(place).address);
    }
    for (const DeviceAddress address : going) release_segment(address);
  }
}

}  // namespace headroom::memory::testing
