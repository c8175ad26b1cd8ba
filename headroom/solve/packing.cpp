#include "headroom/solve/packing.h"

#include <algorithm>
#include <string>
#include <utility>

#include "headroom/base/checked.h"
#include "headroom/base/error.h"

namespace headroom::solve {

std::uint64_t height_of(std::span<const Buffer> buffers, const Offsets& offsets) {
  std::uint64_t height = 0;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].size_bytes > 0) height = std::max(height, offsets[i] + buffers[i].size_bytes);
  }
  return height;
}

std::uint64_t peak_load(std::span<const Buffer> buffers) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> starts;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ends;
  for (const Buffer& one : buffers) {
    starts.emplace_back(one.lower, one.size_bytes);
    ends.emplace_back(one.upper, one.size_bytes);
  }
  std::ranges::sort(starts);
  std::ranges::sort(ends);
  std::uint64_t load = 0;
  std::uint64_t peak = 0;
  std::size_t ended = 0;
  for (const auto& [time, size_bytes] : starts) {
    while (ended < ends.size() && ends[ended].first <= time) load -= ends[ended++].second;
    load += size_bytes;
    peak = std::max(peak, load);
  }
  return peak;
}

void check_buffers(std::span<const Buffer> buffers) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const Buffer& one = buffers[i];
    if (one.upper <= one.lower) {
      throw InvalidArgument("pack: buffer " + std::to_string(i) + " lives from " +
                            std::to_string(one.lower) + " to " + std::to_string(one.upper) +
                            "; its end must be later than its start");
    }
    if (one.alignment == 0) {
      throw InvalidArgument("pack: buffer " + std::to_string(i) + " has alignment 0; 1 is none");
    }
    sum = saturating_add(sum, saturating_add(one.size_bytes, one.alignment));
  }
  if (sum > kMostPackedBytes) {
    throw InvalidArgument("pack: the sizes add up to more than 2^62 bytes");
  }
}

}  // namespace headroom::solve
