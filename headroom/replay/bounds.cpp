#include "headroom/replay/bounds.h"

#include <algorithm>

#include "headroom/replay/internal/compiler.h"
#include "headroom/replay/program.h"
#include "headroom/replay/verify.h"

namespace headroom::replay {
namespace {

// Of a card that was full, what CUDA itself, a desktop and other processes may have held.
constexpr std::uint64_t kMostOutsideDivisor = 8;

bool is_let_through(const RecordedLimit& recorded, const Bounds& bounds) {
  if (bounds.card_bytes && !can_be_card_of(recorded, *bounds.card_bytes)) return false;
  if (bounds.limit_bytes) return lets_through(recorded, *bounds.limit_bytes);
  if (!bounds.card_bytes || !recorded.fraction) return true;
  return lets_through(recorded, part_of(*recorded.fraction, *bounds.card_bytes));
}

}  // namespace

bool can_be_card_of(const RecordedLimit& recorded, std::uint64_t card_bytes) noexcept {
  const std::uint64_t least = std::max(recorded.card_at_least_bytes, recorded.reached_bytes);
  if (card_bytes < least) return false;
  return !recorded.was_device_full || card_bytes - least <= card_bytes / kMostOutsideDivisor;
}

bool lets_through(const RecordedLimit& recorded, std::uint64_t limit_bytes) noexcept {
  return limit_bytes >= recorded.reached_bytes &&
         (!recorded.refused_bytes || limit_bytes < *recorded.refused_bytes);
}

bool runs_as_recorded(const Program& program, const Bounds& bounds) {
  if (bounds.is_empty()) return true;
  if (!is_let_through(program.limit, bounds)) return false;
  // Where nothing was given back, no limit was felt.
  if (!internal::gives_anything_back(program.device->events)) return true;
  const VerifyOptions asked{.card_bytes = bounds.card_bytes, .limit_bytes = bounds.limit_bytes};
  if (verify(program, asked).is_exact()) return true;
  // Unless the recording does not verify at all, in which case this proves nothing.
  return !verify(program, {}).is_exact();
}

}  // namespace headroom::replay
