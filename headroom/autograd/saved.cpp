#include "headroom/autograd/saved.h"

#include <string>
#include <utility>

#include "headroom/autograd/internal/saved_hooks.h"
#include "headroom/autograd/internal/state.h"
#include "headroom/autograd/node.h"
#include "headroom/base/error.h"

namespace headroom::autograd {
namespace {

// "f32[2, 3] of layer1".
std::string describe_saved(const Tensor& tensor) {
  std::string out = std::string(to_string(tensor.dtype())) + to_string(tensor.shape());
  const std::string path = memory::annotation_path(tensor.storage().annotation());
  return path.empty() ? out : out + " of " + path;
}

std::string writer_of(const Tensor& tensor) {
  const char* writer = tensor.storage().writer();
  return writer != nullptr ? writer : "somebody";
}

}  // namespace

Saved::Saved(const char* op, const Tensor& tensor, NodePtr node, bool is_own_output, bool is_made)
    : node_(std::move(node)),
      is_own_output_(is_own_output),
      is_made_(is_made),
      shape_(tensor.shape()),
      dtype_(tensor.dtype()),
      hooks_(internal::current_saved_hooks()) {
  if (tensor.storage().is_inference()) {
    throw InvalidArgument(std::string(op) + ": " + describe_saved(tensor) +
                          " was made in inference mode and cannot be saved for backward; clone it "
                          "outside");
  }
  if (!hooks_) {
    tensor_ = tensor.detach();
    version_ = tensor.version();
    return;
  }
  const GradModeScope no_grad(false);
  const internal::SavingOpScope saving(op);
  packed_ = hooks_->pack(is_own_output ? tensor.detach() : tensor);
}

void Saved::check(const char* op) const {
  if (!tensor_.defined() || tensor_.version() == version_) return;
  throw Error("backward: " + std::string(op) + " saved " + describe_saved(tensor_) +
              " at version " + std::to_string(version_) + ", but " + writer_of(tensor_) +
              " has since made it version " + std::to_string(tensor_.version()) +
              "; do not write to it in place, or give " + op + " a clone");
}

Tensor Saved::unpacked(const char* op) const {
  if (!hooks_) {
    check(op);
    return tensor_;
  }
  const GradModeScope no_grad(false);
  // The result is the tensor that was saved, not a gradient.
  const memory::CategoryScope own_category(memory::Category::kUnknown);
  Tensor out = hooks_->unpack(packed_);
  if (!out.defined() || out.shape() != shape_ || out.dtype() != dtype_) {
    throw InvalidArgument("backward: an unpack hook gave " +
                          (out.defined() ? describe_saved(out) : "nothing") + " for what " + op +
                          " saved as " + std::string(to_string(dtype_)) + to_string(shape_));
  }
  return out;
}

Tensor Saved::unpack(Node& owner) const {
  if (is_empty()) return {};
  Tensor out = unpacked(owner.name());
  if (!GradMode::is_enabled()) return out;
  if (is_made_ && is_differentiable(dtype_)) tensor::refuse_second_derivative(owner.name());
  const NodePtr node = is_own_output_ ? owner.shared_from_this() : node_;
  if (!node) return out;
  out = out.detach();
  out.impl().grad_state = internal::make_state(node);
  return out;
}

}  // namespace headroom::autograd
