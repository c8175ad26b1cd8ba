// Random numbers whose seed and first counter kernels read in device memory: what a step needs that
// is captured once and replayed with other numbers each time.
//
//   Tensor state = empty({2}, {.dtype = kI64, .device = x.device()});
//   {
//     const DeviceRandomScope draws(state);
//     y = dropout(x, 0.1);             // the same numbers as without the scope
//   }
#pragma once

#include "headroom/tensor/element_args.h"
#include "headroom/tensor/generator.h"
#include "headroom/tensor/tensor.h"

namespace headroom {

// While one lives, ops of this thread on the device of `state` (i64, two elements) draw through it.
// It starts where the device's generator is, which goes on counting: a replay that is to draw other
// numbers writes another first counter. Scopes nest; the innermost of a device counts, unless the
// seed was changed since it began.
class DeviceRandomScope {
 public:
  // Writes where the generator is, in the order of the current stream.
  explicit DeviceRandomScope(const Tensor& state);
  ~DeviceRandomScope();
  DeviceRandomScope(const DeviceRandomScope&) = delete;
  DeviceRandomScope& operator=(const DeviceRandomScope&) = delete;

  // Where an op on the device is to draw what the generator gave it.
  [[nodiscard]] static tensor::RandomSource source_of(const Generator::State& drawn,
                                                      const device::Device& device) noexcept;

 private:
  Tensor state_;
  Generator::State first_;
  const DeviceRandomScope* outer_;
};

}  // namespace headroom
