// The method. For each level a working set is chosen that fits the level and not the one above:
//
//   latency     One thread of the whole card follows pointers, each load waiting for the one
//   before. bandwidth   1,024 threads a multiprocessor read the set again and again, 64 bytes in
//   flight
//               each.
//
// The loads bypass the L1 cache, so that a small set shows the L2 cache. Global memory is read over
// a set of 32 times the L2 cache, so that little of it is found there; each launch of the chase
// goes on where the last ended. Time is the driver's, between two events. Each number is the best
// of several launches after one that warms up. Registers have no loads to time.
#include "headroom/device/cuda/internal/measure.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <optional>

#include "headroom/base/bytes.h"
#include "headroom/base/checked.h"
#include "headroom/device/cuda/internal/kernels.h"

namespace headroom::device::internal {
namespace {

constexpr int kLaunches = 4;
constexpr unsigned kThreads = 512;  // of a block; two blocks a multiprocessor
constexpr unsigned kSharedThreads = 1024;
constexpr std::uint64_t kLineBytes = 128;
constexpr std::uint64_t kThreadBytes = 64;  // what a thread reads in one step
constexpr std::uint64_t kCursorBytes = 256;

struct Launch {
  const char* kernel = "";
  unsigned blocks = 1;
  unsigned threads = 1;
};

// The kernels, a stream and two events, for as long as the measurement takes.
class Bench {
 public:
  explicit Bench(CudaContext& context) noexcept : context_(context), driver_(context.driver()) {}
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  ~Bench() {
    if (start_ != nullptr) (void)driver_.cuEventDestroy(start_);
    if (stop_ != nullptr) (void)driver_.cuEventDestroy(stop_);
    if (stream_ != nullptr) (void)driver_.cuStreamDestroy(stream_);
    if (module_ != nullptr) (void)driver_.cuModuleUnload(module_);
  }

  DeviceResult<void> load() {
    auto done =
        context_.call(driver_.cuModuleLoadData, &module_, static_cast<const void*>(kCudaKernels));
    if (done) {
      done = context_.call(
          driver_.cuStreamCreateWithPriority, &stream_, unsigned{CU_STREAM_NON_BLOCKING}, 0);
    }
    if (done) done = context_.call(driver_.cuEventCreate, &start_, unsigned{CU_EVENT_DEFAULT});
    if (done) done = context_.call(driver_.cuEventCreate, &stop_, unsigned{CU_EVENT_DEFAULT});
    return done;
  }

  template <class... Parameters>
  DeviceResult<void> run(const Launch& launch, Parameters... parameters) {
    CUfunction function = nullptr;
    auto done = context_.call(driver_.cuModuleGetFunction, &function, module_, launch.kernel);
    std::array<void*, sizeof...(Parameters)> addresses{static_cast<void*>(&parameters)...};
    if (done) done = context_.call(driver_.cuEventRecord, start_, stream_);
    if (done) {
      done = context_.call(driver_.cuLaunchKernel,
                           function,
                           launch.blocks,
                           1U,
                           1U,
                           launch.threads,
                           1U,
                           1U,
                           0U,
                           stream_,
                           addresses.data(),
                           static_cast<void**>(nullptr));
    }
    if (done) done = context_.call(driver_.cuEventRecord, stop_, stream_);
    if (done) done = context_.call(driver_.cuEventSynchronize, stop_);
    return done;
  }

  // The seconds of the quickest launch.
  template <class... Parameters>
  DeviceResult<double> time(const Launch& launch, Parameters... parameters) {
    double best = std::numeric_limits<double>::max();
    for (int i = 0; i <= kLaunches; ++i) {
      auto done = run(launch, parameters...);
      float milliseconds = 0;
      if (done) done = context_.call(driver_.cuEventElapsedTime, &milliseconds, start_, stop_);
      if (!done) return Unexpected(done.error());
      if (i > 0) best = std::min(best, double{milliseconds} / 1e3);
    }
    return best;
  }

  DeviceResult<void> set(DeviceAddress at, std::uint64_t value) {
    auto done = context_.call(driver_.cuMemcpyHtoDAsync,
                              CUdeviceptr{at},
                              static_cast<const void*>(&value),
                              sizeof value,
                              stream_);
    if (done) done = context_.call(driver_.cuStreamSynchronize, stream_);
    return done;
  }

 private:
  CudaContext& context_;
  const CudaDriver& driver_;
  CUmodule module_ = nullptr;
  CUstream stream_ = nullptr;
  CUevent start_ = nullptr;
  CUevent stop_ = nullptr;
};

struct Card {
  unsigned multiprocessors = 1;
  std::uint64_t l2_bytes = 0;

