// Jobs on several threads, and decisions about them that do not depend on the threads.
//
// begin(i) and end(i) are called one at a time and always in one sequence, whoever is faster:
//
//   begin(0) ... begin(ahead - 1), end(0), begin(ahead), end(1), begin(ahead + 1), ...
//
// so what begin(i) knows is what end(0) to end(i - ahead) told, neither less nor more. Between the
// two, work(i) runs on any thread, beside others.
#pragma once

#include <cstddef>
#include <functional>

namespace headroom::replay::internal {

struct OrderedJobs {
  std::size_t count = 0;
  std::size_t ahead = 1;  // how many may be at work; at least 1
  std::function<void(std::size_t)> begin{};
  std::function<void(std::size_t)> work{};
  std::function<void(std::size_t)> end{};
  // On the calling thread, now and then, beside neither begin() nor end().
  std::function<void()> watch{};
};

// On the calling thread and up to threads - 1 others. What work() throws is thrown here, once all
// that was begun has ended.
void run_in_order(const OrderedJobs& jobs, int threads);

}  // namespace headroom::replay::internal
