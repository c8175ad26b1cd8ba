#include "headroom/nn/data/loader.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/fork.h"
#include "headroom/memory/annotation.h"
#include "headroom/nn/internal/batch_workers.h"
#include "headroom/tensor/ops/creation.h"
#include "headroom/tensor/philox.h"
#include "headroom/tensor/tape.h"

namespace headroom::nn {
namespace internal {
namespace {

void check_at_least(const char* what, std::int64_t value, std::int64_t low) {
  if (value >= low) return;
  throw InvalidArgument(std::string("DataLoader: ") + what + " of at least " + std::to_string(low) +
                        " is wanted, not " + std::to_string(value));
}

Shape with_rows(std::int64_t rows, const Shape& shape) {
  Shape out{rows};
  for (int i = 0; i < shape.size(); ++i) out.push_back(shape[i]);
  return out;
}

// On meta nothing is written, so no order is made: a plan may ask for any number of examples.
BatchPlan plan_of(const DataLoader& loader, std::int64_t epoch, bool is_meta) {
  return {.order = is_meta ? std::vector<std::int64_t>() : loader.order(epoch),
          .batch = loader.options().batch,
          .batches = loader.batches()};
}

}  // namespace

// One epoch at work. Device memory is allocated on the consumer's stream; copies wait for what is
// queued there, and it waits for them, so nobody has to record streams.
class EpochRun {
 public:
  EpochRun(const DataLoader& loader, std::int64_t epoch)
      : dataset_(loader.dataset()),
        spec_(dataset_.spec()),
        allocator_(loader.options().place.resolve()),
        is_meta_(allocator_.device().id().kind == device::DeviceKind::kMeta),
        looks_ahead_(loader.options().prefetch > 0),
        plan_(plan_of(loader, epoch, is_meta_)) {
    if (is_meta_) return;
    if (looks_ahead_) copies_.emplace(allocator_.device());
    const DataLoaderOptions& options = loader.options();
    std::vector<std::unique_ptr<HostBuffer>> buffers;
    const int count = options.prefetch + 1;
    buffers.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
      buffers.push_back(std::make_unique<HostBuffer>(
          allocator_.device(), spec_, std::min(options.batch, dataset_.size()), options.pin));
    }
    workers_.emplace(dataset_, plan_, std::move(buffers), options.workers);
  }
  // The batch that nobody took must outlive its copy, as a buffer does by itself.
  ~EpochRun() {
    if (copies_) wait_for(*copies_);
  }
  EpochRun(const EpochRun&) = delete;
  EpochRun& operator=(const EpochRun&) = delete;

  void start() {
    const memory::PhaseScope phase(memory::Phase::kDataLoading);
    const GradModeScope no_grad(false);
    if (looks_ahead_ && !ahead_ && taken_ < plan_.batches) ahead_ = fetch_or_keep(taken_);
  }

  std::optional<Batch> next() {
    const memory::PhaseScope phase(memory::Phase::kDataLoading);
    const GradModeScope no_grad(false);
    if (taken_ == plan_.batches) return std::nullopt;
    try {
      if (!ahead_) ahead_ = fetch(taken_);
      Fetched own = std::move(*ahead_);
      ahead_.reset();
      ++taken_;
      if (looks_ahead_ && taken_ < plan_.batches) ahead_ = fetch_or_keep(taken_);
      if (own.failure) std::rethrow_exception(own.failure);
      if (own.copied) current_stream(allocator_.device()).wait(*own.copied);
      return std::move(own.batch);
    } catch (...) {
      taken_ = plan_.batches;
      throw;
    }
  }

  [[nodiscard]] const std::optional<Stream>& copy_stream() const noexcept { return copies_; }

 private:
  struct Fetched {
    Batch batch{};
    std::optional<Event> copied{};
    std::exception_ptr failure{};
  };

  static void wait_for(const Stream& stream) noexcept {
    try {
      stream.synchronize();
    } catch (...) {  // A stream that cannot be waited for has nothing running.
    }
  }

