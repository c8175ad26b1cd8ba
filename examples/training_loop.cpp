// What do allocated and cached do through a training step?
//
// The script of "The most surprising truth about PyTorch GPU memory profiling", line by line: a
// small net trained with Adam. Beside each line what PyTorch 2.11 printed on an H200, where the
// workspaces of its matrix products (33 to 65 MiB) are most of it.
#include <cstdio>

#include <headroom/memory.h>
#include <headroom/nn.h>

using namespace headroom;

namespace {

struct SimpleNN : nn::Module {
  SimpleNN() {
    add("fc1", fc1);
    add("relu", relu);
    add("fc2", fc2);
  }
  Tensor forward(const Tensor& in) override {
    Tensor x = fc1(in);
    x = relu(x);
    return fc2(x);
  }

  nn::Linear fc1{100, 50};
  nn::ReLU relu;
  nn::Linear fc2{50, 10};
};

double mib(std::uint64_t bytes) { return static_cast<double>(bytes) / (1024.0 * 1024.0); }

void show(const char* what, double pytorch_allocated, double pytorch_cached) {
  std::printf("%-24s allocated %.2f MB   cached %.2f MB   PyTorch %5.2f and %2.0f MB\n",
              what,
              mib(memory_allocated()),
              mib(memory_reserved()),
              pytorch_allocated,
              pytorch_cached);
}

}  // namespace

int main() {
  set_device("cpu");
  SimpleNN model;
  nn::Adam optimizer(model.parameters(), {.lr = 0.001});
  Tensor data = randn({64, 100});
  const Tensor target = randint(0, 10, {64});
  show("Initial", 0.05, 2);

  Tensor output = model(data);
  Tensor loss = cross_entropy(output, target);
  show("After forward pass", 33.07, 34);

  loss.backward();
  optimizer.step();
  optimizer.zero_grad();
  show("After backward and step", 65.10, 66);

  const Tensor data2 = randn({64, 100});
  const Tensor output2 = model(data2);
  const Tensor loss2 = cross_entropy(output2, target);
  loss2.backward();
  optimizer.step();
  optimizer.zero_grad();
  show("After second iteration", 65.12, 66);

  empty_cache();
  show("After empty_cache", 65.12, 66);
}
