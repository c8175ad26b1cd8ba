// A card or a limit that somebody asks about: would the recorded program have fitted?
//
//   const Bounds asked{.limit_bytes = 12_GiB};
//   if (runs_as_recorded(program, asked)) return program.failures == 0;   // it is on record
//   return replay_bounds(program, as_recorded(program, asked)).fits;      // player.h: a prediction
//
// replay, tune and doctor all ask here first, so that one question has one answer.
#pragma once

#include <cstdint>
#include <optional>

#include "headroom/replay/recorded_limit.h"

namespace headroom::replay {

struct Program;

struct Bounds {
  std::optional<std::uint64_t> card_bytes{};
  std::optional<std::uint64_t> limit_bytes{};

  [[nodiscard]] bool is_empty() const noexcept { return !card_bytes && !limit_bytes; }
};

// Whether the recording can have been made on a card of that size. None is smaller than what was
// reserved and free at once; where the device was full, little of it can have been held by others.
[[nodiscard]] bool can_be_card_of(const RecordedLimit& recorded, std::uint64_t card_bytes) noexcept;

// Whether that limit lets through all that was served, and refuses all that was refused.
[[nodiscard]] bool lets_through(const RecordedLimit& recorded, std::uint64_t limit_bytes) noexcept;

// Whether the program runs under these bounds just as it was recorded, with the same failures or
// none: they let through what was served and refuse what was refused.
[[nodiscard]] bool runs_as_recorded(const Program& program, const Bounds& bounds);

}  // namespace headroom::replay
