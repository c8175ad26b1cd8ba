// Reads .hrt, our own format (docs/format/hrt.md). Nothing in a file is trusted: a checksum is
// looked at before its bytes, every reference is checked, and no size is believed that the file
// could not fill. What reading may cost at most is in docs/format/reading.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/trace/format_error.h"
#include "headroom/trace/progress.h"
#include "headroom/trace/trace.h"

namespace headroom::trace {

// Whether a file that starts like this is one of ours.
[[nodiscard]] bool is_hrt(std::span<const std::byte> start) noexcept;

struct HrtReadOptions {
  // Filled when something is missing: the end of a recording whose process died, for example.
  std::string* note = nullptr;
  Progress progress{};
  // Of the packed file that the bytes came out of, which bounds what they may take; 0: not packed.
  std::uint64_t file_bytes = 0;
};

[[nodiscard]] FormatResult<Trace> parse_hrt(std::span<const std::byte> file,
                                            const HrtReadOptions& options);
[[nodiscard]] FormatResult<Trace> parse_hrt(std::span<const std::byte> file,
                                            std::string* note = nullptr);

// One block, as its header describes it: what a program needs to go to a moment of a long file.
struct HrtBlock {
  std::string_view kind{};   // "events"
  std::uint64_t offset = 0;  // of the header
  std::uint64_t stored_bytes = 0;
  std::uint64_t raw_bytes = 0;
  int device = 0;
  int rank = 0;
  bool is_host = false;
  std::uint32_t count = 0;  // of its items: events, strings
  std::int64_t first_time_us = 0;
};

// From the index at the end, or by walking over the headers where there is none.
[[nodiscard]] FormatResult<std::vector<HrtBlock>> list_hrt_blocks(std::span<const std::byte> file);

}  // namespace headroom::trace
