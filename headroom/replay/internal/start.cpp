#include "headroom/replay/internal/start.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "headroom/base/checked.h"
#include "headroom/replay/internal/compiler.h"

namespace headroom::replay::internal {

using device::MetaState;
using device::PageHandle;
using memory::ReservationInfo;
using memory::SegmentInfo;

namespace {

bool is_of(const SegmentInfo& segment, const StartReservation& reservation) {
  return segment.is_expandable && segment.stream == reservation.stream &&
         segment.pool == reservation.pool && segment.is_small == reservation.is_small;
}

// As long as PyTorch makes them, 9/8 of the card; but not into what lies behind.
std::uint64_t reservation_size(const StartReservation& reservation,
                               const std::vector<SegmentInfo>& segments,
                               const Program& program,
                               std::uint64_t card) {
  const std::uint64_t page =
      reservation.is_small ? memory::kSmallSegmentBytes : program.config.large_segment_bytes;
  std::uint64_t size = reservation_bytes(program, reservation.is_small, card);
  const auto stop_at = [&](DeviceAddress other) {
    if (other > reservation.address) {
      size = std::min(size, round_down(other - reservation.address, page));
    }
  };
  for (const SegmentInfo& segment : segments) {
    if (!is_of(segment, reservation)) stop_at(segment.address);
  }
  for (const StartReservation& other : program.start_reservations) stop_at(other.address);
  return std::max(size, page);
}

bool lies_in(const SegmentInfo& segment, const ReservationInfo& reservation) {
  return segment.is_expandable && segment.address >= reservation.address &&
         segment.address - reservation.address < reservation.size_bytes;
}

MetaState::Reservation to_state(const ReservationInfo& reservation,
                                const std::vector<SegmentInfo>& segments) {
  const std::uint64_t page = reservation.size_bytes / reservation.pages.size();
  MetaState::Reservation out{.address = reservation.address, .size_bytes = reservation.size_bytes};
  for (const SegmentInfo& segment : segments) {
    if (!lies_in(segment, reservation)) continue;
    for (std::uint64_t at = 0; at < segment.size_bytes; at += page) {
      out.pages.push_back({.address = segment.address + at, .size_bytes = page});
    }
  }
  return out;
}

// Runs that touch were mapped one after the other; an allocator knows them as one.
std::vector<SegmentInfo> joined(const std::vector<SegmentInfo>& segments) {
  std::vector<SegmentInfo> out;
  for (const SegmentInfo& segment : segments) {
    SegmentInfo* const last = out.empty() ? nullptr : &out.back();
    const bool continues = last != nullptr && last->is_expandable && segment.is_expandable &&
                           last->address + last->size_bytes == segment.address &&
                           last->stream == segment.stream && last->pool == segment.pool &&
                           last->is_small == segment.is_small;
    if (!continues) {
      out.push_back(segment);
      continue;
    }
    auto block = segment.blocks.begin();
    if (!last->blocks.empty() && block != segment.blocks.end() &&
        last->blocks.back().state == memory::BlockState::kInactive &&
        block->state == memory::BlockState::kInactive) {
      last->blocks.back().size_bytes += block->size_bytes;
      ++block;
    }
    last->blocks.insert(last->blocks.end(), block, segment.blocks.end());
    last->size_bytes += segment.size_bytes;
  }
  return out;
}

}  // namespace

bool StartLayout::contains(DeviceAddress address) const {
  const auto behind = std::ranges::upper_bound(segments, address, {}, &SegmentInfo::address);
  if (behind == segments.begin()) return false;
  const SegmentInfo& segment = *std::prev(behind);
  const auto is_it = [address](const memory::BlockInfo& block) {
    return block.address == address && block.state != memory::BlockState::kInactive;
  };
  return address - segment.address < segment.size_bytes &&
         std::ranges::any_of(segment.blocks, is_it);
}

device::DeviceResult<StartLayout> lay_out_start(const Program& program,
                                                device::MetaDevice& device) {
  StartLayout layout{.segments = joined(program.start.segments)};
  const std::uint64_t card = device.properties().total_bytes;
  MetaState state;
  for (const SegmentInfo& segment : layout.segments) {
    if (segment.is_expandable) continue;
    state.segments.push_back({.address = segment.address, .size_bytes = segment.size_bytes});
  }
  for (const StartReservation& start : program.start_reservations) {
    const std::uint64_t page =
        start.is_small ? memory::kSmallSegmentBytes : program.config.large_segment_bytes;
    ReservationInfo reservation{
        .address = start.address,
        .size_bytes = reservation_size(start, layout.segments, program, card),
        .stream = start.stream,
        .pool = start.pool,
        .is_small = start.is_small};
    reservation.pages.resize(reservation.size_bytes / page, PageHandle::kNone);
    state.reservations.push_back(to_state(reservation, layout.segments));
    layout.reservations.push_back(std::move(reservation));
  }
  state.streams = {program.streams.begin(), program.streams.end()};
  const auto restored = device.restore(state);
  if (!restored) return Unexpected(restored.error());
  for (const device::RestoredPages& pages : *restored) {
    for (ReservationInfo& reservation : layout.reservations) {
      const std::uint64_t offset = pages.address - reservation.address;
      if (pages.address < reservation.address || offset >= reservation.size_bytes) continue;
      const std::uint64_t page = reservation.size_bytes / reservation.pages.size();
      reservation.pages[offset / page] = pages.handle;
    }
  }
  return layout;
}

}  // namespace headroom::replay::internal
