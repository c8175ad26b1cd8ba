// Threads that write batches of a dataset into host buffers, in order, as far ahead as there are
// buffers.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "headroom/base/fork.h"
#include "headroom/nn/data/dataset.h"
#include "headroom/tensor/pinned.h"

namespace headroom::nn::internal {

// Room for the inputs and targets of a batch. Used again, or freed, once the copy from it is done.
class HostBuffer {
 public:
  // `is_pinned`: by the device's own call, else plain memory.
  HostBuffer(device::Device& device,
             const ExampleSpec& spec,
             std::int64_t examples,
             bool is_pinned);
  ~HostBuffer();
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;

  [[nodiscard]] std::byte* input() const noexcept { return input_; }
  [[nodiscard]] std::byte* target() const noexcept { return target_; }
  void set_copied(Event event) { copied_.emplace(std::move(event)); }
  void wait_until_copied() {
    // Asked first: mostly it has, and then nobody waits.
    if (copied_ && !copied_->is_done()) copied_->synchronize();
    copied_.reset();
  }

 private:
  std::optional<PinnedBuffer> pinned_{};
  std::vector<std::byte> plain_{};
  std::byte* input_ = nullptr;
  std::byte* target_ = nullptr;
  std::optional<Event> copied_{};
};

// Which examples a batch has.
struct BatchPlan {
  std::vector<std::int64_t> order{};
  std::int64_t batch = 1;
  std::int64_t batches = 0;

  [[nodiscard]] std::span<const std::int64_t> examples(std::int64_t number) const;
};

void write_batch(const Dataset& dataset, std::span<const std::int64_t> examples, HostBuffer& to);

// Starts a thread that runs `work`. Throws std::system_error where the system has none to give.
using StartThread = std::jthread (*)(std::function<void()> work);
[[nodiscard]] std::jthread start_thread(std::function<void()> work);

class BatchWorkers {
 public:
  // With no threads, take() writes the batch itself. Throws Error when fewer than `threads` can be
  // started; those that were have ended then.
  BatchWorkers(const Dataset& dataset,
               const BatchPlan& plan,
               std::vector<std::unique_ptr<HostBuffer>> buffers,
               int threads,
               StartThread start = start_thread);
  // Stops them; a batch that is being written is waited for. Never in the child of a fork, where
  // the threads are not, but would be waited for.
  ~BatchWorkers();
  BatchWorkers(const BatchWorkers&) = delete;
  BatchWorkers& operator=(const BatchWorkers&) = delete;

  // Batch `number`, which is one more than the last that was taken. Throws what its worker threw,
  // and Forked in the child of a fork.
  [[nodiscard]] std::unique_ptr<HostBuffer> take(std::int64_t number);
  // For another batch, once its copy is done.
  void give_back(std::unique_ptr<HostBuffer> buffer);

 private:
  struct Written {
    std::unique_ptr<HostBuffer> buffer{};
    std::exception_ptr failure{};
  };

  void stop();
  void work();
  void write(std::int64_t number, Written& out) const;

  const Dataset& dataset_;
  const BatchPlan& plan_;
  ForkMark made_{};
  std::mutex mutex_{};
  std::condition_variable changed_{};
  // Under mutex_:
  std::deque<std::unique_ptr<HostBuffer>> free_;
  std::map<std::int64_t, Written> written_{};
  std::int64_t next_ = 0;  // that nobody has begun
  bool is_stopping_ = false;
  // Last, so that they end before what they use.
  std::vector<std::jthread> threads_{};
};

}  // namespace headroom::nn::internal
