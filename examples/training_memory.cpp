// Where in a training step is the peak, and what is it made of?
//
// "Tracking GPU Memory During Training" of "Memory Management on GPU", its layers as functions; and
// the mistake it names: a sum of losses that keeps every step's graph.
#include <cstdio>
#include <vector>

#include <headroom/autograd.h>
#include <headroom/memory.h>

using namespace headroom;

namespace {

using memory::Category;

void show(const char* what) {
  std::printf("%-22s %6.1f MB\n", what, static_cast<double>(memory_allocated()) / 1e6);
}

struct Layer {
  Tensor weight, bias;
};

std::vector<Layer> make_model() {
  const memory::CategoryScope scope(Category::kParameter);
  std::vector<Layer> out;
  for (const auto& [from, to] : {std::pair(1024, 2048), {2048, 2048}, {2048, 10}}) {
    out.push_back({.weight = randn({to, from}).mul_(0.02).requires_grad_(),
                   .bias = zeros({to}).requires_grad_()});
  }
  return out;
}

Tensor forward(const std::vector<Layer>& model, Tensor x) {
  for (std::size_t i = 0; i < model.size(); ++i) {
    if (i > 0) x = relu(x);
    x = linear(x, model[i].weight, model[i].bias);
  }
  return x;
}

void show_categories() {
  const auto bytes = allocator().statistics().category_bytes;
  for (const Category category :
       {Category::kParameter, Category::kGradient, Category::kActivation, Category::kData}) {
    std::printf("  %-20s %6.1f MB\n",
                std::string(to_string(category)).c_str(),
                static_cast<double>(bytes[static_cast<std::size_t>(category)].current) / 1e6);
  }
}

void add_losses(const std::vector<Layer>& model, bool as_numbers) {
  Tensor total = zeros({});
  const std::uint64_t before = memory_allocated();
  for (int i = 0; i < 4; ++i) {
    const Tensor loss = forward(model, randn({256, 1024})).mean();
    total = total + (as_numbers ? loss.detach() : loss);
  }
  std::printf("%-22s %6.1f MB kept after 4 steps\n",
              as_numbers ? "total += loss.detach()" : "total += loss",
              static_cast<double>(memory_allocated() - before) / 1e6);
}

}  // namespace

int main() {
  set_device("cpu");
  const std::vector<Layer> model = make_model();
  {
    const Tensor x = randn({256, 1024});
    show("After input:");
    const Tensor y = forward(model, x);
    show("After forward:");
    y.sum().backward();
    show("After backward:");
    std::printf(
        "%-22s %6.1f MB\n", "Peak memory:", static_cast<double>(max_memory_allocated()) / 1e6);
    show_categories();
  }
  add_losses(model, /*as_numbers=*/false);
  add_losses(model, /*as_numbers=*/true);
}
