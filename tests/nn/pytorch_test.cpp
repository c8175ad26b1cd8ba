// Every layer against PyTorch: outputs, gradients and buffers that data/record_layers.py recorded.
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "headroom/nn.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;

using Tensors = std::map<std::string, Tensor>;
using Inputs = std::vector<Tensor>;

// A layer and how it is called.
struct Case {
  std::function<std::unique_ptr<nn::Module>()> make = [] {
    return std::make_unique<nn::Identity>();
  };
  std::function<Tensor(nn::Module&, const Inputs&)> call = [](nn::Module& layer, const Inputs& in) {
    return layer(in[0]);
  };
  bool is_training = true;
};

template <class Layer, class... Args>
Case layer(const Args&... args) {
  return {.make = [=] { return std::make_unique<Layer>(args...); }};
}

Case function(Tensor (*f)(const Tensor&)) {
  return {.call = [f](nn::Module&, const Inputs& in) { return f(in[0]); }};
}

Case function(std::function<Tensor(const Inputs&)> f) {
  return {.call = [f = std::move(f)](nn::Module&, const Inputs& in) { return f(in); }};
}

Case evaluated(Case of) {
  of.is_training = false;
  return of;
}

Tensor classes() { return from(std::vector<std::int64_t>{3, 0, 9, -100, 4}, {5}); }

Tensor attention_mask() {
  return from(std::vector<std::int64_t>{1, 0, 1, 1, 0, 1, 1, 1, 1, 1, 0, 0, 1, 0, 0}, {3, 5})
      .to(kBool);
}

Case conv_block() {
  return {.make = [] {
    auto net = std::make_unique<nn::Sequential>();
    net->emplace<nn::Conv2d>(3, 4, 3, nn::Conv2dConfig{.padding = 1, .has_bias = false});
    net->emplace<nn::BatchNorm2d>(4);
    net->emplace<nn::ReLU>();
    net->emplace<nn::MaxPool2d>(2);
    net->emplace<nn::Flatten>();
    net->emplace<nn::Linear>(64, 5);
    return net;
  }};
}

const std::map<std::string, Case>& cases() {
  using nn::Size2;
  constexpr nn::AttentionConfig kForward{.is_causal = true};
  static const std::map<std::string, Case> kCases{
      {"linear", layer<nn::Linear>(7, 5)},
      {"linear_no_bias", layer<nn::Linear>(7, 5, false)},
      {"conv2d", layer<nn::Conv2d>(3, 6, 3, nn::Conv2dConfig{.padding = 1})},
      {"conv2d_stem",
       layer<nn::Conv2d>(3, 4, 7, nn::Conv2dConfig{.stride = 2, .padding = 3, .has_bias = false})},
      {"conv2d_point", layer<nn::Conv2d>(8, 5, 1)},
      {"conv2d_groups_dilated",
       layer<nn::Conv2d>(
           4,
           6,
           Size2(3, 2),
           nn::Conv2dConfig{.stride = {1, 2}, .padding = {2, 1}, .dilation = {2, 1}, .groups = 2})},
      {"conv2d_depthwise", layer<nn::Conv2d>(5, 5, 3, nn::Conv2dConfig{.padding = 1, .groups = 5})},
      {"batch_norm2d_train", layer<nn::BatchNorm2d>(5)},
      {"batch_norm2d_eval", evaluated(layer<nn::BatchNorm2d>(5))},
      {"layer_norm", layer<nn::LayerNorm>(12)},
      {"layer_norm_2d", layer<nn::LayerNorm>(Shape{4, 6})},
      {"embedding", layer<nn::Embedding>(10, 6)},
      {"max_pool2d", layer<nn::MaxPool2d>(3, 2, 1)},
      {"avg_pool2d", layer<nn::AvgPool2d>(Size2(2, 3), Size2(2, 1), Size2(1, 1))},
      {"adaptive_avg_pool2d", layer<nn::AdaptiveAvgPool2d>(Size2(3, 2))},
      {"relu", layer<nn::ReLU>()},
      {"gelu", layer<nn::GELU>()},
      {"gelu_tanh", function([](const Inputs& in) { return gelu_tanh(in[0]); })},
      {"silu", layer<nn::SiLU>()},
      {"tanh", layer<nn::Tanh>()},
      {"sigmoid", layer<nn::Sigmoid>()},
      {"leaky_relu", function([](const Inputs& in) { return leaky_relu(in[0], 0.01); })},
      {"elu", function([](const Inputs& in) { return elu(in[0]); })},
      {"softplus", function([](const Inputs& in) { return softplus(in[0]); })},
      {"hardswish", function(hardswish)},
      {"mish", function(mish)},
      {"softmax", function([](const Inputs& in) { return softmax(in[0], -1); })},
      {"log_softmax", function([](const Inputs& in) { return log_softmax(in[0], 1); })},
      {"dropout_eval", evaluated(layer<nn::Dropout>(0.5))},
      {"attention", function([](const Inputs& in) {
         return scaled_dot_product_attention(in[0], in[1], in[2]);
       })},
      {"attention_causal", function([](const Inputs& in) {
         return scaled_dot_product_attention(in[0], in[1], in[2], {}, {.causal = true});
       })},
      {"attention_masked", function([](const Inputs& in) {
         return scaled_dot_product_attention(in[0], in[1], in[2], attention_mask());
       })},
      {"multi_head_attention", layer<nn::MultiHeadAttention>(12, 3)},
      {"multi_head_attention_causal", layer<nn::MultiHeadAttention>(12, 3, kForward)},
      {"transformer_block", layer<nn::TransformerBlock>(16, 4, kForward)},
      {"cross_entropy", function([](const Inputs& in) { return cross_entropy(in[0], classes()); })},
      {"cross_entropy_sum", function([](const Inputs& in) {
         return cross_entropy(in[0], classes(), {.reduction = Reduction::kSum});
       })},
      {"mse_loss", function([](const Inputs& in) { return mse_loss(in[0], in[1]); })},
      {"l1_loss", function([](const Inputs& in) { return l1_loss(in[0], in[1]); })},
      {"bce_with_logits", function([](const Inputs& in) {
         return binary_cross_entropy_with_logits(in[0], sigmoid(in[1]).detach());
       })},
      {"conv_block", conv_block()},
  };
  return kCases;
}

