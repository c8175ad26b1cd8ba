#include "benchmarks/bench_threads.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "headroom/base/env.h"
#include "headroom/base/error.h"

namespace headroom::cli {

int bench_threads() {
  const auto asked = env_int("HEADROOM_THREADS", 1, 256);
  if (!asked) throw InvalidArgument(asked.error());
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return *asked ? static_cast<int>(**asked) : std::max(cores, 1);
}

void let_threads_rest() { std::this_thread::sleep_for(std::chrono::milliseconds(40)); }

}  // namespace headroom::cli
