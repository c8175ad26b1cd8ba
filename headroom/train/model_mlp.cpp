// Models of linear layers: mlp, and the seeds' deepnet, trackingnet and simplenn.
#include "headroom/nn/containers.h"
#include "headroom/nn/layers/linear.h"
#include "headroom/nn/layers/simple.h"
#include "headroom/tensor/ops/binary.h"
#include "headroom/tensor/ops/loss.h"
#include "headroom/train/internal/model_parts.h"

namespace headroom::train::internal {
namespace {

// Linear, then ReLU.
class Hidden : public nn::Module {
 public:
  Hidden(std::int64_t in, std::int64_t out, const TensorOptions& options)
      : linear_(in, out, true, options) {
    add("linear", linear_);
  }
  Tensor forward(const Tensor& x) override { return relu(linear_(x)); }

 private:
  nn::Linear linear_;
};

std::vector<nn::Module*> parts_of(const nn::ModuleList& list) {
  std::vector<nn::Module*> out;
  for (const auto& part : list) out.push_back(part.get());
  return out;
}

class Mlp : public Model {
 public:
  static constexpr std::int64_t kIn = 784;  // an image of 28 x 28
  static constexpr std::int64_t kClasses = 10;

  Mlp(std::int64_t depth, std::int64_t width, const TensorOptions& options)
      : Model({.input = {kIn}, .classes = kClasses}), head_(width, kClasses, true, options) {
    for (std::int64_t i = 0; i < depth; ++i)
      layers_.emplace<Hidden>(i == 0 ? kIn : width, width, options);
    add("layers", layers_);
    add("head", head_);
  }
  std::vector<nn::Module*> blocks() override { return parts_of(layers_); }
  Tensor leave(const Tensor& x) override { return head_(x); }

 private:
  nn::ModuleList layers_;
  nn::Linear head_;
};

// Seed 003's: two linear layers and their input again.
class ResidualBlock : public nn::Module {
 public:
  ResidualBlock(std::int64_t width, const TensorOptions& options) {
    net_.emplace<nn::Linear>(width, width, true, options);
    net_.emplace<nn::ReLU>();
    net_.emplace<nn::Linear>(width, width, true, options);
    net_.emplace<nn::ReLU>();
    add("net", net_);
  }
  Tensor forward(const Tensor& x) override { return net_(x) + x; }

 private:
  nn::Sequential net_;
};

class DeepNet : public Model {
 public:
  DeepNet(std::int64_t depth, std::int64_t width, const TensorOptions& options)
      : Model({.task = ExampleShape::Task::kNumbers, .input = {width}}) {
    for (std::int64_t i = 0; i < depth; ++i) blocks_.emplace<ResidualBlock>(width, options);
    add("blocks", blocks_);
  }
  std::vector<nn::Module*> blocks() override { return parts_of(blocks_); }
  Tensor loss(const Tensor& output, const Tensor& target) override {
    return mse_loss(output, target);
  }

 private:
  nn::ModuleList blocks_;
};

// Seed 003's tracking example, a Sequential there: parts 0 to 4.
class TrackingNet : public Model {
 public:
  explicit TrackingNet(const TensorOptions& options) : Model({.input = {1024}, .classes = 10}) {
    net_.emplace<nn::Linear>(1024, 2048, true, options);
    net_.emplace<nn::ReLU>();
    net_.emplace<nn::Linear>(2048, 2048, true, options);
    net_.emplace<nn::ReLU>();
    net_.emplace<nn::Linear>(2048, 10, true, options);
    add("net", net_);
  }
  std::vector<nn::Module*> blocks() override { return parts_of(net_); }

 private:
  nn::ModuleList net_;
};

// Seed 004's.
class SimpleNN : public Model {
 public:
  explicit SimpleNN(const TensorOptions& options)
      : Model({.input = {100}, .classes = 10}),
        fc1_(100, 50, true, options),
        fc2_(50, 10, true, options) {
    add("fc1", fc1_);
    add("relu", relu_);
    add("fc2", fc2_);
  }
  std::vector<nn::Module*> blocks() override { return {&fc1_, &relu_, &fc2_}; }

 private:
  nn::Linear fc1_;
  nn::ReLU relu_;
  nn::Linear fc2_;
};

}  // namespace

std::unique_ptr<Model> make_mlp(const ModelSizes& sizes, const TensorOptions& options) {
  return std::make_unique<Mlp>(sizes.depth, sizes.width, options);
}
std::unique_ptr<Model> make_deepnet(const ModelSizes& sizes, const TensorOptions& options) {
  return std::make_unique<DeepNet>(sizes.depth, sizes.width, options);
}
std::unique_ptr<Model> make_trackingnet(const ModelSizes&, const TensorOptions& options) {
  return std::make_unique<TrackingNet>(options);
}
std::unique_ptr<Model> make_simplenn(const ModelSizes&, const TensorOptions& options) {
  return std::make_unique<SimpleNN>(options);
}

}  // namespace headroom::train::internal
