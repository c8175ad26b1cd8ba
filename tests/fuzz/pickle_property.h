// What must hold for any bytes given to the pickle reader; the fuzzer and a test both check it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace headroom::trace::testing {

// What is wrong, or nothing: what can be read can be written, and reads the same then.
[[nodiscard]] std::optional<std::string> broken_pickle_property(std::span<const std::byte> bytes);

}  // namespace headroom::trace::testing
