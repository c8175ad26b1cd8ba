// ResNet-18 and ResNet-50 in torchvision's layout, with its names and its initialisation.
#include <array>
#include <cmath>

#include "headroom/autograd/grad_mode.h"
#include "headroom/nn/containers.h"
#include "headroom/nn/layers/linear.h"
#include "headroom/nn/layers/norm.h"
#include "headroom/nn/layers/simple.h"
#include "headroom/train/internal/model_parts.h"

namespace headroom::train::internal {
namespace {

constexpr std::int64_t kImageSide = 224;
constexpr std::int64_t kImageClasses = 1000;

// Kaiming's normal values by what goes out, as torchvision sets every convolution.
class ImageConv : public nn::Conv2d {
 public:
  ImageConv(std::int64_t in,
            std::int64_t out,
            std::int64_t kernel,
            std::int64_t stride,
            const TensorOptions& options)
      : nn::Conv2d(in,
                   out,
                   kernel,
                   {.stride = stride, .padding = kernel / 2, .has_bias = false},
                   options) {
    const NoGradScope no_grad;
    weight.normal_(0, std::sqrt(2.0 / static_cast<double>(out * kernel * kernel)));
  }
};

// Where the block changes the shape: what its input is added as.
class Downsample : public nn::Sequential {
 public:
  Downsample(std::int64_t in, std::int64_t out, std::int64_t stride, const TensorOptions& options) {
    emplace<ImageConv>(in, out, 1, stride, options);
    emplace<nn::BatchNorm2d>(out, nn::BatchNormConfig{}, options);
  }
};

// ReLU is in place, as in torchvision: batch norm keeps its input, not its output.
Tensor rectified(const Tensor& x) { return x.relu_(); }

struct BlockShape {
  std::int64_t in = 0;
  std::int64_t planes = 0;
  std::int64_t stride = 1;
  std::int64_t expansion = 1;

  [[nodiscard]] std::int64_t out() const { return planes * expansion; }
  [[nodiscard]] bool needs_downsample() const { return stride != 1 || in != out(); }
};

class ImageBlock : public nn::Module {
 public:
  ImageBlock(const BlockShape& shape, const TensorOptions& options) {
    if (!shape.needs_downsample()) return;
    downsample_ = std::make_unique<Downsample>(shape.in, shape.out(), shape.stride, options);
  }

 protected:
  // Last, as in torchvision.
  void add_downsample() {
    if (downsample_) add("downsample", *downsample_);
  }
  [[nodiscard]] Tensor joined(const Tensor& y, const Tensor& x) {
    return rectified(y.add_(downsample_ ? (*downsample_)(x) : x));
  }

 private:
  std::unique_ptr<Downsample> downsample_{};
};

class BasicBlock : public ImageBlock {
 public:
  BasicBlock(const BlockShape& shape, const TensorOptions& options)
      : ImageBlock(shape, options),
        conv1_(shape.in, shape.planes, 3, shape.stride, options),
        bn1_(shape.planes, {}, options),
        conv2_(shape.planes, shape.planes, 3, 1, options),
        bn2_(shape.planes, {}, options) {
    add("conv1", conv1_);
    add("bn1", bn1_);
    add("conv2", conv2_);
    add("bn2", bn2_);
    add_downsample();
  }
  Tensor forward(const Tensor& x) override {
    return joined(bn2_(conv2_(rectified(bn1_(conv1_(x))))), x);
  }

 private:
  ImageConv conv1_;
  nn::BatchNorm2d bn1_;
  ImageConv conv2_;
  nn::BatchNorm2d bn2_;
};

class Bottleneck : public ImageBlock {
 public:
  Bottleneck(const BlockShape& shape, const TensorOptions& options)
      : ImageBlock(shape, options),
        conv1_(shape.in, shape.planes, 1, 1, options),
        bn1_(shape.planes, {}, options),
        conv2_(shape.planes, shape.planes, 3, shape.stride, options),
        bn2_(shape.planes, {}, options),
        conv3_(shape.planes, shape.out(), 1, 1, options),
        bn3_(shape.out(), {}, options) {
    add("conv1", conv1_);
    add("bn1", bn1_);
    add("conv2", conv2_);
    add("bn2", bn2_);
    add("conv3", conv3_);
    add("bn3", bn3_);
    add_downsample();
  }
  Tensor forward(const Tensor& x) override {
    const Tensor narrow = rectified(bn1_(conv1_(x)));
    return joined(bn3_(conv3_(rectified(bn2_(conv2_(narrow))))), x);
  }

 private:
  ImageConv conv1_;
  nn::BatchNorm2d bn1_;
  ImageConv conv2_;
  nn::BatchNorm2d bn2_;
  ImageConv conv3_;
  nn::BatchNorm2d bn3_;
};

template <class Block, std::int64_t kExpansion>
class ResNet : public Model {
 public:
  ResNet(const std::array<std::int64_t, 4>& counts, const TensorOptions& options)
      : Model({.input = {3, kImageSide, kImageSide}, .classes = kImageClasses}),
        conv1_(3, 64, 7, 2, options),
        bn1_(64, {}, options),
        fc_(512 * kExpansion, kImageClasses, true, options) {
    add("conv1", conv1_);
    add("bn1", bn1_);
    std::int64_t in = 64;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      in = fill(
          layers_[i], {in, std::int64_t{64} << i, i == 0 ? 1 : 2, kExpansion}, counts[i], options);
      add("layer" + std::to_string(i + 1), layers_[i]);
    }
    add("fc", fc_);
  }

  Tensor enter(const Tensor& x) override { return pool_(rectified(bn1_(conv1_(x)))); }
  Tensor leave(const Tensor& x) override { return fc_(adaptive_avg_pool2d(x, {1, 1}).flatten(1)); }
  std::vector<nn::Module*> blocks() override {
    std::vector<nn::Module*> out;
    for (const nn::ModuleList& layer : layers_) {
      for (const auto& block : layer) out.push_back(block.get());
    }
    return out;
  }

 private:
  // Returns the channels that go on.
  static std::int64_t fill(nn::ModuleList& layer,
                           BlockShape shape,
                           std::int64_t count,
                           const TensorOptions& options) {
    for (std::int64_t i = 0; i < count; ++i) {
      layer.emplace<Block>(shape, options);
      shape.in = shape.out();
      shape.stride = 1;
    }
    return shape.out();
  }

  ImageConv conv1_;
  nn::BatchNorm2d bn1_;
  nn::MaxPool2d pool_{3, 2, 1};
  std::array<nn::ModuleList, 4> layers_{};
  nn::Linear fc_;
};

}  // namespace

std::unique_ptr<Model> make_resnet18(const ModelSizes&, const TensorOptions& options) {
  return std::make_unique<ResNet<BasicBlock, 1>>(std::array<std::int64_t, 4>{2, 2, 2, 2}, options);
}
std::unique_ptr<Model> make_resnet50(const ModelSizes&, const TensorOptions& options) {
  return std::make_unique<ResNet<Bottleneck, 4>>(std::array<std::int64_t, 4>{3, 4, 6, 3}, options);
}

}  // namespace headroom::train::internal
