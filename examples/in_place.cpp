// When may I write to a tensor in place?
//
// When nobody needs what was there. An op that saved it for backward does: that backward is
// refused, with the name of the op. "In-Place Operations and Memory Savings" of "Memory Management
// on GPU".
#include <cstdio>

#include <headroom/autograd.h>
#include <headroom/memory.h>

using namespace headroom;

namespace {

void show(const char* what) {
  std::printf("%-36s allocated %10s\n", what, format_count(memory_allocated()).c_str());
}

template <class Action>
void attempt(const char* what, Action action) {
  try {
    action();
    std::printf("%-28s is fine\n", what);
  } catch (const Error& error) {
    std::printf("%-28s %s\n", what, error.what());
  }
}

}  // namespace

int main() {
  set_device("cpu");
  {
    const Tensor x = randn({1024, 1024});
    show("x");
    x.add_(1);
    x.relu_();
    x.mul_(0.99);
    show("x.add_, x.relu_, x.mul_");
    const Tensor y = relu(x + 1) * 0.99;
    show("y = relu(x + 1) * 0.99");
  }

  const Tensor w = from({1, 2, 3}, {.requires_grad = true});
  attempt("a leaf", [&] { w.add_(1); });
  attempt("a leaf, under no_grad", [&] {
    const NoGradScope no_grad;  // as an optimiser does
    w.add_(1);
  });
  attempt("what square saved", [&] {
    const Tensor x = w * 2;
    const Tensor y = square(x);
    x.add_(1);
    y.sum().backward();
  });
  attempt("relu's input", [&] {
    const Tensor x = w * 2;
    const Tensor y = relu(x);  // saves its output
    x.add_(1);
    y.sum().backward();
  });
  attempt("a row", [&] {
    const Tensor x = zeros({2, 3});
    x[0].copy_(w);  // x now has a history
    x.sum().backward();
  });
  std::printf("w.grad = %s\n", to_string(w.grad()).c_str());
}
