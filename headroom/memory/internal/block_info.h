// The answers of every core about a block, and an address where none starts. Block is a core's
// own type.
#pragma once

#include <algorithm>
#include <vector>

#include "headroom/device/device.h"
#include "headroom/memory/types.h"

namespace headroom::memory::internal {

template <class Block>
[[nodiscard]] BlockState block_state(const Block& block) noexcept {
  if (!block.is_mapped) return BlockState::kUnmapped;
  if (block.is_allocated) return BlockState::kAllocated;
  return block.is_free() ? BlockState::kInactive : BlockState::kPendingFree;
}

template <class Block>
[[nodiscard]] BlockInfo block_info(const Block& block) noexcept {
  return {.address = block.address,
          .size_bytes = block.size,
          .requested_bytes = block.requested,
          .state = block_state(block),
          .category = block.context.category,
          .annotation = block.context.annotation};
}

// The blocks of a core's map that somebody holds, as Live: its sizes and its context.
template <class Live, class Map>
[[nodiscard]] std::vector<Live> held_blocks(const Map& active) {
  std::vector<Live> blocks;
  blocks.reserve(active.size());
  active.for_each([&](const auto& block) {
    if (!block.is_allocated) return;
    blocks.push_back(
        {.requested_bytes = block.requested, .size_bytes = block.size, .context = block.context});
  });
  return blocks;
}

// A free of what is not held.
[[nodiscard]] inline Unexpected<device::DeviceStatus> not_held(device::Device& device,
                                                               DeviceAddress address) {
  return Unexpected(device::DeviceStatus{
      .code = device::StatusCode::kUnknownHandle,
      .call = "free",
      .detail = device.owns_range(address, 1)
                    ? "the address is not a block that is held; was it freed before?"
                    : "the address does not belong to this allocator's device",
      .found = address});
}

[[nodiscard]] inline Unexpected<device::DeviceStatus> not_recordable(DeviceAddress address) {
  return Unexpected(device::DeviceStatus{.code = device::StatusCode::kUnknownHandle,
                                         .call = "record_stream",
                                         .detail = "the address is not a block that is held",
                                         .found = address});
}

// Another stream uses a held block.
template <class Block>
void add_use(Block& block, StreamId stream) {
  if (stream == block.stream || std::ranges::count(block.stream_uses.all(), stream) > 0) return;
  block.stream_uses.add(stream);
}

}  // namespace headroom::memory::internal
