// The method. For each level a working set is chosen that fits the level and not the one below:
//
//   latency     One thread follows pointers through the set, each load waiting for the one before.
//               The order visits every line once and looks random, so no prefetcher can guess it.
//   bandwidth   One thread on each processor reads a part of its own again and again, in order,
//               with the widest loads the processor has. The rates are added up.
//
// Main memory is read over a set four times the last cache, at most 256 MiB: what the caches hold
// of it makes main memory look a little better than it is, the more so the larger they are.
// Memory is in huge pages where the system grants them, so address translation is mostly left
// out. Everything is warm: the set has been read before it is timed. Each number is the best of
// several rounds, because what disturbs a measurement (other programs) only ever makes it worse.
#include "headroom/device/cpu/internal/measure.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <thread>

#include "headroom/base/bytes.h"
#include "headroom/base/checked.h"
#include "headroom/device/cpu/internal/hierarchy.h"

namespace headroom::device::internal {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTimed{10};  // of each round
constexpr int kRounds = 4;
constexpr std::uint64_t kLine = 64;
constexpr std::uint64_t kStep = 512;  // what the reading loop takes at once
#if defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kMaxSet = 32_MiB;  // ThreadSanitizer keeps a multiple of it for good
#else
constexpr std::uint64_t kMaxSet = 256_MiB;
#endif

struct Free {
  void operator()(void* pointer) const noexcept { std::free(pointer); }
};
using Buffer = std::unique_ptr<std::byte, Free>;

Buffer make_buffer(std::uint64_t size_bytes) {
  Buffer buffer(static_cast<std::byte*>(std::aligned_alloc(2_MiB, round_up(size_bytes, 2_MiB))));
  if (buffer == nullptr) throw std::bad_alloc();
  madvise(buffer.get(), size_bytes, MADV_HUGEPAGE);
  return buffer;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Keeps the compiler from dropping a computation whose result nobody reads.
template <class T>
void use(const T& value) noexcept {
  asm volatile("" : : "g"(&value) : "memory");
}

// --- Latency -----------------------------------------------------------------------------------

// Links the lines of the set to one cycle. Line i leads to a * i + c modulo the number of lines, a
// power of two; with c odd and a - 1 divisible by 4 that visits every line (Hull and Dobell), and
// unlike a shuffle it is written in order, which is quick.
void link_lines(std::byte* set, std::uint64_t lines) {
  constexpr std::uint64_t kMultiplier = 0x5851F42D4C957F2D;  // Knuth's, of MMIX
  constexpr std::uint64_t kIncrement = 0x14057B7EF767814F;
  for (std::uint64_t i = 0; i < lines; ++i) {
    const std::uint64_t next = (kMultiplier * i + kIncrement) & (lines - 1);
    *reinterpret_cast<std::byte**>(set + i * kLine) = set + next * kLine;
  }
}

std::byte* follow(std::byte* at, std::uint64_t steps) noexcept {
  for (; steps > 0; --steps) at = *reinterpret_cast<std::byte**>(at);
  return at;
}

double latency_ns(std::byte* set, std::uint64_t size_bytes) {
  constexpr std::uint64_t kBatch = 1 << 12U;
  const std::uint64_t lines = size_bytes / kLine;
  link_lines(set, lines);
  std::byte* at = follow(set, std::min<std::uint64_t>(lines, 1U << 17U));
  double best = std::numeric_limits<double>::max();
  for (int round = 0; round < kRounds; ++round) {
    std::uint64_t steps = 0;
    const auto start = Clock::now();
    do {
      at = follow(at, kBatch);
      steps += kBatch;
    } while (Clock::now() - start < kTimed);
    best = std::min(best, seconds_since(start) * 1e9 / static_cast<double>(steps));
  }
  use(at);
  return best;
}

// --- Bandwidth ---------------------------------------------------------------------------------

// Several sums, so that no addition waits for the one before.
template <class Vector>
[[gnu::always_inline]] inline void read_as(const std::byte* from, std::uint64_t size_bytes) {
  Vector sums[8] = {};
  for (std::uint64_t at = 0; at < size_bytes; at += sizeof sums) {
    const auto* lines = reinterpret_cast<const Vector*>(from + at);
    for (int i = 0; i < 8; ++i) sums[i] += lines[i];
  }
  for (const Vector& sum : sums) use(sum);
}

typedef std::uint64_t Vector16 __attribute__((vector_size(16), may_alias));
void read_narrow(const std::byte* from, std::uint64_t size_bytes) {
  read_as<Vector16>(from, size_bytes);
}

#if defined(__x86_64__)
typedef std::uint64_t Vector32 __attribute__((vector_size(32), may_alias));
typedef std::uint64_t Vector64 __attribute__((vector_size(64), may_alias));
[[gnu::target("avx2")]] void read_avx2(const std::byte* from, std::uint64_t size_bytes) {
  read_as<Vector32>(from, size_bytes);
}
[[gnu::target("avx512f")]] void read_avx512(const std::byte* from, std::uint64_t size_bytes) {
  read_as<Vector64>(from, size_bytes);
}
#endif

using ReadFunction = void (*)(const std::byte*, std::uint64_t);

ReadFunction widest_read() noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return read_avx512;
  if (__builtin_cpu_supports("avx2")) return read_avx2;
#endif
  return read_narrow;
}

void pin_to(int processor) noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(processor), &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);  // a hint; the result does not matter
}

