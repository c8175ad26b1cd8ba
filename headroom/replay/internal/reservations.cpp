// Where the expandable segments lay that existed before the first event.
//
// A recording names mapped runs, never the addresses they are mapped into. Runs of one stream, pool
// and page size share one reservation: a second is made only when the first, which is larger than
// the card, has no room, or has been given back because nothing was left in it. What lies below
// the lowest page ever mapped is not known, and not needed: PyTorch maps the lowest hole first.
#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "headroom/base/bytes.h"
#include "headroom/replay/internal/compiler.h"

namespace headroom::replay::internal {

using memory::PoolId;
using trace::Action;
using trace::Events;

namespace {

constexpr std::uint64_t kStep = 2_MiB;  // every page is a multiple of this

class ReservationFinder {
 public:
  explicit ReservationFinder(const Program& program) : program_(program) {
    for (const memory::SegmentInfo& segment : program.start.segments) {
      if (segment.is_expandable) add_start(segment);
    }
  }

  std::vector<StartReservation> run() {
    if (!kinds_.empty()) {
      const Events& events = program_.device->events;
      for (std::size_t i = 0; i < events.size(); ++i) step(events, i);
    }
    std::vector<StartReservation> out;
    for (const Kind& kind : kinds_) out.push_back(kind.reservation);
    std::ranges::sort(out, {}, &StartReservation::address);
    return out;
  }

 private:
  struct Kind {
    StartReservation reservation{};
    std::uint64_t mapped_steps = 0;
    bool is_gone = false;  // given back: what is mapped from now on is another one's
  };

  void add_start(const memory::SegmentInfo& segment) {
    const auto key = std::tuple(segment.stream, segment.pool, segment.is_small);
    const auto [at, is_new] = numbers_.try_emplace(key, kinds_.size());
    if (is_new) {
      kinds_.push_back({.reservation = {.address = segment.address,
                                        .stream = segment.stream,
                                        .pool = segment.pool,
                                        .is_small = segment.is_small}});
    }
    Kind& kind = kinds_[at->second];
    kind.reservation.address = std::min(kind.reservation.address, segment.address);
    map(at->second, segment.address, segment.size_bytes);
  }

  void map(std::size_t kind, DeviceAddress address, std::uint64_t size) {
    for (std::uint64_t step = address / kStep; step < (address + size) / kStep; ++step) {
      if (mapped_.try_emplace(step, kind).second) ++kinds_[kind].mapped_steps;
    }
  }

  void unmap(DeviceAddress address, std::uint64_t size) {
    for (std::uint64_t step = address / kStep; step < (address + size) / kStep; ++step) {
      const auto found = mapped_.find(step);
      if (found == mapped_.end()) continue;
      Kind& kind = kinds_[found->second];
      mapped_.erase(found);
      if (--kind.mapped_steps == 0) kind.is_gone = true;
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
    const bool is_small =
        memory::rounded_size(requested, program_.config) <= memory::kSmallBytes;
    const PoolId pool =
        program_.trace->details[events.details(i)].pool.value_or(PoolId{});
    const auto stream = static_cast<StreamId>(events.stream(i));
    const auto found = numbers_.find({stream, pool, is_small});
    if (found == numbers_.end() || kinds_[found->second].is_gone) return;
    StartReservation& reservation = kinds_[found->second].reservation;
    reservation.address = std::min(reservation.address, events.address(i));
    map(found->second, events.address(i), events.size_bytes(i));
  }

  const Program& program_;
  std::vector<Kind> kinds_;
  std::map<std::tuple<StreamId, PoolId, bool>, std::size_t> numbers_;
  std::unordered_map<std::uint64_t, std::size_t> mapped_;  // step of address to kind
  std::vector<std::size_t> maps_;  // of the request that is under way
};

}  // namespace

std::vector<StartReservation> find_reservations(const Program& program) {
  return ReservationFinder(program).run();
}

}  // namespace headroom::replay::internal
