// DataLoader: a dataset in batches on a device.
//
//   nn::DataLoader loader(dataset, {.batch = 32, .shuffle = true, .workers = 2, .prefetch = 2});
//   for (std::int64_t e = 0; e < 10; ++e) {
//     for (const nn::Batch& batch : loader.epoch(e)) {
//       cross_entropy(model(batch.input), batch.target).backward();
//     }
//   }
//
// Workers write examples into host buffers that the device copies from fastest (pinned). The thread
// that takes the batches allocates them, as data, and queues the copies on a stream of their own:
// with prefetch, those of the next batch before it hands out one, so that they run beside the work
// on it. Two batches are on the device then, else one. What is allocated and when is the same
// whatever the workers do, and on meta, where nothing is written or copied.
//
// The order of an epoch is a function of the seed and its number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <vector>

#include "headroom/base/fork.h"
#include "headroom/nn/data/dataset.h"

namespace headroom::nn {

struct Batch {
  Tensor input{};   // [examples, ...]
  Tensor target{};  // [examples, ...]
};

struct DataLoaderOptions {
  std::int64_t batch = 1;
  bool shuffle = false;
  std::uint64_t seed = 0;
  int workers = 0;         // 0: who takes the batch writes it
  int prefetch = 0;        // batches that are ready, or on their way, before they are asked for
  bool pin = true;         // host buffers by the device's own call
  bool drop_last = false;  // where it would be smaller than the others
  Place place = "cpu";
};

class DataLoader {
 public:
  class Epoch;

  // Throws InvalidArgument for a batch below 1, an empty dataset, or negative counts. The dataset
  // must live as long as this and its epochs.
  DataLoader(const Dataset& dataset, const DataLoaderOptions& options);

  // Of an epoch.
  [[nodiscard]] std::int64_t batches() const noexcept { return batches_; }
  // Numbers of examples, as they come.
  [[nodiscard]] std::vector<std::int64_t> order(std::int64_t epoch) const;
  [[nodiscard]] Epoch epoch(std::int64_t number) const;
  [[nodiscard]] const DataLoaderOptions& options() const noexcept { return options_; }
  [[nodiscard]] const Dataset& dataset() const noexcept { return *dataset_; }

 private:
  const Dataset* dataset_;
  DataLoaderOptions options_;
  std::int64_t batches_;
};

namespace internal {
class EpochRun;
}  // namespace internal

// The batches of one epoch, once. It may end early: workers stop, and what is under way is waited
// for. Used by one thread, and not by the child of a fork, where every call throws Forked.
class DataLoader::Epoch {
 public:
  Epoch(const DataLoader& loader, std::int64_t number);
  ~Epoch();
  Epoch(Epoch&&) noexcept;
  Epoch& operator=(Epoch&&) = delete;

  // Loads the first batch ahead, as next() does with the one after it; nothing without prefetch.
  void start();
  // The next batch; nothing at the end. Throws what a worker threw while it made this batch, after
  // which nothing follows.
  [[nodiscard]] std::optional<Batch> next();

  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::input_iterator_tag;
    using pointer = const Batch*;
    using reference = const Batch&;

    explicit Iterator(Epoch* epoch) : epoch_(epoch) { ++*this; }
    const Batch& operator*() const { return *batch_; }
    const Batch* operator->() const { return &*batch_; }
    Iterator& operator++() {
      batch_.reset();  // its memory is free before the next is asked for
      batch_ = epoch_->next();
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& it, std::default_sentinel_t) { return !it.batch_; }

   private:
    Epoch* epoch_;
    std::optional<Batch> batch_{};
  };
  [[nodiscard]] Iterator begin() { return Iterator(this); }
  [[nodiscard]] static std::default_sentinel_t end() noexcept { return {}; }

  // The stream that copies run on; none without prefetch, and on meta.
  [[nodiscard]] const std::optional<Stream>& copy_stream() const noexcept;

 private:
  ForkMark made_{};
  std::unique_ptr<internal::EpochRun> run_;
};

}  // namespace headroom::nn
