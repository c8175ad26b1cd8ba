#include "headroom/tensor/tape.h"

#include <atomic>
#include <string>

#include "headroom/base/error.h"

// Of autograd. Weak: tensors work without it, and need no constructor that runs before main to find
// it. Linking headroom::autograd brings it in.
extern "C" __attribute__((weak)) headroom::tensor::Tape* headroom_autograd_tape() noexcept;

namespace headroom::tensor {
namespace {

[[noreturn]] void refuse() {
  throw Error("gradients need autograd: no tape is installed (link headroom::autograd)");
}

class NoTape final : public Tape {
 public:
  void record(Record&&) override { refuse(); }
  void check_in_place(const char*, const Tensor&) override { refuse(); }
  void require_grad(const Tensor&, bool wanted) override {
    if (wanted) refuse();
  }
  bool is_leaf(const Tensor&) override { return true; }
  Tensor grad(const Tensor&) override { return {}; }
  void set_grad(const Tensor&, const Tensor&) override { refuse(); }
  void backward(const Tensor&, const Tensor&, bool) override { refuse(); }
};

// Never destroyed: tensors may be used until the very end of the process.
NoTape& no_tape() {
  static auto* const instance = new NoTape;
  return *instance;
}

constinit std::atomic<Tape*> g_tape{nullptr};

}  // namespace

double operations_of(const Record& record) {
  switch (record.work.kind) {
    case Work::Kind::kEachOutput:
      return static_cast<double>(record.output->numel());
    case Work::Kind::kEachInput:
      return static_cast<double>(record.inputs.front()->numel());
    case Work::Kind::kCounted:
      return record.work.operations;
    default:
      return 0;
  }
}

Tape& tape() {
  if (Tape* installed = g_tape.load(std::memory_order_acquire); installed != nullptr) {
    return *installed;
  }
  return headroom_autograd_tape != nullptr ? *headroom_autograd_tape() : no_tape();
}

Tape* install_tape(Tape* tape) noexcept { return g_tape.exchange(tape, std::memory_order_acq_rel); }

void refuse_second_derivative(const char* name) {
  throw Error(std::string(name) + ": its gradient cannot be differentiated again");
}

void refuse_second_derivative(const char* name, std::initializer_list<const Tensor*> inputs) {
  if (any_needs_grad(inputs)) refuse_second_derivative(name);
}

}  // namespace headroom::tensor