double read_rate(const std::byte* part, std::uint64_t size_bytes, ReadFunction read) {
  // Small sets are read many times between two looks at the clock.
  const std::uint64_t rounds = std::max<std::uint64_t>(1, 1_MiB / size_bytes);
  read(part, size_bytes);
  std::uint64_t bytes = 0;
  const auto start = Clock::now();
  do {
    for (std::uint64_t i = 0; i < rounds; ++i) read(part, size_bytes);
    bytes += rounds * size_bytes;
  } while (Clock::now() - start < kTimed);
  return static_cast<double>(bytes) / seconds_since(start);
}

// Each thread reads `part_bytes` at its own multiple of `stride_bytes`.
double bandwidth_once(const std::byte* set,
                      std::uint64_t stride_bytes,
                      std::uint64_t part_bytes,
                      const std::vector<int>& processors) {
  const ReadFunction read = widest_read();
  std::barrier ready(static_cast<std::ptrdiff_t>(processors.size()));
  std::atomic<double> sum{0};
  std::vector<std::jthread> threads;
  threads.reserve(processors.size());
  try {
    for (std::size_t i = 0; i < processors.size(); ++i) {
      threads.emplace_back([&, i] {
        pin_to(processors[i]);
        ready.arrive_and_wait();
        sum.fetch_add(read_rate(set + i * stride_bytes, part_bytes, read));
      });
    }
  } catch (...) {
    // Those that did start wait for all: let them go before the barrier does.
    for (std::size_t i = threads.size(); i < processors.size(); ++i) ready.arrive_and_drop();
    throw;
  }
  threads.clear();
  return sum.load();
}

double bandwidth(const std::byte* set,
                 std::uint64_t stride_bytes,
                 std::uint64_t part_bytes,
                 const std::vector<int>& processors) {
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    best = std::max(best, bandwidth_once(set, stride_bytes, part_bytes, processors));
  }
  return best;
}

// --- Working sets ------------------------------------------------------------------------------

// About half of `level`, but not so little that `below` would hold it.
std::uint64_t half_of(std::uint64_t level_bytes, std::uint64_t below_bytes) noexcept {
  return std::max(level_bytes / 2, std::min(2 * below_bytes, level_bytes));
}

struct WorkingSet {
  std::uint64_t chased_bytes = 0;  // by the one thread that follows pointers; a power of two
  std::uint64_t part_bytes = 0;    // by each thread that reads; a multiple of kStep
};

WorkingSet choose_set(const MemoryLevel& level,
                      bool is_main_memory,
                      std::uint64_t below_bytes,
                      std::uint64_t buffer_bytes,
                      std::uint64_t threads) noexcept {
  std::uint64_t chased = buffer_bytes;
  std::uint64_t part = buffer_bytes / threads;
  if (!is_main_memory) {
    const auto instances = static_cast<std::uint64_t>(std::max(level.instances, 1));
    const std::uint64_t sharers = std::max<std::uint64_t>(1, (threads + instances - 1) / instances);
    chased = std::min(chased, half_of(level.size_bytes, below_bytes));
    part = std::min(part, half_of(level.size_bytes / sharers, below_bytes));
  }
  return {.chased_bytes = std::bit_floor(std::max(chased, 2 * kLine)),
          .part_bytes = std::max(round_down(part, kStep), kStep)};
}

}  // namespace

std::vector<MemoryLevel> measure_levels(std::vector<MemoryLevel> levels, std::uint64_t max_bytes) {
  if (levels.empty()) return levels;
  const std::vector<int> processors = usable_processors();
  const std::uint64_t threads = processors.size();
  std::uint64_t cached_bytes = 0;
  for (std::size_t i = 0; i + 1 < levels.size(); ++i) {
    cached_bytes = std::max(cached_bytes,
                            levels[i].size_bytes * static_cast<std::uint64_t>(levels[i].instances));
  }
  const std::uint64_t wanted = std::clamp<std::uint64_t>(4 * cached_bytes, 16_MiB, kMaxSet);
  const std::uint64_t buffer_bytes =
      round_up(std::max(std::min(wanted, max_bytes), threads * kStep), kStep);
  const std::uint64_t stride = round_down(buffer_bytes / threads, kStep);
  const Buffer buffer = make_buffer(buffer_bytes);
  std::fill_n(buffer.get(), buffer_bytes, std::byte{1});

  std::uint64_t below_bytes = 0;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const bool is_main_memory = i + 1 == levels.size();
    const WorkingSet set =
        choose_set(levels[i], is_main_memory, below_bytes, buffer_bytes, threads);
    levels[i].speed = LevelSpeed{
        .read_bytes_per_second = bandwidth(buffer.get(), stride, set.part_bytes, processors),
        .latency_ns = latency_ns(buffer.get(), set.chased_bytes)};
    below_bytes = levels[i].size_bytes;
  }
  return levels;
}

}  // namespace headroom::device::internal
