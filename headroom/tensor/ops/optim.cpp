#include "headroom/tensor/ops/optim.h"

#include <cstring>
#include <limits>
#include <utility>

#include "headroom/tensor/internal/op.h"
#include "headroom/tensor/ops/creation.h"

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

void check_updated(const char* op, const UpdatedTensor& one) {
  check_floating(op, one.grad);
  if (!one.param.defined()) return;
  check_dense(op, "parameter", one.param);
  check_alike(op, "gradient", one.param, one.grad);
  for (const Tensor* state : {&one.first, &one.second}) {
    if (!state->defined()) continue;
    check_alike(op, "state", one.param, *state);
    check_dense(op, "state", *state);
  }
  if (one.step.defined() && one.step.dtype() == DType::kI64 && one.step.numel() == 1) return;
  throw InvalidArgument(std::string(op) + ": a count of steps is wanted, i64 of one element");
}

void* pointer_or_none(const Tensor& x) { return x.defined() ? pointer(x) : nullptr; }

double* number_pointer(const Tensor& x) { return static_cast<double*>(pointer_or_none(x)); }

// Of one element, where the part is.
Tensor number_at(const Tensor& number, const Tensor& like) {
  if (!number.defined() || &number.device() == &like.device()) return number;
  return number.to(like.storage().allocator());
}

void fill_number(const Tensor& number, double value) {
  run_element(ElementOp::kCopy, number.dtype(), number, {Scalar(value)});
}

template <class F>
void for_written(const std::vector<UpdatedTensor>& list, F&& f) {
  for (const UpdatedTensor& one : list) {
    for (const Tensor* written : {&one.param, &one.first, &one.second, &one.step}) {
      if (written->defined()) f(*written);
    }
  }
}

}  // namespace

// --- The list ------------------------------------------------------------------------------------

void TensorList::assign(const char* op, std::vector<UpdatedTensor> list) {
  const GradModeScope no_grad(false);
  for (const UpdatedTensor& one : list) check_updated(op, one);
  clear();
  op_ = op;
  list_ = std::move(list);
  for (const UpdatedTensor& one : list_) {
    dense_.push_back(one.grad.contiguous());
    const Tensor& grad = dense_.back();
    const auto [at, is_new] = places_.try_emplace(&grad.device(), parts_.size());
    if (is_new) parts_.emplace_back();
    Part& part = parts_[at->second];
    if (!part.like.defined()) part.like = grad;
    if (grad.numel() == 0) continue;
    part.entries.push_back({.dtype = grad.dtype(),
                            .numel = grad.numel(),
                            .first_piece = part.pieces,
                            .param = pointer_or_none(one.param),
                            .grad = pointer(grad),
                            .first = pointer_or_none(one.first),
                            .second = pointer_or_none(one.second),
                            .step = static_cast<std::int64_t*>(pointer_or_none(one.step))});
    part.pieces += multi_tensor_pieces(grad.numel());
  }
}

void TensorList::clear() noexcept {
  list_.clear();
  dense_.clear();
  for (Part& part : parts_) {
    part.like = {};
    part.entries.clear();
    part.pieces = 0;
  }
}

std::vector<TensorList::Part*> TensorList::parts() {
  std::vector<Part*> out;
  for (Part& part : parts_) {
    if (part.like.defined()) out.push_back(&part);
  }
  return out;
}

Tensor TensorList::made(const Part& part, const Shape& shape, DType dtype) const {
  memory::Allocator& allocator = part.like.storage().allocator();
  if (category_ == memory::Category::kWorkspace) {
    return new_tensor(op_, allocator, shape, dtype, category_);
  }
  const memory::CategoryScope category(category_);
  return new_tensor(op_, allocator, shape, dtype, category_);
}

bool TensorList::is_current(const Part& part, const Tensor& own, std::int64_t numel) const {
  return own.defined() && own.numel() == numel &&
         own.storage().stream() == current_stream_id(part.like.device());
}

