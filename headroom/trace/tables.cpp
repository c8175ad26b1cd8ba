#include "headroom/trace/tables.h"

#include <algorithm>

namespace headroom::trace {
namespace {

std::uint64_t hash(std::span<const std::uint32_t> ids) noexcept {
  std::uint64_t out = 0xcbf29ce484222325;  // FNV-1a, a word at a time
  for (const std::uint32_t id : ids) out = (out ^ id) * 0x100000001b3;
  return out;
}

}  // namespace

StringTable::StringTable() { intern(""); }

StringId StringTable::intern(std::string_view text) {
  const auto found = ids_.find(text);
  if (found != ids_.end()) return found->second;
  const auto id = size();
  ids_.emplace(strings_.emplace_back(text), id);
  return id;
}

StackTable::StackTable() : starts_{0, 0} {}

StackId StackTable::intern(std::span<const Frame> frames) {
  const std::size_t start = ids_.size();
  for (const Frame& frame : frames) {
    const auto [at, is_new] = frame_ids_.try_emplace(frame, frame_count());
    if (is_new) frames_.push_back(frame);
    ids_.push_back(at->second);
  }
  const std::span<const std::uint32_t> added{ids_.data() + start, ids_.size() - start};
  const std::uint64_t key = hash(added);
  constexpr int kMostLooks = 8;  // few, whatever somebody did to make hashes collide
  int looks = 0;
  for (auto at = stacks_by_hash_.lower_bound(key);
       at != stacks_by_hash_.end() && at->first == key && looks < kMostLooks;
       ++at, ++looks) {
    if (!std::ranges::equal(frame_ids(at->second), added)) continue;
    ids_.resize(start);
    return at->second;
  }
  const StackId id = size();
  starts_.push_back(ids_.size());
  stacks_by_hash_.emplace(key, id);
  return id;
}

std::span<const std::uint32_t> StackTable::frame_ids(StackId id) const {
  return {ids_.data() + starts_[id], starts_[id + 1] - starts_[id]};
}

}  // namespace headroom::trace
