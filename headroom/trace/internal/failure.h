// How the depths of a reader give up: they throw this, and the reader's one public function turns
// it into the FormatError it returns. No other function has to pass errors on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "headroom/trace/format_error.h"

namespace headroom::trace::internal {

struct Failure {
  FormatError error{};
};

[[noreturn]] inline void fail(std::string message, std::optional<std::uint64_t> offset = {}) {
  throw Failure{{.message = std::move(message), .offset = offset}};
}

}  // namespace headroom::trace::internal
