// ThreadTally: what one thread allocated and freed without the lock since its tally was last folded
// into the allocator's statistics.
//
// A quantity moves by itself between two folds, so its peak is the fold's starting point plus the
// most it moved: exact while nobody else moves the same statistics. When several threads do, each
// may be ahead of what is known by as much as it has moved. So a tally says no when a quantity
// would get more than 64 KiB above its starting point or below its own peak; then the thread takes
// the lock and folds. A peak is then wrong by at most 64 KiB a thread, either way.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "headroom/base/bytes.h"
#include "headroom/base/checked.h"
#include "headroom/memory/types.h"

namespace headroom::memory::internal {

inline constexpr std::int64_t kMostUnfolded = 64_KiB;

// How a quantity moved since the last fold: what came, what went, and where it was at most. (Where
// it is now is not kept: a store more in every allocation.)
struct Movement {
  std::int64_t came = 0;
  std::int64_t went = 0;
  std::int64_t most = 0;

  [[nodiscard]] bool is_none() const noexcept { return (came | went) == 0; }
  [[nodiscard]] std::int64_t now() const noexcept { return came - went; }
  [[nodiscard]] bool may_rise(std::int64_t by) const noexcept {
    return now() + by <= kMostUnfolded;
  }
  [[nodiscard]] bool may_fall(std::int64_t by) const noexcept {
    return most - now() + by <= kMostUnfolded;
  }
  void rise(std::int64_t by) noexcept {
    came += by;
    if (now() > most) [[unlikely]] {
      most = now();
    }
  }
  void fall(std::int64_t by) noexcept { went += by; }
};

// A block as the statistics see it.
struct TallyBlock {
  std::int64_t size = 0;
  std::int64_t requested = 0;
  Category category = Category::kUnknown;

  // Of the size asked for, in multiples of 512.
  [[nodiscard]] std::int64_t live() const noexcept {
    constexpr auto kStep = static_cast<std::int64_t>(kMinBlockBytes);
    return (requested + kStep - 1) & -kStep;
  }
};

struct ThreadTally {
  Movement blocks{};  // allocation and active; the others are bytes
  Movement allocated{};
  Movement requested{};
  Movement live{};
  std::array<Movement, kCategoryCount> categories{};
  // Nobody else can have moved the statistics meanwhile.
  bool is_alone = true;

  [[nodiscard]] bool is_empty() const noexcept { return blocks.is_none(); }

  // Whether the block can be counted; if not, fold first.
  [[nodiscard]] bool may_add(const TallyBlock& block) const noexcept {
    return allocated.may_rise(block.size) && requested.may_rise(block.requested) &&
           live.may_rise(block.live()) && of(block.category).may_rise(block.size);
  }
  [[nodiscard]] bool may_remove(const TallyBlock& block) const noexcept {
    return allocated.may_fall(block.size) && requested.may_fall(block.requested) &&
           live.may_fall(block.live()) && of(block.category).may_fall(block.size);
  }
  void add(const TallyBlock& block) noexcept {
    blocks.rise(1);
    allocated.rise(block.size);
    requested.rise(block.requested);
    live.rise(block.live());
    categories[static_cast<std::size_t>(block.category)].rise(block.size);
  }
  void remove(const TallyBlock& block) noexcept {
    blocks.fall(1);
    allocated.fall(block.size);
    requested.fall(block.requested);
    live.fall(block.live());
    categories[static_cast<std::size_t>(block.category)].fall(block.size);
  }

 private:
  [[nodiscard]] const Movement& of(Category category) const noexcept {
    return categories[static_cast<std::size_t>(category)];
  }
};

}  // namespace headroom::memory::internal
