// Values in JSON, the same in every command.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "headroom/memory/types.h"

#include "cli/output/spread.h"

namespace headroom::cli {

[[nodiscard]] inline nlohmann::json spread_json(const Spread& spread) {
  return {{"median", spread.median}, {"low", spread.low}, {"high", spread.high}};
}

// All categories, so that none has to be looked for.
[[nodiscard]] inline nlohmann::ordered_json categories_json(
    const std::array<std::uint64_t, memory::kCategoryCount>& bytes) {
  auto json = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    json[std::string(to_string(static_cast<memory::Category>(i)))] = bytes[i];
  }
  return json;
}

template <class T>
[[nodiscard]] nlohmann::json value_json(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

}  // namespace headroom::cli
