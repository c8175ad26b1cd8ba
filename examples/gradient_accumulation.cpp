// Does accumulating gradients over batches take more memory?
//
// Hardly: products add to the gradient that is there, so that four batches take a few small blocks
// more than one, and a quarter of what a batch of four times the size would. The
// second snippet of "Does PyTorch pre-allocate GPU memory?", with more than ten inputs, so that
// there is something to see.
#include <cstdio>

#include <headroom/autograd.h>
#include <headroom/memory.h>

using namespace headroom;

namespace {

using memory::Category;

struct Model {
  Tensor weight, bias;
};

Model make_model(std::int64_t inputs) {
  const memory::CategoryScope scope(Category::kParameter);
  return {.weight = zeros({1, inputs}).requires_grad_(), .bias = zeros({1}).requires_grad_()};
}

double step(const Model& model, int batches, std::int64_t batch_size) {
  double total = 0;
  for (int i = 0; i < batches; ++i) {
    const Tensor inputs = rand({batch_size, model.weight.size(1)});
    const Tensor labels = inputs.mean({1}, /*keepdim=*/true);
    const Tensor loss = square(linear(inputs, model.weight, model.bias) - labels).mean() / batches;
    loss.backward();
    total += loss.item<double>();  // a number: loss itself would keep its graph
  }
  const NoGradScope no_grad;
  for (const Tensor& parameter : {model.weight, model.bias}) {
    parameter.sub_(parameter.grad(), 0.0001);
    parameter.set_grad({});
  }
  return total;
}

void measure(int batches, std::int64_t batch_size) {
  manual_seed(0);
  const Model model = make_model(4096);
  (void)step(model, batches, batch_size);
  reset_peak_memory_stats();
  double loss = 0;
  for (int i = 0; i < 9; ++i) loss = step(model, batches, batch_size);
  std::printf("%d batches of %-4lld peak %10s   loss %.4f\n",
              batches,
              static_cast<long long>(batch_size),
              format_count(max_memory_allocated()).c_str(),
              loss);
}

}  // namespace

int main() {
  set_device("cpu");
  measure(1, 64);
  measure(4, 64);
  measure(1, 256);
}
