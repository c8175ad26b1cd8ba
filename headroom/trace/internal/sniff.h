// The format of a file, by its beginning.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace headroom::trace::internal {

// The reading formats; the others are never read.
enum class Content { kPickle, kHrt, kOther };

[[nodiscard]] Content content_of(std::span<const std::byte> bytes) noexcept;

// For kOther: a sentence on what the file seems to be, and what to do instead.
[[nodiscard]] std::string describe_other(std::span<const std::byte> bytes);

}  // namespace headroom::trace::internal
