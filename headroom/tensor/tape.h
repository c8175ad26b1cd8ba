// The seam between ops and autograd. An op computes its output and ends with
//
//   return record({"tanh", kEachOutput}, {&x}, y, {save_output(y)}, [](BackwardArgs& b) {
//     b.set_grad(0, tanh_backward(b.grad(), b.saved(0)));
//   });
//
// Where no input needs a gradient that costs a branch. Otherwise the tape that `autograd` installed
// keeps the backward function with what it saves. The function may capture plain values, never a
// tensor: what it needs of tensors goes through `saved`, so that the tape can count it, check that
// nobody wrote to it since, hand it to pack hooks, and free it.
//
// Writing in place:
//
//   check_in_place("tanh_", x);                  // before anything is done; may refuse
//   ... write, bump the version ...
//   record_in_place({"tanh_", kEachOutput}, {&x}, x, {save_output(x)}, ...);      // x is input 0
//   and output
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <utility>

#include "headroom/tensor/region.h"
#include "headroom/tensor/tensor.h"
#include "headroom/tensor/work.h"

namespace headroom {

// Whether ops of this thread are recorded; and whether what it makes will never be part of a graph,
// so that not even writes need counting.
class GradMode {
 public:
  [[nodiscard]] static bool is_enabled() noexcept { return enabled_; }
  [[nodiscard]] static bool is_inference() noexcept { return inference_; }
  static void set_enabled(bool enabled) noexcept { enabled_ = enabled; }
  static void set_inference(bool inference) noexcept { inference_ = inference; }

 private:
  // NOLINTBEGIN(readability-identifier-naming): private members, as the others are
  static inline thread_local constinit bool enabled_ = true;
  static inline thread_local constinit bool inference_ = false;
  // NOLINTEND(readability-identifier-naming)
};

class GradModeScope {
 public:
  explicit GradModeScope(bool enabled) noexcept : outer_(GradMode::is_enabled()) {
    GradMode::set_enabled(enabled);
  }
  ~GradModeScope() { GradMode::set_enabled(outer_); }
  GradModeScope(const GradModeScope&) = delete;
  GradModeScope& operator=(const GradModeScope&) = delete;

 private:
  bool outer_;
};

namespace tensor {

// The tape's knowledge of a tensor; it derives its own type.
class GradState {
 public:
  GradState() = default;
  GradState(const GradState&) = delete;
  GradState& operator=(const GradState&) = delete;
  virtual ~GradState() = default;

  [[nodiscard]] bool requires_grad() const noexcept { return requires_grad_; }
  void set_requires_grad(bool wanted) noexcept { requires_grad_ = wanted; }

 private:
  bool requires_grad_ = false;
};

// A tensor the backward function needs. A slot that is not wanted stays, so that numbers do not
// move, and holds nothing.
struct SavedTensor {
  const Tensor* tensor = nullptr;
  bool is_output = false;
};
[[nodiscard]] inline SavedTensor save_input(const Tensor& tensor, bool wanted = true) noexcept {
  return {.tensor = wanted ? &tensor : nullptr};
}
// Also for what the op made only to save it (bits, a row's log-sum-exp).
[[nodiscard]] inline SavedTensor save_output(const Tensor& tensor, bool wanted = true) noexcept {
  return {.tensor = wanted ? &tensor : nullptr, .is_output = true};
}

// The arguments of a backward function.
class BackwardArgs {
 public:
  BackwardArgs() = default;
  BackwardArgs(const BackwardArgs&) = delete;
  BackwardArgs& operator=(const BackwardArgs&) = delete;
  virtual ~BackwardArgs() = default;

  // Of the output; of its shape and type.
  [[nodiscard]] virtual const Tensor& grad() = 0;
  // Throws when somebody wrote to it since. Undefined for a slot that was not wanted.
  [[nodiscard]] virtual Tensor saved(std::size_t slot) = 0;
  // Whether input i wants a gradient; compute no other.
  [[nodiscard]] virtual bool needs(std::size_t input) const = 0;
  // At most once for an input. May be a view of grad().
  virtual void set_grad(std::size_t input, const Tensor& gradient) = 0;
  // Whether nobody else sees grad() any more, so that it may be written over.
  [[nodiscard]] virtual bool owns_grad() const { return false; }
  // The sum so far of the gradient of an input that needs one: a kernel may add to
  // it instead of filling another tensor, and then gives it to set_grad. Contiguous, of the input's
  // shape and type, and seen by nobody else; undefined where there is no such thing. Nothing may
  // fail between the first write to it and set_grad.
  [[nodiscard]] virtual Tensor sum_so_far(std::size_t input) {
    (void)input;
    return {};
  }
};

using BackwardFunction = std::function<void(BackwardArgs&)>;

enum class RecordKind : std::uint8_t {
  kValue,
  kView,     // the output shares the storage of input 0
  kInPlace,  // the output is input 0, written to
};

struct Record {
  const char* name = "";  // of static life
  Work work{};
  RecordKind kind = RecordKind::kValue;
  std::span<const Tensor* const> inputs{};  // an undefined one is an argument that was left out
  const Tensor* output = nullptr;
  std::span<const SavedTensor> saved{};
  BackwardFunction backward{};
};

// Multiplications and additions.
[[nodiscard]] double operations_of(const Record& record);

// The interface that autograd implements. All may throw.
class Tape {
 public:
  Tape() = default;
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;
  virtual ~Tape() = default;

