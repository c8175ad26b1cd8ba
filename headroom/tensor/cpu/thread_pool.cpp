#include "headroom/tensor/cpu/internal/thread_pool.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "headroom/base/env.h"
#include "headroom/base/error.h"
#include "headroom/base/fork.h"

namespace headroom::tensor::cpu {
namespace {

void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int threads_from_environment() {
  constexpr int kMost = 256;
  const auto asked = env_int("HEADROOM_THREADS", 1, kMost);
  if (!asked) throw InvalidArgument(asked.error());
  if (*asked) return static_cast<int>(**asked);
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(cores, 1, kMost);
}

// Kernels follow one another within microseconds, and waking a thread may take fifty: whoever has
// nothing to do looks out for a millisecond before it sleeps, and soon lets others have the core.
template <class IsDone>
void look_out(const IsDone& is_done) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kAlone = std::chrono::microseconds(50);
  constexpr auto kPatience = std::chrono::milliseconds(1);
  constexpr int kLooks = 32;  // between glances at the clock
  const auto begin = Clock::now();
  for (auto spent = Clock::duration(); spent < kPatience; spent = Clock::now() - begin) {
    if (spent > kAlone) std::this_thread::yield();
    for (int i = 0; i < kLooks; ++i) {
      if (is_done()) return;
      pause_briefly();
    }
  }
}

}  // namespace

struct ThreadPool::State {
  std::mutex busy;  // held while a job runs: one at a time

  std::mutex mutex;  // guards what follows; the two atomic ones may be read without it
  std::condition_variable work;
  std::condition_variable idle;
  std::atomic<std::uint64_t> job{0};
  std::atomic<int> running{0};
  bool stop = false;
  void (*run)(void*, std::int64_t) = nullptr;
  void* context = nullptr;
  std::int64_t pieces = 0;
  std::atomic<std::int64_t> next{0};

  std::vector<std::jthread> threads;

  void take_pieces() {
    for (std::int64_t i = next.fetch_add(1); i < pieces; i = next.fetch_add(1)) run(context, i);
  }

  void serve() {
    std::uint64_t seen = 0;
    while (true) {
      look_out([&] { return job.load(std::memory_order_relaxed) != seen; });
      std::unique_lock lock(mutex);
      work.wait(lock, [&] { return stop || job != seen; });
      if (stop) return;
      seen = job;
      // A job that ended before this thread woke has nothing left to take.
      if (run == nullptr) continue;
      ++running;
      lock.unlock();
      take_pieces();
      lock.lock();
      if (--running == 0) idle.notify_one();
    }
  }
};

namespace {

constinit std::atomic<ThreadPool*> shared_pool{nullptr};

// While the pool is made.
ForkSafeMutex& pool_mutex() {
  static auto& instance = *new ForkSafeMutex(ForkSafeMutex::Rank::kTable);
  return instance;
}

// Before there are threads: a child that is forked while one of them makes the mutex would wait for
// it for ever.
[[maybe_unused]] const bool kIsReadyForForks = [] {
  (void)pool_mutex();
  add_fork_handlers({.in_child = []() noexcept { keep_for_ever(shared_pool.exchange(nullptr)); }});
  return true;
}();

// The child of a fork makes its own: the parent's threads are not there.
ThreadPool& make_shared_pool() {
  const std::lock_guard lock(pool_mutex());
  if (ThreadPool* const made = shared_pool.load(std::memory_order_acquire)) return *made;
  auto* const made = new ThreadPool(threads_from_environment());
  shared_pool.store(made, std::memory_order_release);
  return *made;
}

}  // namespace

// Never destroyed: a stream may still run a kernel while the program ends.
ThreadPool& ThreadPool::shared() {
  ThreadPool* const made = shared_pool.load(std::memory_order_acquire);
  return made != nullptr ? *made : make_shared_pool();
}

// With as many as the system gives: fewer compute the same, and slower.
ThreadPool::ThreadPool(int threads) : size_(1), state_(std::make_unique<State>()) {
  state_->threads.reserve(static_cast<std::size_t>(threads));
  try {
    for (; size_ < threads; ++size_) {
      state_->threads.emplace_back([state = state_.get()] { state->serve(); });
    }
  } catch (const std::system_error&) {  // size_ says how many there are
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
    ++state_->job;
  }
  state_->work.notify_all();
}

void ThreadPool::run(std::int64_t pieces, void (*piece)(void*, std::int64_t), void* context) {
  const std::unique_lock busy(state_->busy, std::try_to_lock);
  if (!busy.owns_lock()) {
    for (std::int64_t i = 0; i < pieces; ++i) piece(context, i);
    return;
  }
  State& state = *state_;
  {
    const std::lock_guard lock(state.mutex);
    state.run = piece;
    state.context = context;
    state.pieces = pieces;
    state.next.store(0);
    ++state.job;
  }
  state.work.notify_all();
  state.take_pieces();
  look_out([&] { return state.running.load(std::memory_order_relaxed) == 0; });
  std::unique_lock lock(state.mutex);
  state.idle.wait(lock, [&] { return state.running == 0; });
  state.run = nullptr;
}

}  // namespace headroom::tensor::cpu