  [[nodiscard]] unsigned blocks() const noexcept { return 2 * multiprocessors; }
  // The bytes that all threads read in one step.
  [[nodiscard]] std::uint64_t step_bytes() const noexcept {
    return std::uint64_t{blocks()} * kThreads * kThreadBytes;
  }
};

std::uint64_t l2_bytes(const std::vector<MemoryLevel>& levels) noexcept {
  const auto found = std::find_if(
      levels.begin(), levels.end(), [](const MemoryLevel& level) { return level.name == "L2"; });
  return found == levels.end() ? 0 : found->size_bytes;
}

DeviceResult<LevelSpeed> measure_shared(Bench& bench, const Card& card, DeviceAddress out) {
  constexpr std::uint32_t kSteps = 1U << 19U;
  constexpr std::uint32_t kMeasuredRounds = 1U << 13U;
  const auto chased = bench.time({.kernel = "shared_chase"}, kSteps, out);
  if (!chased) return Unexpected(chased.error());
  const auto read =
      bench.time({"shared_read", card.blocks(), kSharedThreads}, kMeasuredRounds, out);
  if (!read) return Unexpected(read.error());
  const double bytes = 32.0 * kMeasuredRounds * kSharedThreads * card.blocks();
  return LevelSpeed{.read_bytes_per_second = bytes / *read, .latency_ns = *chased * 1e9 / kSteps};
}

// `set` holds both working sets; `read_bytes` is a multiple of the step, `chased_bytes` a power of
// two. Pointers are followed for `steps` lines a launch.
DeviceResult<LevelSpeed> measure_set(Bench& bench,
                                     const Card& card,
                                     DeviceAddress set,
                                     std::uint64_t read_bytes,
                                     std::uint64_t chased_bytes,
                                     std::uint32_t steps,
                                     DeviceAddress cursor) {
  const std::uint64_t lines = chased_bytes / kLineBytes;
  if (auto linked = bench.run({"link", card.blocks(), kThreads}, set, lines); !linked) {
    return Unexpected(linked.error());
  }
  if (auto placed = bench.set(cursor, set); !placed) return Unexpected(placed.error());
  const auto chased = bench.time({.kernel = "chase"}, cursor, steps);
  if (!chased) return Unexpected(chased.error());
  const auto rounds = static_cast<std::uint32_t>(std::max<std::uint64_t>(1, 8_GiB / read_bytes));
  const auto read =
      bench.time({"read", card.blocks(), kThreads}, set, read_bytes, rounds, cursor + 128);
  if (!read) return Unexpected(read.error());
  return LevelSpeed{.read_bytes_per_second = static_cast<double>(read_bytes) * rounds / *read,
                    .latency_ns = *chased * 1e9 / steps};
}

DeviceResult<std::optional<LevelSpeed>> measure_level(Bench& bench,
                                                      const Card& card,
                                                      const MemoryLevel& level,
                                                      CudaWorkspace space) {
  const DeviceAddress cursor = space.address + space.size_bytes - kCursorBytes;
  const std::uint64_t usable = space.size_bytes - kCursorBytes;
  const std::uint64_t step = card.step_bytes();
  DeviceResult<LevelSpeed> speed = LevelSpeed{};
  if (level.name == "shared memory") {
    speed = measure_shared(bench, card, cursor);
  } else if (level.name == "L2" && step <= std::min(level.size_bytes * 3 / 4, usable)) {
    const std::uint64_t read =
        std::max(round_down(std::min(level.size_bytes / 3, usable), step), step);
    const std::uint64_t chased = std::bit_floor(std::min(level.size_bytes / 4, usable));
    const auto steps =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(chased / kLineBytes, 1U << 17U));
    speed = measure_set(bench, card, space.address, read, chased, steps, cursor);
  } else if (level.name == "global memory" && usable >= std::max(4 * card.l2_bytes, step)) {
    const std::uint64_t chased = std::bit_floor(usable);
    speed = measure_set(
        bench, card, space.address, round_down(usable, step), chased, 1U << 15U, cursor);
  } else {
    return std::optional<LevelSpeed>{};
  }
  if (!speed) return Unexpected(speed.error());
  return std::optional(*speed);
}

}  // namespace

std::uint64_t wanted_workspace_bytes(const std::vector<MemoryLevel>& levels) noexcept {
  return std::clamp<std::uint64_t>(std::bit_ceil(32 * l2_bytes(levels)), 256_MiB, 4_GiB) + 2_MiB;
}

DeviceResult<std::vector<MemoryLevel>> measure_cuda_levels(CudaContext& context,
                                                           std::vector<MemoryLevel> levels,
                                                           CudaWorkspace workspace) {
  const CudaScope scope(context, CaptureMode::kRelaxed);
  if (!scope) return scope.error();
  Bench bench(context);
  if (auto loaded = bench.load(); !loaded) return Unexpected(loaded.error());
  const Card card{.multiprocessors = static_cast<unsigned>(levels.front().instances),
                  .l2_bytes = l2_bytes(levels)};
  for (MemoryLevel& level : levels) {
    auto speed = measure_level(bench, card, level, workspace);
    if (!speed) return Unexpected(speed.error());
    level.speed = *speed;
  }
  return levels;
}

}  // namespace headroom::device::internal
