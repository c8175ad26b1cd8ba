// ThreadTally: what one thread allocated and freed without the lock since its tally was last folded
// into the allocator's statistics.
//
// The peak of a quantity is its value at the last fold plus the most that the tally added since.
// That is exact while one thread changes the statistics. With several threads, each knows changes
// that the others do not see yet. So a tally refuses a change that would take a quantity more than
// 64 KiB above its value at the last fold, or below its own peak; the thread then takes the lock
// and folds. So a peak is wrong by at most 64 KiB per thread, in either direction.
#pragma once

#include <algorithm>
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
  [[nodiscard]] std::int64_t fallen() const noexcept { return most - now(); }
  [[nodiscard]] bool may_rise(std::int64_t by) const noexcept {
    return now() + by <= kMostUnfolded;
  }
  [[nodiscard]] bool may_fall(std::int64_t by) const noexcept {
    return fallen() + by <= kMostUnfolded;
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
  // No quantity of bytes, of all categories and of this one, is farther above its starting point or
  // below its peak than this. Only for try_add and try_remove: a thread that is alone needs
  // neither, and is folded before it does.
  Category bounded = Category::kUnknown;
  std::int64_t above = 0;
  std::int64_t below = 0;

  [[nodiscard]] bool is_empty() const noexcept { return blocks.is_none(); }

  // Counts the block if that can wait for the next fold. The bounds say so nearly always.
  [[nodiscard]] bool try_add(const TallyBlock& block) noexcept {
    if (block.category != bounded || above + block.size > kMostUnfolded) [[unlikely]] {
      if (!may_add(block)) return false;
    }
    above += block.size;
    below = std::max<std::int64_t>(below - block.requested, 0);
    add(block);
    return true;
  }
  [[nodiscard]] bool try_remove(const TallyBlock& block) noexcept {
    if (block.category != bounded || below + block.size > kMostUnfolded) [[unlikely]] {
      if (!may_remove(block)) return false;
    }
    above -= block.requested;
    below += block.size;
    remove(block);
    return true;
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
  // Exactly, and the bounds are set to what they are. By value and not inlined: so the usual path
  // keeps the block in registers.
  [[nodiscard, gnu::noinline]] bool may_add(TallyBlock block) noexcept {
    const Movement& category = set_bounds(block.category);
    return allocated.may_rise(block.size) && requested.may_rise(block.requested) &&
           live.may_rise(block.live()) && category.may_rise(block.size);
  }
  [[nodiscard, gnu::noinline]] bool may_remove(TallyBlock block) noexcept {
    const Movement& category = set_bounds(block.category);
    return allocated.may_fall(block.size) && requested.may_fall(block.requested) &&
           live.may_fall(block.live()) && category.may_fall(block.size);
  }
  const Movement& set_bounds(Category category) noexcept {
    const Movement& own = categories[static_cast<std::size_t>(category)];
    bounded = category;
    above = std::max({allocated.now(), requested.now(), live.now(), own.now()});
    below = std::max({allocated.fallen(), requested.fallen(), live.fallen(), own.fallen()});
    return own;
  }
};

}  // namespace headroom::memory::internal
