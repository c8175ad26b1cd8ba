#include "headroom/diagnose/limit.h"

#include <algorithm>

namespace headroom::diagnose {
namespace {

using replay::part_of;
using replay::RecordedLimit;

LimitRange exactly(std::uint64_t bytes, LimitSource source) {
  return {.low_bytes = bytes, .high_bytes = bytes, .source = source};
}

bool holds(const LimitRange& range, std::uint64_t bytes) {
  if (range.is_exact()) return bytes == range.low_bytes;
  return bytes >= range.low_bytes && (!range.high_bytes || bytes < *range.high_bytes);
}

// From the recording alone.
std::optional<LimitRange> recorded_range(const RecordedLimit& recorded) {
  if (recorded.said_bytes) return exactly(*recorded.said_bytes, LimitSource::kRecorded);
  if (!recorded.refused_bytes && !recorded.fraction) return std::nullopt;
  LimitRange out{
      .low_bytes = recorded.floor_bytes.value_or(recorded.reached_bytes),
      .high_bytes = recorded.refused_bytes,
      .source = recorded.was_device_full ? LimitSource::kDevice : LimitSource::kFailures};
  if (recorded.fraction) {
    // The card is unknown, but no smaller than what was reserved and free at once.
    const std::uint64_t of_card = part_of(*recorded.fraction, recorded.card_at_least_bytes);
    out.low_bytes = std::max(out.low_bytes, of_card);
    out.source = recorded.refused_bytes ? LimitSource::kFailures : LimitSource::kFraction;
  }
  // Two failures that contradict each other: something else was short then.
  if (out.high_bytes && *out.high_bytes <= out.low_bytes) out.high_bytes = out.low_bytes + 1;
  return out;
}

}  // namespace

std::string_view to_string(LimitSource source) noexcept {
  switch (source) {
    case LimitSource::kGiven:
      return "given";
    case LimitSource::kRecorded:
      return "recorded";
    case LimitSource::kFraction:
      return "fraction";
    case LimitSource::kFailures:
      return "failures";
    case LimitSource::kDevice:
      return "device";
  }
  return "";
}

bool can_be_of_recording(const RecordedLimit& recorded, const Bounds& said) {
  const auto range = recorded_range(recorded);
  if (!range) return false;
  if (said.limit_bytes && !holds(*range, *said.limit_bytes)) return false;
  if (!said.card_bytes) return true;
  if (!replay::can_be_card_of(recorded, *said.card_bytes)) return false;
  if (!recorded.fraction) return recorded.refused_bytes.has_value();
  const std::uint64_t limit = part_of(*recorded.fraction, *said.card_bytes);
  return holds(*range, limit) && said.limit_bytes.value_or(limit) == limit;
}

std::optional<LimitRange> limit_range(const RecordedLimit& recorded, const Bounds& said) {
  if (said.is_empty() || !can_be_of_recording(recorded, said)) return recorded_range(recorded);
  if (recorded.said_bytes) return exactly(*recorded.said_bytes, LimitSource::kRecorded);
  if (said.limit_bytes) return exactly(*said.limit_bytes, LimitSource::kGiven);
  if (recorded.fraction) {
    return exactly(part_of(*recorded.fraction, *said.card_bytes), LimitSource::kFraction);
  }
  return recorded_range(recorded);
}

}  // namespace headroom::diagnose
