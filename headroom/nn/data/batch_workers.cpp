#include "headroom/nn/internal/batch_workers.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>

#include "headroom/base/error.h"

namespace headroom::nn::internal {
namespace {

// Inputs first; targets at the next multiple of this.
constexpr std::uint64_t kHostAlignment = 64;

}  // namespace

HostBuffer::HostBuffer(device::Device& device,
                       const ExampleSpec& spec,
                       std::int64_t examples,
                       bool is_pinned) {
  const auto count = static_cast<std::uint64_t>(examples);
  const std::uint64_t inputs =
      (count * spec.input.size_bytes() + kHostAlignment - 1) / kHostAlignment * kHostAlignment;
  const std::uint64_t bytes = inputs + count * spec.target.size_bytes();
  if (is_pinned) {
    input_ = static_cast<std::byte*>(pinned_.emplace(device, bytes).data());
  } else {
    plain_.resize(bytes);
    input_ = plain_.data();
  }
  target_ = input_ + inputs;
}

HostBuffer::~HostBuffer() {
  try {
    wait_until_copied();
  } catch (...) {  // A stream that cannot be waited for has nothing running.
  }
}

std::span<const std::int64_t> BatchPlan::examples(std::int64_t number) const {
  const auto begin = static_cast<std::size_t>(number * batch);
  return std::span(order).subspan(begin,
                                  std::min(static_cast<std::size_t>(batch), order.size() - begin));
}

void write_batch(const Dataset& dataset, std::span<const std::int64_t> examples, HostBuffer& to) {
  const ExampleSpec spec = dataset.spec();
  std::byte* input = to.input();
  std::byte* target = to.target();
  for (const std::int64_t example : examples) {
    dataset.write(example, input, target);
    input += spec.input.size_bytes();
    target += spec.target.size_bytes();
  }
}

std::jthread start_thread(std::function<void()> work) { return std::jthread(std::move(work)); }

BatchWorkers::BatchWorkers(const Dataset& dataset,
                           const BatchPlan& plan,
                           std::vector<std::unique_ptr<HostBuffer>> buffers,
                           int threads,
                           StartThread start)
    : dataset_(dataset),
      plan_(plan),
      free_(std::make_move_iterator(buffers.begin()), std::make_move_iterator(buffers.end())) {
  threads_.reserve(static_cast<std::size_t>(threads));
  try {
    while (std::ssize(threads_) < threads) threads_.push_back(start([this] { work(); }));
  } catch (const std::system_error& error) {
    // Their destructors wait for them, and they for batches that nobody is going to take.
    stop();
    throw Error("DataLoader: " + std::to_string(threads_.size()) + " of " +
                std::to_string(threads) + " workers could be started (" + error.code().message() +
                "): ask for fewer workers, or raise this process's limits of threads and memory");
  } catch (...) {
    stop();
    throw;
  }
}

BatchWorkers::~BatchWorkers() { stop(); }

void BatchWorkers::stop() {
  const std::lock_guard lock(mutex_);
  is_stopping_ = true;
  changed_.notify_all();
}

void BatchWorkers::write(std::int64_t number, Written& out) const {
  try {
    out.buffer->wait_until_copied();
    write_batch(dataset_, plan_.examples(number), *out.buffer);
  } catch (...) {
    out.failure = std::current_exception();
  }
}

// Whoever has a buffer takes the first batch that nobody has begun, so the first that is missing is
// always being written.
void BatchWorkers::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return is_stopping_ || next_ == plan_.batches || !free_.empty(); });
    if (is_stopping_ || next_ == plan_.batches) return;
    const std::int64_t number = next_++;
    Written own{.buffer = std::move(free_.front())};
    free_.pop_front();
    lock.unlock();
    write(number, own);
    lock.lock();
    written_.emplace(number, std::move(own));
    changed_.notify_all();
  }
}

std::unique_ptr<HostBuffer> BatchWorkers::take(std::int64_t number) {
  if (made_.is_forked()) throw Forked();
  Written out;
  if (threads_.empty()) {
    out.buffer = std::move(free_.front());
    free_.pop_front();
    write(number, out);
  } else {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return written_.contains(number); });
    out = std::move(written_.extract(number).mapped());
  }
  if (out.failure) std::rethrow_exception(out.failure);
  return std::move(out.buffer);
}

void BatchWorkers::give_back(std::unique_ptr<HostBuffer> buffer) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(buffer));
  changed_.notify_all();
}

}  // namespace headroom::nn::internal
