// The header of a safetensors file as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "headroom/nn/safetensors.h"

namespace headroom::nn::internal {

inline constexpr std::uint64_t kLengthBytes = 8;
// The reference reader's limit.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

// "F32"; empty for none.
[[nodiscard]] std::string_view format_name(DType dtype) noexcept;

// The length and the JSON, padded with spaces so that the data is aligned to 8. Offsets of entries
// are set, from the start of the data.
[[nodiscard]] std::string header_text(const SafetensorsHeader& header);

}  // namespace headroom::nn::internal
