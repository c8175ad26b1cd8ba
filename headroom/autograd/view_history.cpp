#include "headroom/autograd/internal/view_history.h"

#include <utility>

#include "headroom/tensor/ops/creation.h"
#include "headroom/tensor/ops/reduce.h"

namespace headroom::autograd::internal {
namespace {

// Another look at the elements of `buffer`, without history.
Tensor strided(const Tensor& buffer, const Layout& layout) {
  auto impl = std::make_shared<tensor::Impl>(buffer.impl());
  impl->shape = layout.shape;
  impl->strides = layout.strides;
  impl->offset = layout.offset;
  impl->numel = checked_numel("view", layout.shape);
  impl->base = nullptr;
  impl->grad_state = nullptr;
  return Tensor(std::move(impl));
}

// Past the last element, counted from the first.
std::int64_t extent(const Layout& layout) {
  std::int64_t last = 0;
  for (int i = 0; i < layout.shape.size(); ++i) {
    if (layout.shape[i] == 0) return 0;
    last += (layout.shape[i] - 1) * layout.strides[i];
  }
  return last + 1;
}

// A buffer in which a gradient of the base lies as the base does, so that views of the one are
// views of the other. All zero.
Tensor buffer_for(const Layout& base, const Tensor& grad) {
  return zeros({extent(base)}, {.dtype = grad.dtype(), .device = grad.storage().allocator()});
}

Layout moved(const Layout& layout, const Layout& base) {
  Layout out = layout;
  out.offset -= base.offset;
  return out;
}

// Elements that an expanded view shows several times get the sum of their gradients.
Tensor sum_expanded(const Tensor& grad, Layout& part) {
  Tensor out = grad;
  for (int i = 0; i < part.shape.size(); ++i) {
    if (part.strides[i] != 0 || part.shape[i] <= 1) continue;
    out = sum(out, {i}, /*keepdim=*/true);
    part.shape[i] = 1;
  }
  return out;
}

// The arguments of the write's own backward: the part's gradient for the whole's.
class PartArgs final : public tensor::BackwardArgs {
 public:
  PartArgs(tensor::BackwardArgs& whole, Tensor grad) : whole_(whole), grad_(std::move(grad)) {}

  const Tensor& grad() override { return grad_; }
  Tensor saved(std::size_t slot) override { return whole_.saved(slot); }
  [[nodiscard]] bool needs(std::size_t input) const override { return whole_.needs(input); }
  void set_grad(std::size_t input, const Tensor& gradient) override {
    input == 0 ? static_cast<void>(before = gradient) : whole_.set_grad(input, gradient);
  }

  Tensor before{};  // of what was in the part before the write

 private:
  tensor::BackwardArgs& whole_;
  Tensor grad_;
};

}  // namespace

tensor::BackwardFunction backward_of_part(tensor::BackwardFunction write,
                                          const Layout& base,
                                          const Layout& part) {
  return [write = std::move(write), own = moved(base, base), at = moved(part, base)](
             tensor::BackwardArgs& b) {
    tensor::refuse_second_derivative("a write to a view", {&b.grad()});
    const Tensor buffer = buffer_for(own, b.grad());
    strided(buffer, own).copy_(b.grad());
    const Tensor here = strided(buffer, at);
    // A copy: what the write makes of it must not change when `here` does.
    PartArgs args(b, here.clone());
    write(args);
    if (!b.needs(0)) return;
    args.before.defined() ? here.copy_(args.before) : here.zero_();
    b.set_grad(0, strided(buffer, own));
  };
}

void refresh_view(tensor::Impl& impl) {
  if (!impl.base || impl.is_untracked) return;
  const std::shared_ptr<tensor::GradState>& current = impl.base->grad_state;
  const State* const own = state_of(impl);
  if (own != nullptr && own->node && own->node->is_leaf()) return;
  if (own != nullptr ? own->base_state == current : !current) return;
  const State* const base = state_of(*impl.base);
  if (base == nullptr || !base->requires_grad()) return;
  const Layout whole = layout_of(*impl.base);
  const Layout part = layout_of(impl);
  std::shared_ptr<State> state = make_state(std::make_shared<Node>(Node::Parts{
      .name = "view",
      .inputs = {base->node},
      .backward =
          [own_layout = moved(whole, whole), at = moved(part, whole)](tensor::BackwardArgs& b) {
            tensor::refuse_second_derivative("a view of what was written to", {&b.grad()});
            Layout once = at;
            const Tensor grad = sum_expanded(b.grad(), once);
            const Tensor buffer = buffer_for(own_layout, grad);
            strided(buffer, once).copy_(grad);
            b.set_grad(0, strided(buffer, own_layout));
          },
      .like = {.shape = impl.shape, .dtype = impl.dtype, .device = &impl.storage->device()}}));
  state->base_state = current;
  if (own != nullptr) state->slot = own->slot;
  impl.grad_state = std::move(state);
}

}  // namespace headroom::autograd::internal