  // A failure of the next batch is not one of this.
  Fetched fetch_or_keep(std::int64_t number) {
    try {
      return fetch(number);
    } catch (...) {
      return {.failure = std::current_exception()};
    }
  }

  Fetched fetch(std::int64_t number) {
    const std::int64_t rows = std::min(plan_.batch, dataset_.size() - number * plan_.batch);
    Fetched out{.batch = {.input = made(rows, spec_.input), .target = made(rows, spec_.target)}};
    if (is_meta_) return out;
    std::unique_ptr<HostBuffer> buffer = workers_->take(number);
    Stream stream = current_stream(allocator_.device());
    if (copies_) {
      copies_->wait(stream);
      stream = *copies_;
    }
    try {
      const StreamScope scope(stream);
      copy_from_pinned(out.batch.input, buffer->input());
      copy_from_pinned(out.batch.target, buffer->target());
      out.copied = stream.record();
    } catch (...) {
      wait_for(stream);  // the first copy may be queued already
      throw;
    }
    buffer->set_copied(*out.copied);
    workers_->give_back(std::move(buffer));
    return out;
  }

  Tensor made(std::int64_t rows, const ElementSpec& spec) {
    const memory::CategoryScope category(memory::Category::kData);
    return empty(with_rows(rows, spec.shape), {.dtype = spec.dtype, .device = allocator_});
  }

  const Dataset& dataset_;
  ExampleSpec spec_;
  memory::Allocator& allocator_;
  bool is_meta_;
  bool looks_ahead_;
  BatchPlan plan_;
  std::optional<Stream> copies_{};
  std::optional<BatchWorkers> workers_{};
  std::optional<Fetched> ahead_{};
  std::int64_t taken_ = 0;
};

}  // namespace internal

DataLoader::DataLoader(const Dataset& dataset, const DataLoaderOptions& options)
    : dataset_(&dataset), options_(options) {
  internal::check_at_least("a batch", options.batch, 1);
  internal::check_at_least("workers", options.workers, 0);
  internal::check_at_least("a prefetch", options.prefetch, 0);
  internal::check_at_least("a dataset", dataset.size(), options.drop_last ? options.batch : 1);
  const std::int64_t rest = options.drop_last ? 0 : options.batch - 1;
  batches_ = (dataset.size() + rest) / options.batch;
}

std::vector<std::int64_t> DataLoader::order(std::int64_t epoch) const {
  std::vector<std::int64_t> out(static_cast<std::size_t>(dataset_->size()));
  std::iota(out.begin(), out.end(), 0);
  if (!options_.shuffle) return out;
  for (std::size_t i = out.size() - 1; i > 0; --i) {
    const auto words = tensor::cpu::philox(options_.seed, i, static_cast<std::uint64_t>(epoch));
    const std::uint64_t drawn = std::uint64_t{words[0]} << 32U | words[1];
    std::swap(out[i], out[tensor::cpu::high_product(drawn, i + 1)]);
  }
  return out;
}

DataLoader::Epoch DataLoader::epoch(std::int64_t number) const { return {*this, number}; }

DataLoader::Epoch::Epoch(const DataLoader& loader, std::int64_t number)
    : run_(std::make_unique<internal::EpochRun>(loader, number)) {}
DataLoader::Epoch::~Epoch() {
  if (made_.is_forked()) keep_for_ever(run_.release());
}
DataLoader::Epoch::Epoch(Epoch&&) noexcept = default;

void DataLoader::Epoch::start() {
  if (made_.is_forked()) throw Forked();
  run_->start();
}

std::optional<Batch> DataLoader::Epoch::next() {
  if (made_.is_forked()) throw Forked();
  return run_->next();
}

const std::optional<Stream>& DataLoader::Epoch::copy_stream() const noexcept {
  return run_->copy_stream();
}

}  // namespace headroom::nn
