#include "headroom/trace/record/internal/stack_interner.h"

#include <algorithm>
#include <bit>

namespace headroom::trace::internal {

std::uint64_t StackInterner::hash_of(std::span<const std::uint64_t> addresses) noexcept {
  constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15;
  // Two chains, because each step waits for the multiplication before it.
  std::uint64_t even = addresses.size() * kMultiplier;
  std::uint64_t odd = ~even;
  std::size_t i = 0;
  for (; i + 1 < addresses.size(); i += 2) {
    even = (std::rotl(even, 23) ^ addresses[i]) * kMultiplier;
    odd = (std::rotl(odd, 29) ^ addresses[i + 1]) * kMultiplier;
  }
  if (i < addresses.size()) even = (std::rotl(even, 23) ^ addresses[i]) * kMultiplier;
  const std::uint64_t mixed = (even ^ std::rotl(odd, 31)) * kMultiplier;
  return mixed ^ (mixed >> 32U);
}

std::uint32_t StackInterner::find(std::span<const std::uint64_t> addresses,
                                  std::uint64_t hash) const noexcept {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t at = hash & mask; slots_[at].id != kNone; at = (at + 1) & mask) {
    const Slot& slot = slots_[at];
    if (slot.hash != hash) continue;
    if (std::ranges::equal((*this)[slot.id], addresses)) return slot.id;
  }
  return kNone;
}

std::uint32_t StackInterner::add(std::span<const std::uint64_t> addresses,
                                 std::uint64_t hash) noexcept {
  if (size() == UINT32_MAX) return kNone;
  try {
    if (2 * std::size_t{size()} >= slots_.size()) grow();
    const std::size_t needed = words_.size() + addresses.size();
    if (words_.capacity() < needed) words_.reserve(std::max(2 * words_.capacity(), needed));
    starts_.push_back(words_.size() + addresses.size());
  } catch (...) {  // No memory: the event is recorded without its stack.
    return kNone;
  }
  words_.insert(words_.end(), addresses.begin(), addresses.end());
  const std::uint32_t id = size() - 1;
  place(slots_, {.hash = hash, .id = id});
  return id;
}

void StackInterner::place(std::vector<Slot>& slots, Slot slot) noexcept {
  const std::size_t mask = slots.size() - 1;
  std::size_t at = slot.hash & mask;
  while (slots[at].id != kNone) at = (at + 1) & mask;
  slots[at] = slot;
}

void StackInterner::grow() {
  std::vector<Slot> larger(2 * slots_.size());
  for (const Slot& slot : slots_) {
    if (slot.id != kNone) place(larger, slot);
  }
  slots_ = std::move(larger);
}

}  // namespace headroom::trace::internal
