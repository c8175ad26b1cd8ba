// Where a program computes forward and where backward, from lifetimes alone.
//
// A forward pass keeps blocks and a backward pass gives them up again, so the number of blocks that
// live for a while rises to a turn and falls:
//
//            turn                  turn
//            /\                    /\        begin  the first block that the pass keeps
//           /  \                  /  \       end    the last block that the backward worked with
//   ______ /    \ ______________ /    \ __   between two passes an optimiser may run
//      begin     end         begin     end
//
// A server's requests rise and fall as well, without a backward: whoever needs one has to look for
// gradients.
#pragma once

#include <cstdint>
#include <vector>

#include "headroom/analysis/index.h"

namespace headroom::analysis::internal {

// Events of one device, begin <= turn <= end.
struct Pass {
  std::uint32_t begin = 0;
  std::uint32_t turn = 0;
  std::uint32_t end = 0;
};

struct Passes {
  std::vector<Pass> all{};  // by time, disjoint
  // For each lifetime: whether it outlives what the program does, being there when the last block
  // is asked for. Parameters do, and what the end of the recording caught.
  std::vector<char> is_stayer{};
  // The same: whether it has the size of a stayer and goes with others like it, as gradients do.
  std::vector<char> is_freed_together{};
};

[[nodiscard]] Passes find_passes(const TraceIndex& index);

}  // namespace headroom::analysis::internal
