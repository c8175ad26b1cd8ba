#include "headroom/solve/internal/part.h"

#include <algorithm>
#include <utility>

namespace headroom::solve::internal {
namespace {

Part make_part(std::span<const Buffer> buffers, std::vector<std::size_t> indices) {
  std::vector<std::uint64_t> times;
  std::vector<Buffer> members;
  for (const std::size_t i : indices) {
    times.push_back(buffers[i].lower);
    times.push_back(buffers[i].upper);
    members.push_back(buffers[i]);
  }
  std::ranges::sort(times);
  times.erase(std::unique(times.begin(), times.end()), times.end());
  const auto rank = [&](std::uint64_t time) {
    return static_cast<std::uint32_t>(std::ranges::lower_bound(times, time) - times.begin());
  };
  Part part;
  part.moments = static_cast<std::uint32_t>(times.size());
  part.peak_load = peak_load(members);
  for (const Buffer& one : members) {
    part.items.push_back({.lower = rank(one.lower),
                          .upper = rank(one.upper),
                          .size = one.size_bytes,
                          .alignment = one.alignment});
  }
  part.buffers = std::move(indices);
  return part;
}

}  // namespace

std::vector<Part> split_into_parts(std::span<const Buffer> buffers) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].size_bytes > 0) order.push_back(i);
  }
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return buffers[i].lower; });
  std::vector<Part> parts;
  std::vector<std::size_t> members;
  std::uint64_t end = 0;
  for (const std::size_t i : order) {
    if (!members.empty() && buffers[i].lower >= end) {
      parts.push_back(make_part(buffers, std::exchange(members, {})));
    }
    end = members.empty() ? buffers[i].upper : std::max(end, buffers[i].upper);
    members.push_back(i);
  }
  if (!members.empty()) parts.push_back(make_part(buffers, std::move(members)));
  return parts;
}

}  // namespace headroom::solve::internal
