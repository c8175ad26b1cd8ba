#include "headroom/train/models.h"

#include <algorithm>
#include <array>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/allocator_choice.h"
#include "headroom/memory/out_of_memory.h"
#include "headroom/tensor/ops/softmax.h"
#include "headroom/train/internal/model_parts.h"
#include "headroom/train/internal/words.h"

namespace headroom::train {
namespace {

struct ModelRow {
  ModelInfo info;
  internal::ModelMaker make;
};

constexpr std::array kModels{
    ModelRow{{.name = "mlp",
              .summary = "linear layers with ReLU over 784 numbers, 10 classes",
              .depth = 2,
              .width = 256,
              .batch = 64,
              .is_small = true},
             internal::make_mlp},
    ModelRow{{.name = "deepnet",
              .summary = "residual blocks of two linear layers with ReLU",
              .depth = 20,
              .width = 512,
              .batch = 128,
              .is_small = true},
             internal::make_deepnet},
    ModelRow{{.name = "trackingnet",
              .summary = "three linear layers, 1024 to 2048 to 2048 to 10",
              .batch = 256,
              .is_small = true},
             internal::make_trackingnet},
    ModelRow{{.name = "simplenn",
              .summary = "two linear layers, 100 to 50 to 10",
              .batch = 64,
              .is_small = true,
              .optimizer = "adam"},
             internal::make_simplenn},
    ModelRow{{.name = "resnet18",
              .summary = "torchvision's ResNet-18: images of 224 x 224, 1000 classes",
              .batch = 32,
              .has_batch_norm = true,
              .optimizer = "momentum"},
             internal::make_resnet18},
    ModelRow{{.name = "resnet50",
              .summary = "torchvision's ResNet-50: images of 224 x 224, 1000 classes",
              .batch = 32,
              .has_batch_norm = true,
              .optimizer = "momentum"},
             internal::make_resnet50},
    ModelRow{{.name = "gpt2",
              .summary = "GPT-2 with 124M parameters: 12 blocks of 768, 50257 tokens",
              .depth = 12,
              .width = 768,
              .seq = 1024,
              .batch = 8,
              .optimizer = "adamw"},
             internal::make_gpt2},
    ModelRow{{.name = "gpt2-tiny",
              .summary = "GPT-2 for bytes: 2 blocks of 64, 256 tokens",
              .depth = 2,
              .width = 64,
              .seq = 64,
              .batch = 8,
              .is_small = true,
              .optimizer = "adamw"},
             internal::make_gpt2_tiny}};

const ModelRow& find_row(std::string_view name) {
  const auto* const found =
      std::ranges::find(kModels, name, [](const ModelRow& row) { return row.info.name; });
  if (found != kModels.end()) return *found;
  std::vector<std::string_view> names;
  names.reserve(kModels.size());
  for (const ModelRow& row : kModels) names.push_back(row.info.name);
  throw InvalidArgument(internal::unknown_word("model", name, names));
}

// The value of an option: as asked for, else the default. 0 where the model has none.
std::int64_t chosen(const ModelInfo& info,
                    const char* option,
                    std::optional<std::int64_t> asked,
                    std::int64_t own) {
  constexpr std::int64_t kMost = 1'000'000;
  if (!asked) return own;
  const std::string name(info.name);
  if (own == 0) throw InvalidArgument(name + ": its " + option + " is fixed; do not set it");
  if (*asked >= 1 && *asked <= kMost) return *asked;
  throw InvalidArgument(name + ": a " + option + " of " + std::to_string(*asked) +
                        " is not possible; use 1 to " + std::to_string(kMost) + " (default " +
                        std::to_string(own) + ")");
}

}  // namespace

std::span<const ModelInfo> models() {
  static const std::vector<ModelInfo> all = [] {
    std::vector<ModelInfo> out;
    out.reserve(kModels.size());
    for (const ModelRow& row : kModels) out.push_back(row.info);
    return out;
  }();
  return all;
}

const ModelInfo& find_model(std::string_view name) { return find_row(name).info; }

Tensor Model::forward(const Tensor& x) {
  Tensor y = enter(x);
  for (nn::Module* block : blocks()) y = (*block)(y);
  return leave(y);
}

Tensor Model::loss(const Tensor& output, const Tensor& target) {
  return cross_entropy(output, target);
}

ExampleShape check_model(const ModelConfig& config) {
  // On a device without memory a model costs microseconds, and has every check.
  const auto device = device::MetaDevice::create({.capacity_bytes = 16_TiB});
  const auto allocator = memory::make_allocator(*device);
  try {
    return make_model(config, {.device = *allocator})->example();
  } catch (const memory::OutOfMemory&) {
    throw InvalidArgument(config.name + ": its parameters alone are more than 16TiB");
  }
}

std::unique_ptr<Model> make_model(const ModelConfig& config, const TensorOptions& options) {
  const ModelRow& row = find_row(config.name);
  return row.make({.depth = chosen(row.info, "depth", config.depth, row.info.depth),
                   .width = chosen(row.info, "width", config.width, row.info.width),
                   .seq = chosen(row.info, "seq", config.seq, row.info.seq)},
                  options);
}

}  // namespace headroom::train
