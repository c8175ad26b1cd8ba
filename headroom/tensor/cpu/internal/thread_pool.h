// The threads that kernels on the processor share.
//
//   parallel_for(rows, 16, [&](std::int64_t begin, std::int64_t end) { ... });
//
// Pieces are cut by `count` and `grain`, and which thread runs which piece is left to chance, so a
// body must give the same result for any cut: same bits whatever the number of threads. Small work
// stays on the caller. HEADROOM_THREADS says how many there are; all cores by default.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

namespace headroom::tensor::cpu {

class ThreadPool {
 public:
  // Lives as long as the process.
  [[nodiscard]] static ThreadPool& shared();
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // The caller included.
  [[nodiscard]] int size() const noexcept { return size_; }
  // Calls piece(context, i) for every i below `pieces`, the caller taking part. When the pool is at
  // somebody else's work, the caller does it alone: a stream's thread never waits for another's.
  void run(std::int64_t pieces, void (*piece)(void*, std::int64_t), void* context);

 private:
  struct State;
  int size_;
  std::unique_ptr<State> state_;
};

// body(begin, end) over [0, count) in pieces that start at multiples of `grain`.
template <class Body>
void parallel_for(std::int64_t count, std::int64_t grain, const Body& body) {
  if (count <= 0) return;
  ThreadPool& pool = ThreadPool::shared();
  if (count <= grain || pool.size() == 1) {
    body(std::int64_t{0}, count);
    return;
  }
  const std::int64_t grains = (count + grain - 1) / grain;
  // A few pieces a thread, so that one that is late does not hold up the rest.
  const std::int64_t step =
      std::max<std::int64_t>(1, grains / (std::int64_t{4} * pool.size())) * grain;
  struct Context {
    const Body* body;
    std::int64_t count;
    std::int64_t step;
  } context{&body, count, step};
  pool.run((count + step - 1) / step,
           [](void* data, std::int64_t index) {
             const auto& c = *static_cast<Context*>(data);
             const std::int64_t begin = index * c.step;
             (*c.body)(begin, std::min(begin + c.step, c.count));
           },
           &context);
}

}  // namespace headroom::tensor::cpu
