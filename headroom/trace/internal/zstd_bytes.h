// zstd around a file. What a file says about its unpacked size is not believed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "headroom/base/bytes.h"
#include "headroom/trace/internal/buffer.h"
#include "headroom/trace/progress.h"

namespace headroom::trace::internal {

// Recordings unpack to 10 to 40 times their size, so what goes far beyond is made to fill memory.
inline constexpr std::uint64_t kMaxUnpackedRatio = 256;
inline constexpr std::uint64_t kAlwaysUnpackedBytes = 16_MiB;  // whatever the ratio
inline constexpr std::uint64_t kMaxUnpackedBytes = 64_GiB;

[[nodiscard]] bool is_zstd(std::span<const std::byte> bytes) noexcept;

// All frames, one behind the other. `check` sees the bytes unpacked first and throws to refuse
// them. Throws Failure, with the offset in the packed bytes.
[[nodiscard]] Buffer unpack_zstd(std::span<const std::byte> packed,
                                 const std::function<void(std::span<const std::byte>)>& check,
                                 const Progress& progress);

// Gives the packed bytes piece by piece. Throws Failure, and what `write` throws.
void pack_zstd(std::span<const std::byte> bytes,
               const std::function<void(std::span<const std::byte>)>& write);

}  // namespace headroom::trace::internal
