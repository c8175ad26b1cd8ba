// A Spread in JSON, the same in every measurement.
#pragma once

#include <nlohmann/json.hpp>

#include "cli/spread.h"

namespace headroom::cli {

[[nodiscard]] inline nlohmann::json spread_json(const Spread& spread) {
  return {{"median", spread.median}, {"low", spread.low}, {"high", spread.high}};
}

}  // namespace headroom::cli
