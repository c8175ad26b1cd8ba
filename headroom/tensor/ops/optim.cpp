#include "headroom/tensor/ops/optim.h"

#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "headroom/tensor/internal/op.h"

namespace headroom {
namespace {

using namespace tensor;  // NOLINT(google-build-using-namespace): the op layer's own words

std::string described(const Tensor& x) {
  return std::string(to_string(x.dtype())) + to_string(x.shape()) + " on " +
         to_string(x.device().id());
}

void check_dense(const char* op, const char* what, const Tensor& x) {
  check_floating(op, x);
  if (x.is_contiguous()) return;
  throw InvalidArgument(std::string(op) + ": a contiguous " + what + " is wanted, not " +
                        described(x) + " with strides of its own; clone it");
}

void check_alike(const char* op, const char* what, const Tensor& param, const Tensor& own) {
  if (own.shape() == param.shape() && own.dtype() == param.dtype() &&
      &own.device() == &param.device()) {
    return;
  }
  throw InvalidArgument(std::string(op) + ": a " + what + " of " + described(own) + " for " +
                        described(param));
}

void* pointer_or_none(const Tensor& x) { return x.defined() ? pointer(x) : nullptr; }

// What goes to one device, in the order of the list.
struct DeviceList {
  Tensor like{};
  MultiTensorArgs args{};
};

// One a device, in the order of their first tensor.
class DeviceLists {
 public:
  DeviceLists(const char* op, MultiTensorArgs common) : op_(op), common_(std::move(common)) {}
  void add(const Tensor& like, const MultiTensorEntry& entry) {
    const auto [at, is_new] = places_.try_emplace(&like.device(), lists_.size());
    if (is_new) lists_.push_back({.like = like, .args = common_});
    if (entry.numel > 0) lists_[at->second].args.entries.push_back(entry);
  }
  [[nodiscard]] std::vector<DeviceList>& lists() { return lists_; }
  void run() const {
    for (const DeviceList& list : lists_) {
      launch(op_, list.like, &Kernels::multi_tensor, list.args);
    }
  }

 private:
  const char* op_;
  MultiTensorArgs common_;
  std::vector<DeviceList> lists_{};
  std::map<const device::Device*, std::size_t> places_{};
};

void check_updated(const char* op, const Updated& one) {
  check_dense(op, "parameter", one.param);
  check_alike(op, "gradient", one.param, one.grad);
  for (const Tensor* state : {&one.first, &one.second}) {
    if (!state->defined()) continue;
    check_alike(op, "state", one.param, *state);
    check_dense(op, "state", *state);
  }
}

void update_list(const char* op, std::span<const Updated> list, MultiTensorArgs common) {
  const GradModeScope no_grad(false);
  for (const Updated& one : list) check_updated(op, one);
  DeviceLists lists(op, std::move(common));
  std::vector<Tensor> dense;  // to the end of the launch
  for (const Updated& one : list) {
    for (const Tensor* written : {&one.param, &one.first, &one.second}) {
      if (written->defined()) check_in_place(op, *written);
    }
    dense.push_back(one.grad.contiguous());
    lists.add(one.param,
              {.dtype = one.param.dtype(),
               .numel = one.param.numel(),
               .param = pointer(one.param),
               .grad = pointer(dense.back()),
               .first = pointer_or_none(one.first),
               .second = pointer_or_none(one.second),
               .step = one.step});
  }
  lists.run();
  for (const Updated& one : list) {
    for (const Tensor* written : {&one.param, &one.first, &one.second}) {
      if (written->defined()) written->storage().bump_version();
    }
  }
}

void add_gradient(DeviceLists& lists, const Tensor& x) {
  lists.add(x, {.dtype = x.dtype(), .numel = x.numel(), .grad = pointer(x)});
}

DeviceLists written_lists(const char* op, std::span<const Tensor> list, MultiTensorArgs common) {
  for (const Tensor& x : list) check_dense(op, "tensor", x);
  for (const Tensor& x : list) check_in_place(op, x);
  DeviceLists lists(op, std::move(common));
  for (const Tensor& x : list) add_gradient(lists, x);
  return lists;
}

void bump_all(std::span<const Tensor> list) {
  for (const Tensor& x : list) x.storage().bump_version();
}

std::int64_t pieces_of(const MultiTensorArgs& args) {
  std::int64_t sum = 0;
  for (const MultiTensorEntry& entry : args.entries) sum += multi_tensor_pieces(entry.numel);
  return sum;
}

}  // namespace

void sgd_(std::span<const Updated> list, const SgdUpdate& update) {
  update_list("sgd_",
              list,
              {.op = MultiTensorOp::kSgd,
               .lr = update.lr,
               .weight_decay = update.weight_decay,
               .momentum = update.momentum,
               .dampening = update.dampening,
               .is_nesterov = update.is_nesterov});
}

void adam_(std::span<const Updated> list, const AdamUpdate& update) {
  for (const Updated& one : list) {
    if (one.first.defined() && one.second.defined()) continue;
    throw InvalidArgument("adam_: both states are wanted for " + described(one.param));
  }
  update_list("adam_",
              list,
              {.op = MultiTensorOp::kAdam,
               .lr = update.lr,
               .weight_decay = update.weight_decay,
               .beta1 = update.beta1,
               .beta2 = update.beta2,
               .eps = update.eps,
               .is_decoupled = update.is_decoupled});
}

void scale_(std::span<const Tensor> list, double factor) {
  const GradModeScope no_grad(false);
  written_lists("scale_", list, {.op = MultiTensorOp::kScale, .factor = factor}).run();
  bump_all(list);
}

bool unscale_(std::span<const Tensor> list, double factor) {
  const GradModeScope no_grad(false);
  DeviceLists lists =
      written_lists("unscale_", list, {.op = MultiTensorOp::kUnscale, .factor = factor});
  std::vector<Tensor> found;
  for (DeviceList& one : lists.lists()) {
    found.push_back(new_workspace("unscale_", one.like, {}, DType::kF32));
    one.args.found = static_cast<float*>(pointer(found.back()));
  }
  lists.run();
  bump_all(list);
  bool is_finite = true;
  for (const Tensor& one : found) {
    if (!one.is_meta()) is_finite = one.item<double>() == 0 && is_finite;
  }
  return is_finite;
}

std::optional<double> norm_of(std::span<const Tensor> list) {
  const GradModeScope no_grad(false);
  for (const Tensor& x : list) check_dense("norm_of", "tensor", x);
  DeviceLists lists("norm_of", {.op = MultiTensorOp::kSquareSums});
  for (const Tensor& x : list) add_gradient(lists, x);
  std::vector<Tensor> partials;
  for (DeviceList& one : lists.lists()) {
    partials.push_back(new_workspace("norm_of", one.like, {pieces_of(one.args)}, DType::kF64));
    one.args.partial = static_cast<double*>(pointer(partials.back()));
  }
  lists.run();
  double sum = 0;
  for (const Tensor& partial : partials) {
    if (partial.is_meta()) return std::nullopt;
    for (const double value : partial.to_doubles()) sum += value;
  }
  return std::sqrt(sum);
}

}  // namespace headroom
