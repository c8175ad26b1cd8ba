// Where a recorded program emptied its cache. PyTorch records no such call: it shows in memory that
// was given back when nothing asked for it, which takes a run to see.
//
//   const Program program = compile_with_empty_caches(trace, trace.devices[0]);
//
// Replaying under other settings wants these calls; counting and verifying do not.
#pragma once

#include <cstdint>
#include <optional>

#include "headroom/replay/program.h"

namespace headroom::replay {

// The known facts of the recorded run. A field that is unset is inferred, or taken from a table; a
// card or a limit that contradicts the recording is taken for another run's, and left out.
struct KnownRun {
  std::optional<memory::PyTorchVersion> version{};
  std::optional<std::uint64_t> card_bytes{};
  std::optional<std::uint64_t> limit_bytes{};
};

// The program with its kEmptyCache ops: runs it under its own settings, where PyTorch's allocator
// gave cached memory back, and leaves it alone else. Our own allocator unmaps pages when it likes:
// that says nothing of the program. A program that has such ops already is returned as it is.
[[nodiscard]] Program with_inferred_empty_caches(Program program, const KnownRun& run = {});

// compile(), then with_inferred_empty_caches().
[[nodiscard]] Program compile_with_empty_caches(const trace::Trace& trace,
                                                const trace::DeviceTrace& device,
                                                const KnownRun& run = {});

}  // namespace headroom::replay
