#include "headroom/tensor/device_random.h"

#include <utility>

#include "headroom/tensor/internal/op.h"

namespace headroom {
namespace {

using namespace tensor;  // NOLINT(google-build-using-namespace): the op layer's own words

// The scopes of this thread, innermost first. They live on the stack.
thread_local constinit const DeviceRandomScope* t_innermost_draws = nullptr;

// Kernels take the bits as unsigned.
void write_word(const Tensor& state, std::int64_t at, std::uint64_t value) {
  const Scalar bits(static_cast<std::int64_t>(value));
  run_element(ElementOp::kCopy, DType::kI64, state.narrow(0, at, 1), {bits});
}

}  // namespace

DeviceRandomScope::DeviceRandomScope(const Tensor& state)
    : state_(state), first_(default_generator(state.device()).state()) {
  if (state.dtype() != DType::kI64 || state.shape() != Shape{2}) {
    throw InvalidArgument("DeviceRandomScope: i64[2] is wanted, not " +
                          std::string(to_string(state.dtype())) + to_string(state.shape()));
  }
  const GradModeScope no_grad(false);
  write_word(state_, 0, first_.seed);
  write_word(state_, 1, first_.offset);
  state_.storage().bump_version();
  outer_ = std::exchange(t_innermost_draws, this);
}

DeviceRandomScope::~DeviceRandomScope() { t_innermost_draws = outer_; }

RandomSource DeviceRandomScope::source_of(const Generator::State& drawn,
                                          const device::Device& device) noexcept {
  for (const DeviceRandomScope* scope = t_innermost_draws; scope != nullptr;
       scope = scope->outer_) {
    if (&scope->state_.device() != &device) continue;
    if (scope->first_.seed != drawn.seed) break;
    return {.offset = drawn.offset - scope->first_.offset,
            .state = reinterpret_cast<const std::uint64_t*>(scope->state_.address())};
  }
  return {.seed = drawn.seed, .offset = drawn.offset};
}

}  // namespace headroom
