// Values in JSON, the same in every command.
#pragma once

#include <optional>

#include <nlohmann/json.hpp>

#include "cli/output/spread.h"

namespace headroom::cli {

[[nodiscard]] inline nlohmann::json spread_json(const Spread& spread) {
  return {{"median", spread.median}, {"low", spread.low}, {"high", spread.high}};
}

template <class T>
[[nodiscard]] nlohmann::json value_json(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

}  // namespace headroom::cli
