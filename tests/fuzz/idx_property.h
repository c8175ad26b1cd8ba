// What must hold for any bytes given to the IDX reader; the fuzzer and a test both check it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace headroom::nn::testing {

// What is wrong, or nothing: the elements fill the file behind the header, as many as the sizes
// say, and a refusal has words and a place in the file.
[[nodiscard]] std::optional<std::string> broken_idx_property(std::span<const std::byte> bytes);

}  // namespace headroom::nn::testing
