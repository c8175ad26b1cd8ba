// Spread: blocks that stay when most around them have gone, few in each page, keep these pages.
//
//   if (const auto spread = find_spread(index, position)) use(spread->kept_bytes, spread->site);
//
// No allocator can give such pages back or use them for a large block, PyTorch's segments of 2 MiB
// and the pages of headroom alike.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "headroom/analysis/index.h"

namespace headroom::analysis {

struct Spread {
  std::uint64_t pages = 0;       // of 2 MiB, each with something in it, and less than a tenth full
  std::uint64_t kept_bytes = 0;  // in these pages, in use by nobody
  std::uint64_t blocks = 0;      // that stay there
  std::uint64_t live_bytes = 0;  // of these blocks
  std::string site{};            // of most of them; empty where there are no stacks
};

// At a position of the index. Nothing where no page is so empty.
[[nodiscard]] std::optional<Spread> find_spread(const TraceIndex& index, std::uint32_t position);

}  // namespace headroom::analysis