void TensorList::write_table(Part& part) {
  const std::uint64_t bytes = part.entries.size() * sizeof(MultiTensorEntry);
  const auto numel = static_cast<std::int64_t>(bytes);
  const bool is_there = is_current(part, part.table, numel);
  if (is_there && part.uploaded == part.entries) return;
  if (!is_there) {
    part.table = {};  // its memory is there for the next
    part.table = made(part, {numel}, DType::kU8);
  }
  part.uploaded.clear();  // until it is there
  std::vector<std::byte> rows(bytes);
  std::memcpy(rows.data(), part.entries.data(), bytes);
  upload(part.table, std::move(rows));
  part.uploaded = part.entries;
}

void TensorList::write_lr(Part& part, double lr) {
  const bool is_there = is_current(part, part.lr, 1);
  if (is_there && part.written_lr == lr) return;
  if (!is_there) {
    part.lr = {};
    part.lr = made(part, {}, DType::kF64);
  }
  fill_number(part.lr, lr);
  part.written_lr = lr;
}

void TensorList::write_lr(double lr) {
  for (Part& part : parts_) {
    if (!part.lr.defined() || part.written_lr == lr) continue;
    fill_number(part.lr, lr);
    part.written_lr = lr;
  }
}

void TensorList::run(Part& part, MultiTensorArgs args) {
  if (part.entries.empty()) return;
  write_table(part);
  args.entries = static_cast<const MultiTensorEntry*>(pointer(part.table));
  args.count = static_cast<std::int64_t>(part.entries.size());
  args.pieces = part.pieces;
  launch(op_, part.like, &Kernels::multi_tensor, args);
}

// --- Updates -------------------------------------------------------------------------------------

void TensorList::update(const MultiTensorArgs& args, double lr, const Tensor& skip) {
  const GradModeScope no_grad(false);
  for_written(list_, [this](const Tensor& x) { check_in_place(op_, x); });
  for (Part* part : parts()) {
    write_lr(*part, lr);
    const Tensor skip_here = number_at(skip, part->like);
    MultiTensorArgs own = args;
    own.lr = number_pointer(part->lr);
    own.skip = number_pointer(skip_here);
    run(*part, own);
    run(*part, {.op = MultiTensorOp::kCountStep, .skip = own.skip});
  }
  for_written(list_, [](const Tensor& x) { x.storage().bump_version(); });
}

void TensorList::sgd_(const SgdUpdate& update, const Tensor& skip) {
  TensorList::update({.op = MultiTensorOp::kSgd,
                      .weight_decay = update.weight_decay,
                      .momentum = update.momentum,
                      .dampening = update.dampening,
                      .is_nesterov = update.is_nesterov},
                     update.lr,
                     skip);
}

void TensorList::adam_(const AdamUpdate& update, const Tensor& skip) {
  for (const UpdatedTensor& one : list_) {
    if (one.first.defined() && one.second.defined()) continue;
    throw InvalidArgument("adam_: both states are wanted for " + described(one.param));
  }
  TensorList::update({.op = MultiTensorOp::kAdam,
                      .weight_decay = update.weight_decay,
                      .beta1 = update.beta1,
                      .beta2 = update.beta2,
                      .eps = update.eps,
                      .is_decoupled = update.is_decoupled},
                     update.lr,
                     skip);
}

// --- Gradients -----------------------------------------------------------------------------------

void TensorList::check_gradients() const {
  for (const UpdatedTensor& one : list_) check_dense(op_, "tensor", one.grad);
}

