#include "headroom/replay/async_pool_model.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/base/checked.h"

namespace headroom::replay {
namespace {

constexpr std::uint64_t kGrowthBytes = 32_MiB;  // every measured peak is a multiple of it
constexpr std::uint64_t kNothing = UINT64_MAX;

// A range that grows at its end; offsets instead of addresses.
class Arena {
 public:
  explicit Arena(std::uint64_t limit) : limit_(limit) {}

  // The offset, or kNothing.
  std::uint64_t take(std::uint64_t size) {
    const auto found = by_size_.lower_bound({size, 0});
    if (found != by_size_.end()) return take_from(found->second, found->first, size);
    const std::uint64_t tail = tail_bytes();
    const std::uint64_t more = round_up(size - tail, kGrowthBytes);
    if (more > limit_ - std::min(limit_, end_)) return kNothing;
    add(end_, more);
    end_ += more;
    ++grown_;
    const auto last = std::prev(by_offset_.end());
    return take_from(last->first, last->second, size);
  }

  void give_back(std::uint64_t offset, std::uint64_t size) { add(offset, size); }

  [[nodiscard]] std::uint64_t reserved() const noexcept { return end_; }
  [[nodiscard]] std::uint64_t grown() const noexcept { return grown_; }

 private:
  [[nodiscard]] std::uint64_t tail_bytes() const {
    if (by_offset_.empty()) return 0;
    const auto last = std::prev(by_offset_.end());
    return last->first + last->second == end_ ? last->second : 0;
  }

  std::uint64_t take_from(std::uint64_t offset, std::uint64_t free, std::uint64_t size) {
    remove(offset, free);
    if (free > size) insert(offset + size, free - size);
    return offset;
  }

  void insert(std::uint64_t offset, std::uint64_t size) {
    by_offset_.emplace(offset, size);
    by_size_.emplace(size, offset);
  }

  void remove(std::uint64_t offset, std::uint64_t size) {
    by_offset_.erase(offset);
    by_size_.erase({size, offset});
  }

  // Joined with the free neighbours.
  void add(std::uint64_t offset, std::uint64_t size) {
    auto next = by_offset_.lower_bound(offset);
    if (next != by_offset_.end() && offset + size == next->first) {
      const auto [at, bytes] = *next;
      size += bytes;
      remove(at, bytes);
      next = by_offset_.lower_bound(offset);
    }
    if (next != by_offset_.begin()) {
      const auto [at, bytes] = *std::prev(next);
      if (at + bytes == offset) {
        remove(at, bytes);
        offset = at;
        size += bytes;
      }
    }
    insert(offset, size);
  }

  std::uint64_t limit_;
  std::uint64_t end_ = 0;
  std::uint64_t grown_ = 0;
  std::map<std::uint64_t, std::uint64_t> by_offset_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;
};

class PoolPlayer {
 public:
  PoolPlayer(const Program& program, std::uint64_t limit)
      : program_(program), arena_(limit), slots_(program.slot_count) {}

  AsyncPoolResult run() {
    for (const StartSlot& start : program_.start_slots) {
      allocate(start.slot, start.requested_bytes, 0);
    }
    for (std::size_t i = 0; i < program_.ops.size(); ++i) step(program_.ops[i], i);
    out_.grown = arena_.grown();
    return out_;
  }

 private:
  struct Slot {
    std::uint64_t offset = kNothing;
    std::uint64_t size = 0;
    std::uint64_t requested = 0;  // 0 once it was freed
  };

  void step(const Op& op, std::size_t i) {
    switch (op.kind) {
      case OpKind::kAllocate:
        allocate(op.slot, op.size_bytes, i);
        break;
      case OpKind::kFree:
      case OpKind::kComplete:
        free(op.slot);
        break;
      case OpKind::kFailed: {
        Slot request;
        if (take(request, op.size_bytes, i)) {
          ++out_.recorded_ooms_served;
          give_back(request);
        }
        break;
      }
      case OpKind::kFreeHeld:
        let_go(slots_[op.slot]);
        break;
      case OpKind::kEmptyCache:  // PyTorch trims the pool; a peak is not moved by that
        break;
    }
  }

  void allocate(std::uint32_t slot, std::uint64_t size, std::size_t op) {
    (void)take(slots_[slot], size, op);
  }

  bool take(Slot& slot, std::uint64_t size, std::size_t op) {
    slot.size = round_up(std::max<std::uint64_t>(size, 1), memory::kMinBlockBytes);
    slot.requested = 0;
    slot.offset = arena_.take(slot.size);
    if (slot.offset == kNothing) {
      ++out_.ooms;
      out_.fits = false;
      return false;
    }
    slot.requested = size;
    allocated_ += size;
    live_ += slot.size;
    out_.peak_live = std::max(out_.peak_live, live_);
    out_.peak_allocated = std::max(out_.peak_allocated, allocated_);
    if (arena_.reserved() > out_.peak_reserved) {
      out_.peak_reserved = arena_.reserved();
      out_.peak_op = op;
    }
    return true;
  }

  void free(std::uint32_t slot) { give_back(slots_[slot]); }

  void give_back(Slot& slot) {
    if (slot.offset == kNothing) return;
    let_go(slot);
    live_ -= slot.size;
    arena_.give_back(slot.offset, slot.size);
    slot = {};
  }

  // Nobody holds it any more, though a stream may still use it.
  void let_go(Slot& slot) { allocated_ -= std::exchange(slot.requested, 0); }

  const Program& program_;
  Arena arena_;
  std::vector<Slot> slots_;
  std::uint64_t allocated_ = 0;
  std::uint64_t live_ = 0;
  AsyncPoolResult out_;
};

}  // namespace

AsyncPoolResult model_async_pool(const Program& program, std::optional<std::uint64_t> limit_bytes) {
  return PoolPlayer(program, limit_bytes.value_or(std::uint64_t{1} << 60U)).run();
}

}  // namespace headroom::replay
