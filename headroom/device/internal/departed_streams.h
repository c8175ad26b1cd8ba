// DepartedStreams: streams that were released and whose work is over. Blocks go on naming them, so
// a device still knows the last thousands as streams of its own, and forgets the others.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>

#include "headroom/device/types.h"

namespace headroom::device::internal {

class DepartedStreams {
 public:
  static constexpr std::size_t kRemembered = 4096;

  // Returns the stream that is to be forgotten for this one, once there are so many.
  [[nodiscard]] std::optional<StreamId> add(StreamId stream) {
    streams_.push_back(stream);
    if (streams_.size() <= kRemembered) return std::nullopt;
    const StreamId oldest = streams_.front();
    streams_.pop_front();
    return oldest;
  }

 private:
  std::deque<StreamId> streams_;
};

}  // namespace headroom::device::internal
