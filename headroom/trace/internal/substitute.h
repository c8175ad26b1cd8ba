// Puts other frames in the place of some: how raw addresses become functions and lines.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "headroom/trace/trace.h"

namespace headroom::trace::internal {

// By frame id of trace.stacks.
using Substitutes = std::unordered_map<std::uint32_t, std::vector<Frame>>;

// How many frames the stacks have together, before and after.
struct StackLengths {
  std::uint64_t before = 0;
  std::uint64_t after = 0;
};
[[nodiscard]] StackLengths stack_lengths(const StackTable& stacks, const Substitutes& substitutes);

// Stacks that become the same are one afterwards, so ids change in events and blocks. False, and
// nothing changed, when the stacks would become absurdly long, as only a damaged file asks for.
[[nodiscard]] bool substitute_frames(Trace& trace, const Substitutes& substitutes);

}  // namespace headroom::trace::internal