  virtual void record(Record&& record) = 0;
  // A write to `self` is about to happen, in grad mode, and self or what it views has a state, or
  // was made in inference mode.
  virtual void check_in_place(const char* name, const Tensor& self) = 0;
  virtual void require_grad(const Tensor& self, bool wanted) = 0;
  [[nodiscard]] virtual bool is_leaf(const Tensor& self) = 0;
  [[nodiscard]] virtual Tensor grad(const Tensor& self) = 0;
  virtual void set_grad(const Tensor& self, const Tensor& gradient) = 0;
  virtual void backward(const Tensor& self, const Tensor& gradient, bool retain_graph) = 0;
};

// The tape of this process: what was installed, else autograd's where the program links it, else
// one with which all that needs a gradient throws.
[[nodiscard]] Tape& tape();
// Returns the one before; null goes back to the default. It must outlive its use.
Tape* install_tape(Tape* tape) noexcept;

// --- For ops -------------------------------------------------------------------------------------

[[nodiscard]] inline bool needs_grad(const Tensor& tensor) noexcept {
  return GradMode::is_enabled() && tensor.requires_grad();
}
[[nodiscard]] inline bool any_needs_grad(std::initializer_list<const Tensor*> inputs) noexcept {
  if (!GradMode::is_enabled()) return false;
  for (const Tensor* input : inputs) {
    if (input->requires_grad()) return true;
  }
  return false;
}

template <class Backward>
Tensor record(OpInfo op,
              std::initializer_list<const Tensor*> inputs,
              Tensor output,
              std::initializer_list<SavedTensor> saved,
              Backward backward) {
  if (any_needs_grad(inputs)) {
    tape().record({.name = op.name,
                   .work = op.work,
                   .inputs = {inputs.begin(), inputs.size()},
                   .output = &output,
                   .saved = {saved.begin(), saved.size()},
                   .backward = BackwardFunction(std::move(backward))});
  }
  return output;
}

// A view of `input`.
template <class Backward>
Tensor record_view(const char* name, const Tensor& input, Tensor output, Backward backward) {
  if (needs_grad(input)) {
    const Tensor* const inputs[] = {&input};
    tape().record({.name = name,
                   .work = kNoWork,
                   .kind = RecordKind::kView,
                   .inputs = inputs,
                   .output = &output,
                   .backward = BackwardFunction(std::move(backward))});
  }
  return output;
}

template <class Backward>
void record_in_place(OpInfo op,
                     std::initializer_list<const Tensor*> inputs,
                     const Tensor& self,
                     std::initializer_list<SavedTensor> saved,
                     Backward backward) {
  if (!any_needs_grad(inputs)) return;
  tape().record({.name = op.name,
                 .work = op.work,
                 .kind = RecordKind::kInPlace,
                 .inputs = {inputs.begin(), inputs.size()},
                 .output = &self,
                 .saved = {saved.begin(), saved.size()},
                 .backward = BackwardFunction(std::move(backward))});
}

// Before a write. Throws what the tape refuses: a leaf that needs a gradient; and a write that a
// region computed again would do twice. `name` is kept with the storage, for the message of a
// backward that finds what it saved overwritten.
inline void check_in_place(const char* name, const Tensor& self) {
  const Impl& impl = self.impl();
  if (GradMode::is_enabled() &&
      (impl.grad_state || (impl.base && impl.base->grad_state) || impl.storage->is_inference())) {
    tape().check_in_place(name, self);
  }
  if (Region::is_guarded()) check_region_write(name, self);
  impl.storage->set_writer(name);
}

// For a backward written as one kernel: its own derivative is not known, and a silent zero would
// be worse than this.
void refuse_second_derivative(const char* name, std::initializer_list<const Tensor*> inputs);
[[noreturn]] void refuse_second_derivative(const char* name);

}  // namespace tensor
}  // namespace headroom
