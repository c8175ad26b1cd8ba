#include "headroom/replay/pool_floor.h"

#include <algorithm>
#include <vector>

#include "headroom/base/checked.h"

namespace headroom::replay {
namespace {

class PoolBooks {
 public:
  explicit PoolBooks(const Program& program)
      : held_(program.slot_count), live_(program.pools.size()), most_(program.pools.size()) {}

  void add(std::uint32_t slot, std::uint64_t size_bytes, std::size_t pool) {
    const std::uint64_t bytes = round_up(size_bytes, memory::kMinBlockBytes);
    held_[slot] = {.bytes = bytes, .pool = pool};
    live_[pool] += bytes;
    if (pool != 0 && live_[pool] > most_[pool]) {
      of_pools_ += live_[pool] - most_[pool];
      most_[pool] = live_[pool];
    }
    floor_ = std::max(floor_, live_[0] + of_pools_);
  }

  void remove(std::uint32_t slot) {
    live_[held_[slot].pool] -= held_[slot].bytes;
    held_[slot] = {};
  }

  [[nodiscard]] std::uint64_t floor() const noexcept { return floor_; }

 private:
  struct Held {
    std::uint64_t bytes = 0;
    std::size_t pool = 0;
  };

  std::vector<Held> held_;           // by slot
  std::vector<std::uint64_t> live_;  // by pool, 0 being the memory outside
  std::vector<std::uint64_t> most_;
  std::uint64_t of_pools_ = 0;  // the sum of most_
  std::uint64_t floor_ = 0;
};

}  // namespace

std::uint64_t pool_floor_bytes(const Program& program) {
  PoolBooks books(program);
  for (const StartSlot& start : program.start_slots)
    books.add(start.slot, start.requested_bytes, 0);
  for (const Op& op : program.ops) {
    switch (op.kind) {
      case OpKind::kAllocate:
        books.add(op.slot, op.size_bytes, op.pool);
        break;
      case OpKind::kFree:
      case OpKind::kComplete:
        books.remove(op.slot);
        break;
      case OpKind::kFreeHeld:
      case OpKind::kFailed:
      case OpKind::kEmptyCache:
        break;
    }
  }
  return std::max(books.floor(), program.peak_live);
}

}  // namespace headroom::replay
