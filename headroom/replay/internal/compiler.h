// The parts of compile(): each answers one question about a recording.
#pragma once

#include <cstdint>
#include <vector>

#include "headroom/replay/program.h"

namespace headroom::replay::internal {

[[nodiscard]] constexpr bool takes_memory(trace::Action action) noexcept {
  return action == trace::Action::kSegmentAlloc || action == trace::Action::kSegmentMap;
}

[[nodiscard]] constexpr bool gives_back(trace::Action action) noexcept {
  return action == trace::Action::kSegmentFree || action == trace::Action::kSegmentUnmap;
}

[[nodiscard]] constexpr bool is_segment_event(trace::Action action) noexcept {
  return takes_memory(action) || gives_back(action);
}

[[nodiscard]] bool gives_anything_back(const trace::Events& events);

// The expandable segments that existed before the first event, on a card of that size.
[[nodiscard]] std::vector<StartReservation> find_reservations(const Program& program,
                                                              std::uint64_t card_bytes);

// The addresses that PyTorch reserves for an expandable segment: 9/8 of the card, in whole pages.
[[nodiscard]] std::uint64_t reservation_bytes(const Program& program,
                                              bool is_small,
                                              std::uint64_t card_bytes);

// Which pool each allocation went to.
class PoolRoutes {
 public:
  explicit PoolRoutes(const Program& program);

  // In pools(); 0 is the default pool.
  [[nodiscard]] std::uint8_t pool_of(std::size_t event) const;
  [[nodiscard]] const std::vector<memory::PoolId>& pools() const noexcept { return pools_; }

 private:
  // A private segment of the final state, and the last event that took memory for it: what was
  // allocated there since came from its pool.
  struct Place {
    DeviceAddress address = 0;
    DeviceAddress end = 0;
    std::size_t since_event = 0;
    std::uint8_t pool = 0;
  };

  [[nodiscard]] std::uint8_t number(memory::PoolId id);
  void add_places(const Program& program);

  const Program& program_;
  std::vector<memory::PoolId> pools_{memory::PoolId{}};
  std::vector<std::uint8_t> of_details_{};  // by DetailsId; kUnsaid where it names no pool
  std::vector<Place> places_{};             // by address
};

}  // namespace headroom::replay::internal