// The partial sums of all parts, on the device of the first.
Tensor TensorList::clip_numbers(double most) {
  const GradModeScope no_grad(false);
  check_gradients();
  const std::vector<Part*> all = parts();
  if (all.empty()) return zeros({2}, {.dtype = DType::kF64});
  const Tensor& like = all.front()->like;
  std::int64_t pieces = 0;
  for (const Part* part : all) pieces += part->pieces;
  const Tensor partial = new_workspace(op_, like, {pieces}, DType::kF64);
  std::int64_t done = 0;
  for (Part* part : all) {
    const Tensor own = partial.narrow(0, done, part->pieces);
    done += part->pieces;
    const bool is_first = part == all.front();
    const Tensor here =
        is_first ? own : new_workspace(op_, part->like, {part->pieces}, DType::kF64);
    run(*part, {.op = MultiTensorOp::kSquareSums, .partial = number_pointer(here)});
    if (!is_first) own.copy_(here);
  }
  Tensor out = new_output(op_, like, {2}, DType::kF64);
  launch(op_,
         out,
         &Kernels::step_numbers,
         StepNumberArgs{.op = StepNumberOp::kClip,
                        .partial = number_pointer(partial),
                        .count = pieces,
                        .most = most,
                        .norm = number_pointer(out),
                        .factor = number_pointer(out) + 1});
  return out;
}

void TensorList::multiply(const Tensor& factor) {
  for (const UpdatedTensor& one : list_) check_in_place(op_, one.grad);
  for (Part* part : parts()) {
    const Tensor here = number_at(factor, part->like);
    run(*part, {.op = MultiTensorOp::kScale, .factor = number_pointer(here)});
  }
  for (const UpdatedTensor& one : list_) one.grad.storage().bump_version();
}

Tensor TensorList::norm() {
  const GradModeScope no_grad(false);
  return clip_numbers(std::numeric_limits<double>::infinity()).select(0, 0);
}

Tensor TensorList::clip_norm_(double most) {
  const GradModeScope no_grad(false);
  const Tensor numbers = clip_numbers(most);
  multiply(numbers.select(0, 1));
  return numbers.select(0, 0);
}

void TensorList::scale_(double factor) {
  const GradModeScope no_grad(false);
  check_gradients();
  const std::vector<Part*> all = parts();
  if (all.empty()) return;
  const Tensor number = new_workspace(op_, all.front()->like, {}, DType::kF64);
  fill_number(number, factor);
  multiply(number);
}

void TensorList::unscale_(const Tensor& scale, const Tensor& found) {
  const GradModeScope no_grad(false);
  check_gradients();
  for (const UpdatedTensor& one : list_) check_in_place(op_, one.grad);
  fill_number(found, 0);
  for (Part* part : parts()) {
    const Tensor scale_here = number_at(scale, part->like);
    const Tensor found_here = number_at(found, part->like);
    run(*part,
        {.op = MultiTensorOp::kUnscale,
         .factor = number_pointer(scale_here),
         .found = number_pointer(found_here)});
    if (!found_here.is_same(found)) found.copy_(found_here);
  }
  for (const UpdatedTensor& one : list_) one.grad.storage().bump_version();
}

void next_loss_scale_(const Tensor& scale,
                      const Tensor& found,
                      const Tensor& good_steps,
                      const LossScaleRule& rule) {
  const GradModeScope no_grad(false);
  for (const Tensor* number : {&scale, &found, &good_steps}) {
    check_in_place("next_loss_scale_", *number);
  }
  launch("next_loss_scale_",
         scale,
         &Kernels::step_numbers,
         StepNumberArgs{.op = StepNumberOp::kScale,
                        .scale = number_pointer(scale),
                        .found = number_pointer(found),
                        .good_steps = number_pointer(good_steps),
                        .growth = rule.growth,
                        .backoff = rule.backoff,
                        .growth_interval = rule.growth_interval});
  for (const Tensor* number : {&scale, &found, &good_steps}) number->storage().bump_version();
}

Tensor scaled_by(const Tensor& x, const Tensor& number) {
  check_floating("scaled_by", x);
  check_same_device("scaled_by", x, number);
  const Tensor y = new_output("scaled_by", x, x.shape(), x.dtype());
  run_element(ElementOp::kMul, x.dtype(), y, {x, number});
  return record({"scaled_by", kEachOutput}, {&x}, y, {save_input(number)}, [](BackwardArgs& b) {
    b.set_grad(0, scaled_by(b.grad(), b.saved(0)));
  });
}

}  // namespace headroom
