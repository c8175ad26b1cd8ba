// What does no_grad save?
//
// All that a backward would need: without it, what the ops have saved stays as long as the result.
// The second and third snippets of "How can PyTorch effectively manage GPU memory?".
#include <cstdio>

#include <headroom/autograd.h>
#include <headroom/memory.h>

using namespace headroom;

namespace {

void show(const char* what) {
  std::printf("%-36s allocated %10s\n", what, format_count(memory_allocated()).c_str());
}

Tensor model(const Tensor& input, const Tensor& first, const Tensor& second) {
  return linear(relu(linear(input, first)), second);
}

}  // namespace

int main() {
  set_device("cpu");
  const Tensor first = randn({1000, 1000}, {.requires_grad = true});
  const Tensor second = randn({10, 1000}, {.requires_grad = true});
  const Tensor input = randn({256, 1000});
  show("model and input");
  {
    const Tensor output = model(input, first, second);
    show("output, with its history");
    const Tensor kept = output.detach();
    show("detach() shares its elements");
  }
  {
    const NoGradScope no_grad;
    const Tensor output = model(input, first, second);
    show("output, under no_grad");
  }
  {
    Tensor output;
    {
      const InferenceModeScope inference;
      output = model(input, first, second);
    }
    show("output, in inference mode");
    try {
      (void)(output * second.sum());
    } catch (const InvalidArgument& error) {
      std::printf("%s\n", error.what());
    }
  }
  std::printf("Inference completed without gradient computation.\n");

  for (int batch = 0; batch < 10; ++batch) {
    const Tensor data = randn({32, 1000});
    const Tensor loss = square(model(data, first, second)).mean();
    loss.backward();
  }  // data, and all that was computed from it, goes here
  show("ten batches later: gradients more");
  std::printf("Training completed with optimized data loading.\n");
}
