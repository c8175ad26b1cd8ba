#include "tests/tensor/op_suite.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "headroom/base/bytes.h"

#include "tests/support/async_device.h"
#include "tests/support/test_device.h"

namespace headroom::testing {
namespace {

constexpr std::uint64_t kCapacity = 512_MiB;

double rounded(double value, DType dtype) {
  switch (dtype) {
    case kF64:
      return value;
    case kF32:
      return static_cast<float>(value);
    case kF16:
      return static_cast<float>(Half(value));
    case kBF16:
      return static_cast<float>(BFloat16(value));
    case kU8:
      return std::abs(std::nearbyint(value));
    case kBool:
      return std::nearbyint(value) != 0 ? 1 : 0;
    default:
      return std::nearbyint(value);
  }
}

AsyncLaunches& launches(const World& world) {
  return dynamic_cast<AsyncDevice&>(world.device()).launches();
}

TensorBackend tested_backend() {
  TensorBackend out{.name = runs_async() ? "async" : "cpu",
                    .make = [] { return World(make_test_device(9, kCapacity)); },
                    .make_meta = [] { return World(make_test_meta(9, kCapacity)); }};
  if (!runs_async()) return out;
  out.more_workspaces = [](const World& w) { return launches(w).more_workspaces(); };
  out.fail_launch = [](const World& w, std::uint64_t position) {
    position > 0 ? launches(w).fail_at(position) : launches(w).fail_none();
  };
  return out;
}

}  // namespace

const std::vector<TensorBackend>& tensor_backends() {
  static const std::vector<TensorBackend> kBackends{tested_backend()};
  return kBackends;
}

Array draw(const Input& input, DType dtype, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> number(input.low, input.high);
  const DType type = input.fixed.value_or(dtype);
  return make(input.shape, [&](const Dims&) { return rounded(number(random), type); });
}

Tensor put(const Array& values, DType dtype, Layout layout, const Place& place) {
  const TensorOptions options{.dtype = kF64, .device = place};
  Tensor dense = from(values.values, values.shape, options).to(dtype);
  if (layout == Layout::kContiguous || values.shape.empty()) return dense;
  if (layout == Layout::kTransposed) {
    const int last = dense.dim() - 1;
    return dense.transpose(0, last).clone().transpose(0, last);
  }
  // Every other element of something larger, with a border.
  Shape shape = values.shape;
  const int dim = shape.size() - 1;
  shape[dim] = 2 * shape[dim] + 3;
  const Tensor large = zeros(shape, {.dtype = dtype, .device = place});
  Tensor part = large.slice(dim, 1, 1 + 2 * values.shape[dim], 2);
  part.copy_(dense);
  return part;
}

Array take(const Tensor& tensor) {
  return {.shape = tensor.shape(), .values = tensor.to_doubles()};
}

void EventLog::record(const memory::Event& event) noexcept {
  const auto found = std::find(addresses_.begin(), addresses_.end(), event.address);
  const auto number = found - addresses_.begin();
  if (found == addresses_.end()) addresses_.push_back(event.address);
  actions_.push_back(event.action);
  lines_.push_back(std::string(to_string(event.action)) + " " +
                   std::string(to_string(event.category)) + " " + std::to_string(event.size_bytes) +
                   " at " + std::to_string(number) + (event.is_small ? " small" : " large") +
                   " stream " + std::to_string(to_integer(event.stream)) + " note " +
                   std::to_string(event.annotation));
}

int EventLog::count(memory::Action action) const {
  return static_cast<int>(std::count(actions_.begin(), actions_.end(), action));
}

}  // namespace headroom::testing
