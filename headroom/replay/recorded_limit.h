// The limit of a recorded run, from its events alone.
#pragma once

#include <cstdint>
#include <optional>

#include "headroom/analysis/start_state.h"
#include "headroom/trace/trace.h"

namespace headroom::replay {

// The limit as the recording tells it. PyTorch records neither the card nor the
// limit, unless the limit was set in the settings string.
struct RecordedLimit {
  // By our own recorder, which writes it down.
  std::optional<std::uint64_t> said_bytes{};
  // From the settings string: a share of a card whose size is not recorded.
  std::optional<double> fraction{};
  // Reserved bytes that were reached or would have been, had the last request been granted:
  std::uint64_t reached_bytes = 0;               // the limit was at least this
  std::uint64_t most_reserved_bytes = 0;         // reached without the "would"
  std::optional<std::uint64_t> refused_bytes{};  // and less than this; from the failures
  std::optional<std::uint64_t> free_bytes{};     // of the device at the first failure
  // The bytes that were reserved or free at a failure: no card has less.
  std::uint64_t card_at_least_bytes = 0;
  // The bytes that it had for certain, where something failed and the settings name no limit.
  std::optional<std::uint64_t> floor_bytes{};
  // The device had less left than was asked of it; else a limit came first.
  bool was_device_full = false;
};

// The share of a card's bytes, as PyTorch computes it.
[[nodiscard]] constexpr std::uint64_t part_of(double fraction, std::uint64_t bytes) noexcept {
  return static_cast<std::uint64_t>(fraction * static_cast<double>(bytes));
}

// `start` is that of the device's history.
[[nodiscard]] RecordedLimit recorded_limit(const trace::Trace& trace,
                                           const trace::DeviceTrace& device,
                                           const analysis::StartState& start);

}  // namespace headroom::replay
