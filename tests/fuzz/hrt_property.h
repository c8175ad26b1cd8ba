// What must hold for any bytes given to the .hrt reader; the fuzzer and a test both check it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace headroom::trace::testing {

// What is wrong, or nothing: what can be read can be written, and reads the same then.
//
// Checksums and packing would keep a fuzzer from reaching what is behind them. So bytes that do not
// begin like a file are taken for blocks: kind, flags, count and length (two bytes each), body.
[[nodiscard]] std::optional<std::string> broken_hrt_property(std::span<const std::byte> bytes);

// A file's blocks in that form, for a corpus to start with.
[[nodiscard]] std::vector<std::byte> as_bare_blocks(std::span<const std::byte> file);

}  // namespace headroom::trace::testing
