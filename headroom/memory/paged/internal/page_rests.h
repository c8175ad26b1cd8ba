// PageRests: the ends of steps that repeat themselves (Allocator::mark_step).
//
// Where pages lie when a step begins decides which of them it moves, and so where they lie when it
// ends. Left alone this wanders: of training runs some need another page after a hundred steps. So
// at the end of a step free pages go back to where they were at the end of an earlier one. The
// places map them still, as those that the step moves them to will, so nothing is asked of the
// device; and once a step creates no page, no later one does.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "headroom/memory/paged/internal/page_mover.h"

namespace headroom::memory::internal {

class PageRests {
 public:
  PageRests(StreamClocks& clocks, PageTable& table, PageSearch& search, PageMover& mover) noexcept
      : clocks_(clocks), table_(table), search_(search), mover_(mover) {}
  PageRests(const PageRests&) = delete;
  PageRests& operator=(const PageRests&) = delete;

  // Free pages go back to where they were at an earlier rest with the same blocks in use, and holes
  // into one order, so that what follows does not depend on what was before. May throw bad_alloc;
  // pages that could not go back are free all the same. Requires the allocator's lock.
  void rest();

 private:
  // Where every page was at home when a step ended.
  struct Rest {
    std::uint64_t blocks = 0;   // a fingerprint of those in use
    std::uint64_t version = 0;  // of the table's pages
    std::vector<PagePlace> homes{};
    std::vector<std::uint64_t> tops{};  // of the arenas
  };

  [[nodiscard]] std::uint64_t fingerprint_of_blocks() const;
  void remember(std::uint64_t blocks);
  void return_to(const Rest& rest);
  void order_holes();

  StreamClocks& clocks_;
  PageTable& table_;
  PageSearch& search_;
  PageMover& mover_;
  std::deque<Rest> rests_{};  // the newest last
};

}  // namespace headroom::memory::internal
