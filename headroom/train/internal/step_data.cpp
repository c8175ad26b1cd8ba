#include "headroom/train/internal/step_data.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace headroom::train::internal {
namespace {

// A dataset as a step wants it: numbers of its type, and at least as many examples as a batch has,
// some of them again where there are too few.
class Prepared : public nn::Dataset {
 public:
  Prepared(std::unique_ptr<nn::Dataset> base, const StepDataOptions& options)
      : base_(std::move(base)),
        spec_(base_->spec()),
        is_wide_(options.type == DType::kF64),
        times_((options.batch + base_->size() - 1) / base_->size()) {}

  [[nodiscard]] std::int64_t size() const override {
    return base_->size() * std::max<std::int64_t>(times_, 1);
  }
  [[nodiscard]] nn::ExampleSpec spec() const override {
    nn::ExampleSpec out = spec_;
    for (nn::ElementSpec* part : {&out.input, &out.target}) {
      if (is_wide_ && part->dtype == DType::kF32) part->dtype = DType::kF64;
    }
    return out;
  }
  void write(std::int64_t i, void* input, void* target) const override {
    i %= base_->size();
    if (!is_wide_) return base_->write(i, input, target);
    std::vector<std::byte> narrow_input(spec_.input.size_bytes());
    std::vector<std::byte> narrow_target(spec_.target.size_bytes());
    base_->write(i, narrow_input.data(), narrow_target.data());
    widen(spec_.input, narrow_input, input);
    widen(spec_.target, narrow_target, target);
  }

 private:
  static void widen(const nn::ElementSpec& spec, const std::vector<std::byte>& from, void* to) {
    if (spec.dtype == DType::kF32) {
      const auto* numbers = reinterpret_cast<const float*>(from.data());
      std::copy_n(numbers, spec.numel(), static_cast<double*>(to));
    } else {
      std::ranges::copy(from, static_cast<std::byte*>(to));
    }
  }

  std::unique_ptr<nn::Dataset> base_;
  nn::ExampleSpec spec_;
  bool is_wide_;
  std::int64_t times_;
};

}  // namespace

StepData::StepData(std::unique_ptr<nn::Dataset> dataset,
                   const StepDataOptions& options,
                   memory::Allocator& allocator)
    : dataset_(std::make_unique<Prepared>(std::move(dataset), options)),
      loader_(*dataset_,
              {.batch = options.batch,
               .shuffle = true,
               .seed = options.seed,
               .workers = options.workers,
               .prefetch = options.prefetch,
               .drop_last = true,
               .place = allocator}) {}

// At the batch that is next: of the first epoch, or of one that failed.
void StepData::open_epoch() {
  if (epoch_) return;
  epoch_.emplace(loader_, number_);
  for (std::int64_t i = 0; i < taken_; ++i) (void)epoch_->next();
}

// The next epoch begins while the last batch of this one is in use, as batches follow one another
// within: where an epoch ends makes no difference to what is allocated when.
void StepData::follow_on() {
  if (taken_ < loader_.batches()) return;
  taken_ = 0;
  ++number_;
  epoch_.emplace(loader_, number_);
  epoch_->start();
}

nn::Batch StepData::next() {
  try {
    open_epoch();
    nn::Batch out = *epoch_->next();
    ++taken_;
    follow_on();
    return out;
  } catch (...) {
    epoch_.reset();
    throw;
  }
}

}  // namespace headroom::train::internal
