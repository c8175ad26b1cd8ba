// An account for programs, the same in every command that has one.
//
//   {"total_bytes": 268435456,
//    "lines": {"live_bytes": 0, ..., "free_bytes": 268435456},    these add up to total_bytes
//    "live": {"unknown": 0, "parameter": 0, ...},                 these to lines.live_bytes
//    "reserved_bytes": 0, "limit_bytes": null, "largest_cached_bytes": 0}
#pragma once

#include <nlohmann/json.hpp>

#include "headroom/memory/account.h"

namespace headroom::cli {

[[nodiscard]] nlohmann::ordered_json account_json(const memory::Account& account);

}  // namespace headroom::cli
