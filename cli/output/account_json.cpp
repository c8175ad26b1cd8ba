#include "cli/output/account_json.h"

#include <string>

namespace headroom::cli {

nlohmann::ordered_json account_json(const memory::Account& account) {
  nlohmann::ordered_json json;
  json["total_bytes"] = account.total_bytes;
  json["lines"] = {{"live_bytes", account.live()},
                   {"rounding_bytes", account.rounding_bytes},
                   {"pending_bytes", account.pending_bytes},
                   {"cached_stream_bytes", account.cached_stream_bytes},
                   {"cached_hard_bytes", account.cached_hard_bytes},
                   {"cached_soft_bytes", account.cached_soft_bytes},
                   {"outside_bytes", account.outside_bytes},
                   {"other_processes_bytes", account.other_processes_bytes},
                   {"free_bytes", account.free_bytes}};
  for (std::size_t i = 0; i < memory::kCategoryCount; ++i) {
    const auto category = static_cast<memory::Category>(i);
    json["live"][std::string(to_string(category))] = account.live_bytes[i];
  }
  json["reserved_bytes"] = account.reserved();
  json["limit_bytes"] = nullptr;
  const bool is_exact = !account.limit_below_bytes;
  if (account.limit_bytes && is_exact) json["limit_bytes"] = *account.limit_bytes;
  json["largest_cached_bytes"] = account.largest_cached_bytes;
  return json;
}

}  // namespace headroom::cli
