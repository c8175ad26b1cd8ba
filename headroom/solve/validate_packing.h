// Whether a packing is one: an account of its own, which shares nothing with what packs.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "headroom/solve/packing.h"

namespace headroom::solve {

enum class PackingFaultKind : std::uint8_t {
  kMissing,      // not as many offsets as buffers
  kUnaligned,    // an offset is no multiple of the alignment
  kPastTheEnd,   // a buffer ends above the capacity
  kOverlapping,  // two buffers share a byte while both live
};

struct PackingFault {
  PackingFaultKind kind = PackingFaultKind::kMissing;
  std::size_t buffer = 0;
  std::size_t other = 0;  // of kOverlapping
};

// The first fault that it finds; nothing where the packing is right.
[[nodiscard]] std::optional<PackingFault> find_packing_fault(std::span<const Buffer> buffers,
                                                             const Offsets& offsets,
                                                             std::uint64_t capacity_bytes);

// "buffer 3 and buffer 7 overlap".
[[nodiscard]] std::string to_string(const PackingFault& fault);

}  // namespace headroom::solve
