#include "headroom/nn/data/dataset.h"

#include <cstring>
#include <string>

#include "headroom/base/error.h"
#include "headroom/memory/annotation.h"
#include "headroom/tensor/ops/creation.h"
#include "headroom/tensor/tape.h"

namespace headroom::nn {
namespace {

void* host_memory(const Tensor& x) { return reinterpret_cast<void*>(x.address()); }

void check_host(const char* who, const Tensor& x) {
  if (!x.is_meta() && x.device().properties().host_accessible) return;
  throw InvalidArgument(std::string(who) + ": memory of " + to_string(x.device().id()) +
                        " is not the processor's; use cpu");
}

ElementSpec row_spec(const Tensor& x) {
  return {.dtype = x.dtype(), .shape = x.select(0, 0).shape()};
}

void copy_row(const Tensor& from, std::int64_t i, void* to) {
  const std::uint64_t bytes = from.size_bytes() / static_cast<std::uint64_t>(from.size(0));
  std::memcpy(to,
              static_cast<const char*>(host_memory(from)) + static_cast<std::uint64_t>(i) * bytes,
              bytes);
}

Tensor rows_of(const char* what, const Tensor& x) {
  if (x.dim() == 0 || x.size(0) == 0) {
    throw InvalidArgument(std::string("TensorDataset: ") + what + " of shape " +
                          to_string(x.shape()) + " have no rows");
  }
  check_host("TensorDataset", x);
  const GradModeScope no_grad(false);
  return x.detach().contiguous();
}

}  // namespace

std::int64_t ElementSpec::numel() const {
  std::int64_t out = 1;
  for (int i = 0; i < shape.size(); ++i) out *= shape[i];
  return out;
}

std::uint64_t ElementSpec::size_bytes() const {
  return static_cast<std::uint64_t>(numel()) * headroom::size_bytes(dtype);
}

Example Dataset::get(std::int64_t i, const Place& place) const {
  if (i < 0 || i >= size()) {
    throw InvalidArgument("Dataset: there is no example " + std::to_string(i) + ", only 0 to " +
                          std::to_string(size() - 1));
  }
  const memory::CategoryScope category(memory::Category::kData);
  const ExampleSpec own = spec();
  Example out{.input = empty(own.input.shape, {.dtype = own.input.dtype, .device = place}),
              .target = empty(own.target.shape, {.dtype = own.target.dtype, .device = place})};
  check_host("Dataset", out.input);
  write(i, host_memory(out.input), host_memory(out.target));
  return out;
}

TensorDataset::TensorDataset(const Tensor& inputs, const Tensor& targets)
    : inputs_(rows_of("inputs", inputs)), targets_(rows_of("targets", targets)) {
  if (inputs_.size(0) == targets_.size(0)) return;
  throw InvalidArgument("TensorDataset: " + std::to_string(inputs_.size(0)) + " inputs and " +
                        std::to_string(targets_.size(0)) + " targets");
}

ExampleSpec TensorDataset::spec() const {
  return {.input = row_spec(inputs_), .target = row_spec(targets_)};
}

void TensorDataset::write(std::int64_t i, void* input, void* target) const {
  copy_row(inputs_, i, input);
  copy_row(targets_, i, target);
}

}  // namespace headroom::nn
