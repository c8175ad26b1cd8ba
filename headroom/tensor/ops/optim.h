// Updates of many tensors at once, in place, for optimisers: one launch over the whole list,
// without a temporary of its size. headroom/nn/optim has the optimisers themselves.
//
//   TensorList list;                                   // kept from step to step
//   list.assign("adam_", {{.param = w, .grad = g, .first = m, .second = v, .step = count}});
//   list.clip_norm_(1.0);
//   list.adam_({.lr = 1e-3});
//
// Kernels read the list, the learning rate and all other numbers that change from step to step in
// device memory, so the host waits for nothing and a captured step can be replayed.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "headroom/tensor/optim_args.h"
#include "headroom/tensor/tensor.h"

namespace headroom {

// A parameter with its gradient and state, all of one shape, type and device. Dense, but for the
// gradient, of which an update makes a copy where it is not.
struct UpdatedTensor {
  Tensor param{};
  Tensor grad{};
  Tensor first{};   // momentum; undefined for SGD without
  Tensor second{};  // Adam's mean of squares
  // i64, one element: the steps that this parameter has taken, which an update counts. At 0, what
  // is in the state is not looked at.
  Tensor step{};
};

struct SgdUpdate {
  double lr = 0;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool is_nesterov = false;
};

struct AdamUpdate {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool is_decoupled = false;  // AdamW: the decay is not part of the gradient
};

// A list of tensors as kernels read it: a table for each device they are on, written again when the
// list is another one. Nothing that is done to it is recorded. Numbers that ops take or give as a
// tensor are f64 and have one element; where such a one is on another device than a part of the
// list, the host waits for a copy.
class TensorList {
 public:
  // Where `category` is workspace, nothing is kept for another use.
  explicit TensorList(memory::Category category = memory::Category::kWorkspace)
      : category_(category) {}

  // The tensors of the calls below, until clear(), which drops the tensors and keeps the tables.
  // Throws InvalidArgument, in the name of `op`, for what does not go together.
  void assign(const char* op, std::vector<UpdatedTensor> list);
  void clear() noexcept;

  // Changes the parameters and their state, and counts their steps; nothing where `skip` is defined
  // and not 0.
  void sgd_(const SgdUpdate& update, const Tensor& skip = {});
  void adam_(const AdamUpdate& update, const Tensor& skip = {});
  // Writes a learning rate where kernels read it. The updates do so by themselves when it changed;
  // before the replay of a captured step, somebody must.
  void write_lr(double lr);

  // The 2-norm of all elements of all gradients, added up in f64 in an order that shapes alone
  // decide. On the device of the first.
  [[nodiscard]] Tensor norm();
  // Scales the gradients so that their norm is at most `most`, and returns what it was.
  Tensor clip_norm_(double most);
  // Multiplies all gradients.
  void scale_(double factor);
  // Divides all gradients by `scale`; `found` becomes 1 where one is not finite, else 0.
  void unscale_(const Tensor& scale, const Tensor& found);

 private:
  // The part of the list on one device.
  struct Part {
    Tensor like{};  // places what is made; undefined while nothing of the list is there
    std::vector<tensor::MultiTensorEntry> entries{};
    std::int64_t pieces = 0;
    std::vector<tensor::MultiTensorEntry> uploaded{};
    Tensor table{};
    Tensor lr{};
    double written_lr = 0;
  };

  [[nodiscard]] std::vector<Part*> parts();
  // Made on the part's device for the current stream, which alone uses it.
  [[nodiscard]] Tensor made(const Part& part, const Shape& shape, DType dtype) const;
  [[nodiscard]] bool is_current(const Part& part, const Tensor& own, std::int64_t numel) const;
  void write_table(Part& part);
  void write_lr(Part& part, double lr);
  void run(Part& part, tensor::MultiTensorArgs args);
  void update(const tensor::MultiTensorArgs& args, double lr, const Tensor& skip);
  // {norm, factor} for gradients of at most that norm.
  [[nodiscard]] Tensor clip_numbers(double most);
  void multiply(const Tensor& factor);
  void check_gradients() const;

  memory::Category category_;
  const char* op_ = "";
  std::vector<UpdatedTensor> list_{};
  std::vector<Tensor> dense_{};  // gradients that had to be copied
  std::vector<Part> parts_{};
  std::map<const device::Device*, std::size_t> places_{};
};

struct LossScaleRule {
  double growth = 2;
  double backoff = 0.5;
  std::int64_t growth_interval = 2000;  // good steps before it grows
};
// The scale that follows a step, of f64 numbers: `found` says whether a gradient was not finite,
// and goes back to 0; `good_steps` counts those since the scale changed.
void next_loss_scale_(const Tensor& scale,
                      const Tensor& found,
                      const Tensor& good_steps,
                      const LossScaleRule& rule);

// x times a number in device memory (f64, one element), in the type of x.
[[nodiscard]] Tensor scaled_by(const Tensor& x, const Tensor& number);

}  // namespace headroom
