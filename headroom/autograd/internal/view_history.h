// Writes to views. A view and what it views share elements, so a write to one gives both another
// history:
//
//   y = x * 2;  v = y[0];  v.exp_()
//
//   x -- mul -- exp_ on a part of y -- y            v is found again from there: -- strided -- v
//
// The base's history is changed at once, that of its views when somebody next asks for it.
#pragma once

#include "headroom/autograd/internal/state.h"

namespace headroom::autograd::internal {

// Where elements lie in a storage.
struct Layout {
  Shape shape{};
  Strides strides{};
  std::int64_t offset = 0;
};

[[nodiscard]] inline Layout layout_of(const tensor::Impl& impl) {
  return {.shape = impl.shape, .strides = impl.strides, .offset = impl.offset};
}

// Brings the state of a view up to date.
void refresh_view(tensor::Impl& impl);

// The backward of a write to a part of something, from that of the write: what is outside of the
// part passes through.
[[nodiscard]] tensor::BackwardFunction backward_of_part(tensor::BackwardFunction write,
                                                        const Layout& base,
                                                        const Layout& part);

}  // namespace headroom::autograd::internal
