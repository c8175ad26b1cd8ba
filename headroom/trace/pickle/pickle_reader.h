// Reads what torch.cuda.memory._dump_snapshot wrote (docs/format/pickle.md says what is refused).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "headroom/trace/format_error.h"
#include "headroom/trace/progress.h"
#include "headroom/trace/trace.h"

namespace headroom::trace {

struct PickleReadOptions {
  // Filled with what was odd but did no harm.
  std::string* note = nullptr;
  Progress progress{};
  // Of the packed file that the bytes came out of, which bounds what they may take; 0: not packed.
  std::uint64_t file_bytes = 0;
};

// The bytes are those of the pickle, unpacked. What reading them may cost at most, whatever is in
// them, is in docs/format/reading.md.
[[nodiscard]] FormatResult<Trace> parse_pickle(std::span<const std::byte> bytes,
                                               const PickleReadOptions& options);
[[nodiscard]] FormatResult<Trace> parse_pickle(std::span<const std::byte> bytes,
                                               std::string* note = nullptr);

}  // namespace headroom::trace
