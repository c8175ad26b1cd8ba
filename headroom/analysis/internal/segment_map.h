// The segments of a device by address, while events are undone. An expandable segment is its mapped
// runs, as in a snapshot: ranges come and go, touching ones are one run.
#pragma once

#include <map>
#include <set>

#include "headroom/analysis/types.h"
#include "headroom/memory/types.h"

namespace headroom::analysis::internal {

class SegmentMap {
 public:
  using Segments = std::map<DeviceAddress, memory::SegmentInfo>;

  // False, and nothing done, where one stands already.
  bool add(const memory::SegmentInfo& segment);
  // False where there is none at this address.
  bool remove(DeviceAddress address);

  void add_range(const memory::SegmentInfo& range);
  // False where not all of it was there.
  bool remove_range(DeviceAddress address, std::uint64_t size_bytes);

  // An expandable run whose pool no event said; decided by what is found in it.
  [[nodiscard]] bool is_kind_known(DeviceAddress address) const {
    return !unknown_.contains(address);
  }

  [[nodiscard]] Segments& all() noexcept { return segments_; }

 private:
  Segments segments_;
  std::set<DeviceAddress> unknown_;
};

}  // namespace headroom::analysis::internal
