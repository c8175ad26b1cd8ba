// Why does the memory grow with every step?
//
// "Accumulating Loss Without .item()" of "Memory Management on GPU". A sum of losses is a tensor
// with a history, and keeps what that history keeps. After a backward that is little, for the
// backward has freed what ops saved; in an evaluation, which has none, it is every activation.
#include <cstdio>
#include <vector>

#include <headroom/memory.h>
#include <headroom/nn.h>

using namespace headroom;

namespace {

constexpr int kSteps = 1000;

struct Net : nn::Module {
  Net() {
    add("fc1", fc1);
    add("fc2", fc2);
  }
  Tensor forward(const Tensor& x) override { return fc2(relu(fc1(x))); }

  nn::Linear fc1{100, 50};
  nn::Linear fc2{50, 10};
};

// A step adds to `total`; answers by how many bytes a step what is allocated has grown, after a
// first step that makes what stays.
template <class Step>
void measure(const char* what, Step step) {
  step();
  const std::uint64_t before = memory_allocated();
  for (int i = 0; i < kSteps; ++i) step();
  const std::uint64_t after = memory_allocated();
  std::printf("%-40s %9s in %d steps, %s a step\n",
              what,
              format_count(after - before).c_str(),
              kSteps,
              format_count((after - before) / kSteps).c_str());
}

}  // namespace

int main() {
  set_device("cpu");
  Net model;
  const Tensor data = randn({64, 100});
  const Tensor target = randint(0, 10, {64});
  const auto loss_of = [&] { return cross_entropy(model(data), target); };
  const auto train = [&] {
    Tensor loss = loss_of();
    loss.backward();
    model.zero_grad();
    return loss;
  };

  double number = 0;
  measure("training, total += loss.item()", [&] { number += train().item<double>(); });
  {
    Tensor total = zeros({});  // keeps the nodes of every graph, on the host, and no tensor
    measure("training, total = total + loss", [&] { total = total + train(); });
  }
  {
    std::vector<Tensor> losses;
    measure("training, losses.push_back(loss)", [&] { losses.push_back(train()); });
  }
  measure("evaluation, total += loss.item()", [&] { number += loss_of().item<double>(); });
  {
    Tensor total = zeros({});
    measure("evaluation, total = total + loss", [&] { total = total + loss_of(); });
  }
  {
    Tensor total = zeros({});
    measure("the same with loss.detach()", [&] { total = total + loss_of().detach(); });
  }
  {
    const NoGradScope no_grad;
    Tensor total = zeros({});
    measure("the same under no_grad", [&] { total = total + loss_of(); });
  }
}
