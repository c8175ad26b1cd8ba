#include "headroom/autograd/internal/leaf.h"

#include <utility>

#include "headroom/tensor/ops/binary.h"

namespace headroom::autograd::internal {
namespace {

// An expanded dimension has several elements in one place.
bool is_expanded(const Tensor& tensor) {
  for (int i = 0; i < tensor.dim(); ++i) {
    if (tensor.shape()[i] > 1 && tensor.strides()[i] == 0) return true;
  }
  return false;
}

// As a leaf's gradient for good: exactly its own memory, of the right category.
bool may_keep(const Tensor& tensor) {
  return is_ours(tensor) && tensor.is_contiguous() &&
         tensor.storage().size_bytes() == tensor.size_bytes() &&
         tensor.storage().category() == memory::Category::kGradient;
}

Tensor kept(const Tensor& gradient) {
  if (!may_keep(gradient)) return gradient.clone();
  // The tensor it is a view of has no other user.
  return gradient.impl().base && !gradient.requires_grad() ? gradient.detach() : gradient;
}

}  // namespace

bool may_write(const Tensor& tensor) {
  return !GradMode::is_enabled() && !tensor.requires_grad() && !is_expanded(tensor);
}

bool is_ours(const Tensor& tensor) {
  const std::shared_ptr<tensor::Impl>& impl = tensor.shared();
  if (impl.use_count() != 1) return false;
  const bool is_view = impl->base != nullptr;
  if (is_view && impl->base.use_count() != 1) return false;
  return impl->storage.use_count() == (is_view ? 2 : 1);
}

void add_to(Tensor& sum, Tensor gradient) {
  if (!gradient.defined()) return;
  if (!sum.defined()) {
    sum = std::move(gradient);
  } else if (is_ours(sum) && may_write(sum)) {
    sum.add_(gradient);
  } else if (is_ours(gradient) && may_write(gradient)) {
    gradient.add_(sum);
    sum = std::move(gradient);
  } else {
    sum = add(sum, gradient);
  }
}

Leaf::Leaf(const Tensor& tensor, const std::shared_ptr<GradSlot>& slot)
    : Node("leaf", spec_of(tensor), tensor.storage().annotation()),
      tensor_(tensor.shared()),
      slot_(slot) {}

Tensor Leaf::open_sum(OpenSum& open) {
  const Tensor self = tensor();
  std::shared_ptr<GradSlot> slot = slot_.lock();
  if (!slot || !self.defined() || !self.requires_grad() || has_pre_hooks()) return {};
  std::unique_lock lock(slot->mutex, std::try_to_lock);
  if (!lock || !slot->grad.defined() || !may_write(slot->grad) || !slot->grad.is_contiguous()) {
    return {};
  }
  slot->order_write();
  Tensor out = slot->grad;
  open = {.slot = std::move(slot), .lock = std::move(lock)};
  return out;
}

void Leaf::accumulate(const Tensor& gradient) {
  const Tensor self = tensor();
  const std::shared_ptr<GradSlot> slot = slot_.lock();
  if (!slot || !self.defined() || !self.requires_grad()) return;
  const std::lock_guard lock(slot->mutex);
  Tensor& sum = slot->grad;
  if (!sum.defined()) {
    sum = kept(gradient);
    slot->writer = current_stream(sum.device());
    return;
  }
  slot->order_write();
  if (may_write(sum)) {
    sum.add_(gradient);
  } else {
    sum = add(sum, gradient);
  }
}

}  // namespace headroom::autograd::internal
