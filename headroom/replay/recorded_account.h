// The account of one moment of a recording, from what it says: no allocator is run.
#pragma once

#include <cstdint>
#include <optional>

#include "headroom/analysis/category_rules.h"
#include "headroom/analysis/index.h"
#include "headroom/memory/account.h"

namespace headroom::replay {

struct AccountRequest {
  std::uint32_t position = 0;  // of the index: between two events
  // A recording knows neither; without a card the account ends with what was reserved and, where
  // a failure says so, what was free then.
  std::optional<std::uint64_t> card_bytes{};
  std::optional<std::uint64_t> limit_bytes{};
  analysis::CategoryRules rules{};  // of a user, who knows better
};

// The lines of the blocks and segments at a position add up to what was reserved there, to the
// byte. Directly behind an `oom` event, the request that failed is in it.
[[nodiscard]] memory::Account recorded_account(const analysis::TraceIndex& index,
                                               const AccountRequest& request);

// The account of a replay at that position with what its allocator cannot know and the recording
// says: what the live blocks are, and whose. As it was where they are not the same blocks.
[[nodiscard]] memory::Account with_holders(memory::Account account,
                                           const analysis::TraceIndex& index,
                                           std::uint32_t position,
                                           const analysis::CategoryRules& rules = {});

}  // namespace headroom::replay
