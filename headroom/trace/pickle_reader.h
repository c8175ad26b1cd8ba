// Reads what torch.cuda.memory._dump_snapshot wrote (docs/format/pickle.md says what is refused).
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "headroom/trace/format_error.h"
#include "headroom/trace/progress.h"
#include "headroom/trace/trace.h"

namespace headroom::trace {

// The bytes are those of the pickle, unpacked. `note`, where given, receives what was odd but did
// no harm. Uses at most a small multiple of the size of `bytes`, whatever is in them.
[[nodiscard]] FormatResult<Trace> parse_pickle(std::span<const std::byte> bytes,
                                               std::string* note = nullptr,
                                               const Progress& progress = {});

}  // namespace headroom::trace
