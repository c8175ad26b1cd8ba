// Where the reserved bytes are that nobody asked for.
//
//   const Waste waste = waste_at(program, options, result.peak_op);
//   lines.reserved == lines.live + lines.rounding + lines.unsplit + lines.pending
//                     + lines.hard + lines.soft + lines.stream
//
// The words are those of memory/account.h; its `rounding` line is split here in two, by whose
// decision it was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "headroom/replay/player.h"
#include "headroom/replay/program.h"

namespace headroom::replay {

// Bytes of the device; the lines below `reserved` add up to it exactly.
struct WasteLines {
  std::uint64_t reserved = 0;
  std::uint64_t live = 0;  // as asked for, of the blocks that somebody holds
  // The sizes asked for, rounded as the settings say (512, or roundup_power2_divisions) ...
  std::uint64_t rounding = 0;
  // ... and what the block has beyond that: a rest that was not split off, because it was at most
  // 1 MiB, or because blocks past max_split_size are never split.
  std::uint64_t unsplit = 0;
  std::uint64_t pending = 0;  // freed, and held by another stream
  // Free blocks, each in one line:
  std::uint64_t stream = 0;  // of a stream other than that of the next request
  std::uint64_t hard = 0;    // beside a block in use, in its segment: cannot be given back
  std::uint64_t soft = 0;    // whole segments, or whole pages: an emptied cache gives them back

  [[nodiscard]] std::uint64_t cached() const noexcept { return stream + hard + soft; }
  [[nodiscard]] std::uint64_t wasted() const noexcept { return reserved - live; }
  [[nodiscard]] std::uint64_t sum() const noexcept {
    return live + rounding + unsplit + pending + cached();
  }
  friend bool operator==(const WasteLines&, const WasteLines&) = default;
};

// Who keeps segments from being given back: blocks in use with free ones right beside them.
struct PinningSite {
  std::string site{};              // sites.h; `(no stack)` where none was recorded
  std::uint64_t pinned_bytes = 0;  // free bytes beside its blocks; half to each neighbour
  std::uint64_t held_bytes = 0;    // by those blocks
  std::uint64_t blocks = 0;
};

struct Waste {
  std::size_t op = 0;
  WasteLines lines{};
  StreamId stream = StreamId::kDefault;  // of the request that the free blocks are judged by
  std::uint64_t largest_free = 0;        // on that stream
  std::uint64_t segments = 0;
  std::uint64_t pinned_segments = 0;  // that have blocks in use and free bytes
  // Most pinned first. Together: all free bytes that cannot be given back, of whatever stream.
  std::vector<PinningSite> pinned_by{};
};

// After op `op` of the program was run. The free blocks are judged by the stream of the op itself
// where it is a request, else by that of the next one.
[[nodiscard]] Waste waste_at(const Program& program, const ReplayOptions& options, std::size_t op);

struct WasteSample {
  std::size_t op = 0;
  WasteLines lines{};
};

// About `samples` of them, at equal distances in ops.
[[nodiscard]] std::vector<WasteSample> waste_over_time(const Program& program,
                                                       const ReplayOptions& options,
                                                       std::size_t samples);

}  // namespace headroom::replay
