// Twenty steps as PyTorch takes them: losses that tests/train/data/record_trajectories.py recorded.
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "headroom/nn.h"

namespace headroom {
namespace {

using Recorded = std::map<std::string, Tensor>;

Recorded recorded_run(const std::string& model) {
  const auto file = nn::read_safetensors(
      std::string(HEADROOM_TRAJECTORIES) + "/" + model + ".safetensors", "cpu");
  return {file.tensors.begin(), file.tensors.end()};
}

// Two blocks; the output layer is the embedding's own table.
class SmallGpt : public nn::Module {
 public:
  explicit SmallGpt(const TensorOptions& options)
      : wte_(48, 32, options), wpe_(12, 32, options), ln_f_(32, {}, options) {
    for (int i = 0; i < 2; ++i) {
      blocks_.emplace<nn::TransformerBlock>(32, 4, nn::AttentionConfig{.is_causal = true}, options);
    }
    add("wte", wte_);
    add("wpe", wpe_);
    add("blocks", blocks_);
    add("ln_f", ln_f_);
  }
  Tensor forward(const Tensor& index) override {
    Tensor x = wte_(index) + wpe_(arange(index.size(1), {.dtype = kI64, .device = "cpu"}));
    for (const auto& block : blocks_) x = (*block)(x);
    return linear(ln_f_(x), wte_.weight);
  }

 private:
  nn::Embedding wte_;
  nn::Embedding wpe_;
  nn::ModuleList blocks_{};
  nn::LayerNorm ln_f_;
};

std::unique_ptr<nn::Module> trajectory_model(const std::string& name,
                                             const TensorOptions& options) {
  if (name == "gpt") return std::make_unique<SmallGpt>(options);
  auto net = std::make_unique<nn::Sequential>();
  if (name == "mlp") {
    net->emplace<nn::Linear>(20, 32, true, options);
    net->emplace<nn::ReLU>();
    net->emplace<nn::Linear>(32, 32, true, options);
    net->emplace<nn::Tanh>();
    net->emplace<nn::Linear>(32, 7, true, options);
    return net;
  }
  net->emplace<nn::Conv2d>(3, 8, 3, nn::Conv2dConfig{.padding = 1, .has_bias = false}, options);
  net->emplace<nn::BatchNorm2d>(8, nn::BatchNormConfig{}, options);
  net->emplace<nn::ReLU>();
  net->emplace<nn::MaxPool2d>(2);
  net->emplace<nn::Conv2d>(8, 12, 3, nn::Conv2dConfig{.stride = 2, .padding = 1}, options);
  net->emplace<nn::BatchNorm2d>(12, nn::BatchNormConfig{}, options);
  net->emplace<nn::ReLU>();
  net->emplace<nn::AdaptiveAvgPool2d>(1);
  net->emplace<nn::Flatten>();
  net->emplace<nn::Linear>(12, 5, true, options);
  return net;
}

void load_start(nn::Module& model, const Recorded& run) {
  const NoGradScope no_grad;
  for (const auto& [name, tensor] : model.named_parameters()) tensor.copy_(run.at("param." + name));
  for (const auto& [name, tensor] : model.named_buffers()) tensor.copy_(run.at("buffer." + name));
}

std::unique_ptr<nn::Optimizer> trajectory_optimizer(const std::string& name,
                                                    const nn::Module& model) {
  if (name == "sgd") return nn::make_optimizer("momentum", model.parameters(), 0.05);
  return nn::make_optimizer(name, model.parameters(), 0.003);
}

std::vector<double> losses_here(const std::string& name,
                                const Recorded& run,
                                const std::string& precision,
                                const std::string& optimizer_name) {
  const TensorOptions options{.dtype = precision == "f64" ? kF64 : kF32, .device = "cpu"};
  const auto model = trajectory_model(name, options);
  load_start(*model, run);
  const auto optimizer = trajectory_optimizer(optimizer_name, *model);
  std::vector<double> out;
  for (std::int64_t i = 0; i < run.at("input").size(0); ++i) {
    Tensor x = run.at("input")[i];
    if (is_floating(x.dtype())) x = x.to(options.dtype);
    optimizer->zero_grad();
    Tensor loss;
    {
      const AutocastScope autocast(kBF16, precision == "bf16");
      const Tensor logits = (*model)(x);
      loss =
          cross_entropy(logits.reshape({-1, logits.size(-1)}), run.at("target")[i].reshape({-1}));
    }
    loss.backward();
    optimizer->step();
    out.push_back(loss.item<double>());
  }
  return out;
}

class Trajectory : public ::testing::TestWithParam<const char*> {};

TEST_P(Trajectory, IsPyTorchs) {
  const Recorded run = recorded_run(GetParam());
  const std::vector<std::pair<const char*, double>> precisions = {
      {"f64", 1e-9}, {"f32", 1e-4}, {"bf16", 1e-2}};
  for (const auto& [precision, tolerance] : precisions) {
    for (const char* optimizer : {"sgd", "adam", "adamw"}) {
      const std::vector<double> want =
          run.at(std::string(precision) + "." + optimizer).to_doubles();
      const std::vector<double> got = losses_here(GetParam(), run, precision, optimizer);
      ASSERT_EQ(got.size(), 20U);
      double worst = 0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        worst = std::max(worst, std::abs(got[i] - want[i]) / want[i]);
      }
      RecordProperty(std::string(precision) + "." + optimizer, std::to_string(worst));
      EXPECT_LE(worst, tolerance) << precision << " " << optimizer;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models,
                         Trajectory,
                         ::testing::Values("mlp", "convnet", "gpt"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace headroom
