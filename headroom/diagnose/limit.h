// The limit of an allocator when a program was recorded.
//
// PyTorch writes down neither the card nor the limit, unless the limit is a fraction in its
// settings. But a failure tells: the limit was at least the most that was ever reserved, and less
// than what was reserved then plus what was asked of the device.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "headroom/replay/bounds.h"
#include "headroom/replay/recorded_limit.h"

namespace headroom::diagnose {

using replay::Bounds;  // what the user says or asks about

enum class LimitSource : std::uint8_t {
  kGiven,     // by the user, within what the failures allow
  kRecorded,  // our own recorder writes it down
  kFraction,  // recorded; exact where the user names the card
  kFailures,  // the limit lay between what was reached and what was refused
  kDevice,    // the device was full: what it had left for this program, likewise
};

[[nodiscard]] std::string_view to_string(LimitSource source) noexcept;

struct LimitRange {
  std::uint64_t low_bytes = 0;  // it was at least this
  // And less than this, or this exactly where both are the same. None: nothing was refused.
  std::optional<std::uint64_t> high_bytes{};
  LimitSource source = LimitSource::kFailures;

  [[nodiscard]] bool is_exact() const noexcept { return high_bytes == low_bytes; }

  friend bool operator==(const LimitRange&, const LimitRange&) = default;
};

// Nothing where no limit can be told from the recording. What the user says narrows it where it
// can have been so; else it is a question of what would have been.
[[nodiscard]] std::optional<LimitRange> limit_range(const replay::RecordedLimit& recorded,
                                                    const Bounds& said);

// Whether that card and that limit can be those of the recording: they contradict neither a failure
// nor what was reserved. Without failures and a fraction, a recording tells of none.
[[nodiscard]] bool can_be_of_recording(const replay::RecordedLimit& recorded, const Bounds& said);

}  // namespace headroom::diagnose
