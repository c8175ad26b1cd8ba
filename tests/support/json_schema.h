// Checks JSON against the part of JSON Schema that docs/format uses.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace headroom::testing {

// Each mismatch as `/devices/0/name: is not a string`. Stricter than the standard in one way: a
// property that the schema does not name is a mismatch, because what we print must be documented.
// A keyword it does not know is one too.
[[nodiscard]] std::vector<std::string> schema_mismatches(const nlohmann::json& schema,
                                                         const nlohmann::json& value);

}  // namespace headroom::testing
