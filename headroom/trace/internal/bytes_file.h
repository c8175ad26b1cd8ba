// Whole files, read in one piece.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "headroom/trace/internal/buffer.h"

namespace headroom::trace::internal {

// Up to the end, whatever size the file says it has; a file that does not begin like a recording is
// left after its first bytes. Throws Failure and Error; the message does not name the file.
[[nodiscard]] Buffer read_whole(const std::string& path);

// By its first bytes, once unpacked. Throws Failure.
void refuse_what_is_no_recording(std::span<const std::byte> start);

}  // namespace headroom::trace::internal
