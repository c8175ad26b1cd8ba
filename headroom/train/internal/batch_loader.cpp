#include "headroom/train/internal/batch_loader.h"

#include <algorithm>
#include <span>

#include "headroom/base/error.h"
#include "headroom/memory/annotation.h"
#include "headroom/tensor/ops/creation.h"

namespace headroom::train::internal {
namespace {

using Task = ExampleShape::Task;

Shape batched(std::int64_t count, const Shape& example) {
  Shape out = example;
  out.insert(0, count);
  return out;
}

// `from` may go once this returns.
void write_to_device(const Tensor& to, const void* from) {
  device::Device& device = to.device();
  const device::StreamId stream = current_stream_id(device);
  const auto copied = device.copy_to_device(to.address(), from, to.size_bytes(), stream);
  if (!copied || !device.synchronize_stream(stream)) {
    throw Error("train: a batch could not be copied to the device");
  }
  to.storage().bump_version();
}

}  // namespace

BatchLoader::BatchLoader(const ExampleShape& shape,
                         std::unique_ptr<Examples> examples,
                         DType type,
                         memory::Allocator& allocator)
    : shape_(shape), examples_(std::move(examples)), type_(type), allocator_(allocator) {}

Batch BatchLoader::allocate(std::int64_t count) const {
  const memory::CategoryScope category(memory::Category::kData);
  const TensorOptions numbers{.dtype = type_, .device = allocator_};
  const TensorOptions indices{.dtype = DType::kI64, .device = allocator_};
  const Shape all = batched(count, shape_.input);
  switch (shape_.task) {
    case Task::kNumbers:
      return {.input = empty(all, numbers), .target = empty(all, numbers)};
    case Task::kTokens:
      return {.input = empty(all, indices), .target = empty(all, indices)};
    default:
      return {.input = empty(all, numbers), .target = empty({count}, indices)};
  }
}

void BatchLoader::fill(const Batch& batch, std::uint64_t first) {
  if (batch.input.is_meta()) return;
  if (shape_.task == Task::kTokens) return fill_tokens(batch, first);
  const bool has_numbers = shape_.task == Task::kNumbers;
  const auto count = static_cast<std::size_t>(batch.input.size(0));
  const std::size_t each = static_cast<std::size_t>(batch.input.numel()) / count;
  numbers_.resize(count * each);
  target_numbers_.resize(has_numbers ? count * each : 0);
  targets_.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::span input = std::span(numbers_).subspan(i * each, each);
    const std::span target =
        has_numbers ? std::span(target_numbers_).subspan(i * each, each) : std::span<float>();
    targets_[i] = examples_->numbers(first + i, input, target);
  }
  write_numbers(batch.input);
  if (!has_numbers) return write_to_device(batch.target, targets_.data());
  numbers_.swap(target_numbers_);
  write_numbers(batch.target);
}

void BatchLoader::fill_tokens(const Batch& batch, std::uint64_t first) {
  const auto count = static_cast<std::size_t>(batch.input.size(0));
  const auto length = static_cast<std::size_t>(batch.input.size(1));
  std::vector<std::int64_t> row(length + 1);
  indices_.resize(count * length);
  targets_.resize(count * length);
  for (std::size_t i = 0; i < count; ++i) {
    examples_->tokens(first + i, row);
    std::copy_n(row.begin(), length, indices_.data() + i * length);
    std::copy_n(row.begin() + 1, length, targets_.data() + i * length);
  }
  write_to_device(batch.input, indices_.data());
  write_to_device(batch.target, targets_.data());
}

void BatchLoader::write_numbers(const Tensor& to) {
  if (type_ == DType::kF32) return write_to_device(to, numbers_.data());
  doubles_.assign(numbers_.begin(), numbers_.end());
  write_to_device(to, doubles_.data());
}

}  // namespace headroom::train::internal
