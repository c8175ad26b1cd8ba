// Where the expandable segments lay that existed before the first event.
//
// A recording names mapped runs, never the addresses they are mapped into. Runs of one stream, pool
// and page size share one reservation, as far as it reaches: a second is made only when the first,
// which is larger than the card, has no room, or has been given back because nothing was left in
// it. What lies below the lowest page ever mapped is not known, and not needed: PyTorch maps the
// lowest hole first.
#include <algorithm>
#include <unordered_map>

#include "headroom/base/bytes.h"
#include "headroom/base/checked.h"
#include "headroom/replay/internal/compiler.h"

namespace headroom::replay::internal {

using memory::PoolId;
using trace::Action;
using trace::Events;

namespace {

constexpr std::uint64_t kStep = 2_MiB;  // every page is a multiple of this

class ReservationFinder {
 public:
  ReservationFinder(const Program& program, std::uint64_t card_bytes)
      : program_(program), card_(card_bytes) {
    for (const memory::SegmentInfo& segment : program.start.segments) {
      if (segment.is_expandable) add_start(segment);
    }
  }

  std::vector<StartReservation> run() {
    if (!found_.empty()) {
      const Events& events = program_.device->events;
      for (std::size_t i = 0; i < events.size(); ++i) step(events, i);
    }
    std::vector<StartReservation> out;
    for (const Found& found : found_) out.push_back(found.reservation);
    std::ranges::sort(out, {}, &StartReservation::address);
    return out;
  }

 private:
  struct Found {
    StartReservation reservation{};
    DeviceAddress end = 0;  // of the highest page
    std::uint64_t mapped_steps = 0;
    bool is_gone = false;  // given back: what is mapped from now on is another one's
  };

  // The one that pages of that kind at that place would belong to.
  [[nodiscard]] std::size_t find(const StartReservation& like, std::uint64_t size) const {
    const std::uint64_t reach = reservation_bytes(program_, like.is_small, card_);
    for (std::size_t i = 0; i < found_.size(); ++i) {
      const StartReservation& known = found_[i].reservation;
      const bool is_same = known.stream == like.stream && known.pool == like.pool &&
                           known.is_small == like.is_small && !found_[i].is_gone;
      const DeviceAddress begin = std::min(known.address, like.address);
      const DeviceAddress end = std::max(found_[i].end, like.address + size);
      if (is_same && end - begin <= reach) return i;
    }
    return found_.size();
  }

  void add_start(const memory::SegmentInfo& segment) {
    const StartReservation like{.address = segment.address,
                                .stream = segment.stream,
                                .pool = segment.pool,
                                .is_small = segment.is_small};
    const std::size_t i = find(like, segment.size_bytes);
    if (i == found_.size()) found_.push_back({.reservation = like});
    map(i, segment.address, segment.size_bytes);
  }

  void map(std::size_t i, DeviceAddress address, std::uint64_t size) {
    Found& found = found_[i];
    found.reservation.address = std::min(found.reservation.address, address);
    found.end = std::max(found.end, address + size);
    for (std::uint64_t step = address / kStep; step < (address + size) / kStep; ++step) {
      if (mapped_.try_emplace(step, i).second) ++found.mapped_steps;
    }
  }

  void unmap(DeviceAddress address, std::uint64_t size) {
    for (std::uint64_t step = address / kStep; step < (address + size) / kStep; ++step) {
      const auto at = mapped_.find(step);
      if (at == mapped_.end()) continue;
      Found& found = found_[at->second];
      mapped_.erase(at);
      if (--found.mapped_steps == 0) found.is_gone = true;
    }
  }

  void step(const Events& events, std::size_t i) {
    switch (events.action(i)) {
      case Action::kSegmentMap:
        maps_.push_back(i);
        break;
      case Action::kSegmentUnmap:
        unmap(events.address(i), events.size_bytes(i));
        break;
      case Action::kAlloc:
      case Action::kOutOfMemory:
        for (const std::size_t mapping : maps_) settle(events, mapping, events.size_bytes(i));
        maps_.clear();
        break;
      default:
        break;
    }
  }

  // The request that a page was mapped for tells what kind of page it is.
  void settle(const Events& events, std::size_t i, std::uint64_t requested) {
    const StartReservation like{
        .address = events.address(i),
        .stream = static_cast<StreamId>(events.stream(i)),
        .pool = program_.trace->details[events.details(i)].pool.value_or(PoolId{}),
        .is_small = memory::rounded_size(requested, program_.config) <= memory::kSmallBytes};
    const std::size_t at = find(like, events.size_bytes(i));
    if (at < found_.size()) map(at, events.address(i), events.size_bytes(i));
  }

  const Program& program_;
  std::uint64_t card_;
  std::vector<Found> found_;
  std::unordered_map<std::uint64_t, std::size_t> mapped_;  // step of address to found_
  std::vector<std::size_t> maps_;                          // of the request that is under way
};

}  // namespace

std::uint64_t reservation_bytes(const Program& program, bool is_small, std::uint64_t card_bytes) {
  const std::uint64_t page =
      is_small ? memory::kSmallSegmentBytes : program.config.large_segment_bytes;
  return round_up(card_bytes + card_bytes / 8, page);
}

std::vector<StartReservation> find_reservations(const Program& program, std::uint64_t card_bytes) {
  return ReservationFinder(program, card_bytes).run();
}

}  // namespace headroom::replay::internal