// The tensors under a prefix, by the rest of their names.
Tensors under(const Tensors& all, const std::string& prefix) {
  Tensors out;
  for (const auto& [name, tensor] : all) {
    if (name.starts_with(prefix)) out[name.substr(prefix.size())] = tensor;
  }
  return out;
}

void expect_close(const std::string& what,
                  const Tensor& actual,
                  const Tensor& wanted,
                  double tolerance) {
  ASSERT_TRUE(actual.defined()) << what;
  ASSERT_EQ(actual.shape(), wanted.shape()) << what;
  ASSERT_EQ(actual.dtype(), wanted.dtype()) << what;
  const std::vector<double> a = actual.detach().to_doubles();
  const std::vector<double> b = wanted.to_doubles();
  double largest = 0;
  double error = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    largest = std::max(largest, std::abs(b[i]));
    const double own = std::abs(a[i] - b[i]);
    error = std::isnan(own) ? own : std::max(error, own);
  }
  EXPECT_LE(error, tolerance * std::max(largest, 1e-300)) << what;
}

void set_values(nn::Module& module, const Tensors& recorded) {
  const NoGradScope no_grad;
  const Tensors parameters = under(recorded, "param.");
  const Tensors buffers = under(recorded, "buffer.");
  ASSERT_EQ(module.named_parameters().size(), parameters.size());
  ASSERT_EQ(module.named_buffers().size(), buffers.size());
  for (const auto& [name, tensor] : module.named_parameters()) tensor.copy_(parameters.at(name));
  for (const auto& [name, tensor] : module.named_buffers()) tensor.copy_(buffers.at(name));
}

void compare(const Case& with, const Tensors& recorded, DType dtype, double tolerance) {
  const std::unique_ptr<nn::Module> module = with.make();
  module->to(dtype);
  module->train(with.is_training);
  set_values(*module, recorded);
  Inputs inputs;
  const Tensors given = under(recorded, "input.");
  for (const auto& named : given) {
    inputs.push_back(named.second.clone());
    if (recorded.count("grad.input." + named.first) > 0) inputs.back().requires_grad_();
  }
  const Tensor y = with.call(*module, inputs);
  expect_close("output", y, recorded.at("output"), tolerance);
  y.backward(recorded.at("grad_output"));
  for (const auto& [name, wanted] : under(recorded, "grad.input.")) {
    const auto i = static_cast<std::size_t>(std::stoi(name));
    expect_close("gradient of input " + name, inputs.at(i).grad(), wanted, tolerance);
  }
  const Tensors gradients = under(recorded, "grad.param.");
  for (const auto& [name, parameter] : module->named_parameters()) {
    expect_close("gradient of " + name, parameter.grad(), gradients.at(name), tolerance);
  }
  const Tensors after = under(recorded, "after.");
  for (const auto& [name, buffer] : module->named_buffers()) {
    expect_close(name + " after", buffer, after.at(name), tolerance);
  }
}

class PyTorch : public ::testing::TestWithParam<std::string> {};

TEST_P(PyTorch, ComputesTheSame) {
  const auto found = cases().find(GetParam());
  ASSERT_NE(found, cases().end()) << "recorded, and not in the table";
  const nn::SafetensorsFile file =
      nn::read_safetensors(std::string(HEADROOM_NN_DATA "/") + GetParam() + ".safetensors");
  const Tensors all(file.tensors.begin(), file.tensors.end());
  compare(found->second, under(all, "f64."), kF64, 1e-12);
  compare(found->second, under(all, "f32."), kF32, 1e-5);
}

std::vector<std::string> recorded_names() {
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator(HEADROOM_NN_DATA)) {
    if (entry.path().extension() == ".safetensors") out.push_back(entry.path().stem().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

INSTANTIATE_TEST_SUITE_P(Recorded,
                         PyTorch,
                         ::testing::ValuesIn(recorded_names()),
                         [](const auto& name) { return name.param; });

TEST(PyTorchData, HasEveryCaseOfTheTable) {
  const std::vector<std::string> names = recorded_names();
  for (const auto& named : cases()) {
    EXPECT_TRUE(std::binary_search(names.begin(), names.end(), named.first)) << named.first;
  }
}

}  // namespace
}  // namespace headroom
