// Puts buffers with lifetimes into the least memory.
//
//   const PackResult packed = pack(buffers, {.seconds = 5});
//   // packed.offsets[i] is where buffers[i] goes, in a memory of packed.height_bytes
//
// Nobody can do better than `lower_bound_bytes`; the difference is the gap. Hundreds of buffers are
// often packed without one, and hundreds of thousands with a small one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "headroom/solve/packing.h"

namespace headroom::solve {

struct PackProgress {
  std::uint64_t height_bytes = 0;  // of the best so far
  std::uint64_t lower_bound_bytes = 0;
  double seconds = 0;
};

struct PackOptions {
  // Where set, the search ends as soon as the height is within it, or can be shown never to be.
  std::optional<std::uint64_t> capacity_bytes{};
  double seconds = 10;  // about; some seconds more for a hundred thousand buffers
  std::uint64_t seed = 0;
  // Of improvement. Where these end the search and not the seconds, the same options give the same
  // packing everywhere.
  std::uint64_t most_rounds = UINT64_MAX;
  std::function<void(const PackProgress&)> progress{};
};

struct PackResult {
  Offsets offsets{};
  std::uint64_t height_bytes = 0;
  std::uint64_t lower_bound_bytes = 0;  // proven: at least the peak load
  std::uint64_t rounds = 0;
  double seconds = 0;

  [[nodiscard]] bool is_optimal() const noexcept { return height_bytes == lower_bound_bytes; }
  // Of the lower bound; 0 where nothing has a size.
  [[nodiscard]] double gap() const noexcept {
    if (lower_bound_bytes == 0) return 0;
    const auto bound = static_cast<double>(lower_bound_bytes);
    return (static_cast<double>(height_bytes) - bound) / bound;
  }
};

// Throws InvalidArgument, as check_buffers(), and where `seconds` is negative or no number.
[[nodiscard]] PackResult pack(std::span<const Buffer> buffers, const PackOptions& options = {});

}  // namespace headroom::solve
