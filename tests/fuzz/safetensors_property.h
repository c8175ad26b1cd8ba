// What must hold for any bytes given to the safetensors reader; the fuzzer and a test both check
// it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace headroom::nn::testing {

// What is wrong, or nothing: tensors lie side by side in the data, what can be read can be written
// and reads the same then, and a refusal has words and a place in the file.
//
// A length that does not fit would keep a fuzzer from reaching the JSON behind it. So bytes that do
// not begin like a file are taken for two bytes of the size of the data, then JSON.
[[nodiscard]] std::optional<std::string> broken_safetensors_property(
    std::span<const std::byte> bytes);

}  // namespace headroom::nn::testing
