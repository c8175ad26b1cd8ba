// Frames without symbols: named `libmodel.so+0x1f40`, with the module's path as file, and in the
// extras what finds the symbols later, in another process too: the offset in the module's own
// addresses, and its build id. A snapshot in PyTorch's format keeps them as keys of the frame.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "headroom/trace/record/internal/modules.h"
#include "headroom/trace/trace.h"

namespace headroom::trace::internal {

struct RawFrame {
  std::string path{};
  std::string build_id{};
  std::uint64_t offset = 0;  // within the call instruction, not behind it
};

[[nodiscard]] Frame make_raw_frame(Trace& trace, const RawFrame& raw);
// Nothing where the frame has symbols, or came from elsewhere.
[[nodiscard]] std::optional<RawFrame> raw_frame_of(const Trace& trace, const Frame& frame);

}  // namespace headroom::trace::internal
