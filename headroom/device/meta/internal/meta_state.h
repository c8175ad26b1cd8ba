// A MetaState made into a ledger and its gaps, and the way back.
#pragma once

#include <vector>

#include "headroom/device/internal/gap_map.h"
#include "headroom/device/internal/ledger.h"
#include "headroom/device/meta/meta_device.h"

namespace headroom::device::internal {

struct RebuiltState {
  Ledger ledger;
  GapMap gaps;
  std::vector<RestoredPages> restored{};
};

// The memory of `state` on top of `ledger` and `gaps`, which hold nothing yet. Its handles are new:
// those of the state may be of another process.
[[nodiscard]] DeviceResult<RebuiltState> rebuild(const MetaState& state,
                                                 Ledger ledger,
                                                 GapMap gaps);

// The memory that is in the ledger, in order of address; no streams.
[[nodiscard]] MetaState describe(const Ledger& ledger);

}  // namespace headroom::device::internal
