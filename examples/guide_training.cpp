// How do I write tensors, gradients, layers, optimisers, data, autocast, plans and training?
//
// The snippets of the guides to these (docs/README.md), so that they compile and run.
#include <any>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

// Each guide's own header; the last includes the others.
#include <headroom/autograd.h>
#include <headroom/memory.h>
#include <headroom/nn.h>
#include <headroom/tensor.h>
#include <headroom/train.h>

using namespace headroom;

namespace {

class Mlp : public nn::Module {
 public:
  Mlp() {
    add("fc1", fc1_);
    add("fc2", fc2_);
  }
  Tensor forward(const Tensor& x) override { return fc2_(relu(fc1_(x))); }

 private:
  nn::Linear fc1_{784, 256};
  nn::Linear fc2_{256, 10};
};

void tensors() {
  Tensor x = randn({32, 64});  // on the current device
  Tensor w = randn({64, 8}, {.dtype = kF32, .device = "cpu"});
  Tensor y = relu(matmul(x, w)) + 1;
  y.select(0, 3).zero_();                  // writes into y
  std::cout << y.sum() << '\n';            // tensor(880.6394)
  std::cout << y.narrow(0, 2, 2) << '\n';  // rows 2 and 3
}

void gradients() {
  const Tensor x = randn({32, 64});
  const Tensor y = randn({32, 8});
  const Tensor w = randn({64, 8}, {.requires_grad = true});
  const Tensor loss = square(matmul(x, w) - y).mean();
  loss.backward();  // adds to w.grad()

  const Tensor other = square(matmul(x, w)).mean();
  const Tensor dw = autograd::grad({other}, {w})[0];  // leaves .grad alone
  std::printf("gradient of %lld elements\n", static_cast<long long>(dw.numel()));
}

void hooks(const Tensor& x, Mlp& model) {
  const autograd::SavedTensorHooks offload(
      {.pack = [](const Tensor& t) { return std::any(t.detach().to("cpu")); },
       .unpack = [](const std::any& packed) { return std::any_cast<Tensor>(packed); }});
  model(x).sum().backward();
}

void checkpoints(const Tensor& x) {
  nn::Linear block(8, 8);
  Tensor y = checkpoint([&](const Tensor& h) { return block(h); }, x);
  const std::vector<std::function<Tensor(const Tensor&)>> stages(9, std::ref(block));
  Tensor z = checkpoint_sequential(stages, sqrt_segments(9), y);
  z.sum().backward();
}

void layers(const Tensor& x, const Tensor& target) {
  Mlp model;
  cross_entropy(model(x), target).backward();
  nn::save(model, "mlp.safetensors");
}

void optimisers(Mlp& model, const Tensor& x, const Tensor& target) {
  nn::AdamW optimizer(model.parameters(), {.lr = 3e-4});
  const nn::Schedule schedule = nn::Schedule::cosine(3e-4, 10'000).with_warmup(500);
  for (std::int64_t step = 0; step < 3; ++step) {
    optimizer.set_lr(schedule.at(step));
    optimizer.zero_grad();  // drops the gradients; zero_grad(false) fills them with zeros
    cross_entropy(model(x), target).backward();
    nn::clip_grad_norm_(optimizer.parameters(), 1.0);
    optimizer.step();
  }

  optimizer.zero_grad();
  const Tensor loss = cross_entropy(model(x), target);
  nn::GradScaler scaler;
  scaler.scale(loss).backward();
  scaler.step(optimizer);  // call scaler.unscale_(optimizer) before it to clip gradients
  scaler.update();
}

void train_on(const Tensor& input, const Tensor& target) {
  std::printf("batch of %lld and %lld\n",
              static_cast<long long>(input.numel()),
              static_cast<long long>(target.numel()));
}

void data() {
  const nn::SyntheticClasses dataset(256, {1, 28, 28}, 10);
  const nn::DataLoader loader(
      dataset, {.batch = 64, .shuffle = true, .workers = 2, .prefetch = 2, .place = "cpu"});
  for (std::int64_t e = 0; e < 2; ++e) {
    for (const nn::Batch& batch : loader.epoch(e)) train_on(batch.input, batch.target);
  }
}

void autocast(Mlp& model, const Tensor& x, const Tensor& target) {
  Tensor loss;
  {
    const AutocastScope autocast(kBF16);
    loss = cross_entropy(model(x), target);
  }
  loss.backward();  // in the types that the forward used
}

void plans() {
  const train::StepConfig step{.model = {.name = "gpt2"}, .batch = 16, .optimizer = "adamw"};
  const train::Plan plan = train::plan(step, {.limit_bytes = 24_GiB});
  std::printf("%s in %s: %s\n",
              format_bytes(plan.peak_reserved).c_str(),
              plan.peak_phase.c_str(),
              plan.fits ? "fits" : "does not fit");
  const train::Fit fit = train::fit(step, {.limit_bytes = 24_GiB});
  std::printf("largest batch %lld\n", static_cast<long long>(fit.plan.config.batch));
}

void training() {
  memory::Allocator& cache = allocator("cpu");
  cache.set_limit(64_MiB);
  train::StepRunner runner({.model = {.name = "gpt2-tiny"}, .optimizer = "adamw"}, cache);
  std::vector<std::string> told;  // what was done when memory ran out
  for (int i = 0; i < 3; ++i) {
    std::printf("loss %.4f\n", train::with_retry(runner, told).loss());
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count > 1) std::filesystem::current_path(arguments[1]);
  set_device("cpu");
  const Tensor x = randn({16, 784});
  const Tensor target = randint(0, 10, {16});
  Mlp model;
  tensors();
  gradients();
  hooks(x, model);
  checkpoints(randn({4, 8}));
  layers(x, target);
  optimisers(model, x, target);
  data();
  autocast(model, x, target);
  plans();
  training();
}
