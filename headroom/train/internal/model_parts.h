// The models, each from the numbers that its config comes to.
#pragma once

#include <cstdint>
#include <memory>

#include "headroom/train/models.h"

namespace headroom::train::internal {

struct ModelSizes {
  std::int64_t depth = 0;
  std::int64_t width = 0;
  std::int64_t seq = 0;
};

using ModelMaker = std::unique_ptr<Model> (*)(const ModelSizes&, const TensorOptions&);

[[nodiscard]] std::unique_ptr<Model> make_mlp(const ModelSizes&, const TensorOptions&);
[[nodiscard]] std::unique_ptr<Model> make_deepnet(const ModelSizes&, const TensorOptions&);
[[nodiscard]] std::unique_ptr<Model> make_trackingnet(const ModelSizes&, const TensorOptions&);
[[nodiscard]] std::unique_ptr<Model> make_simplenn(const ModelSizes&, const TensorOptions&);
[[nodiscard]] std::unique_ptr<Model> make_resnet18(const ModelSizes&, const TensorOptions&);
[[nodiscard]] std::unique_ptr<Model> make_resnet50(const ModelSizes&, const TensorOptions&);
[[nodiscard]] std::unique_ptr<Model> make_gpt2(const ModelSizes&, const TensorOptions&);
[[nodiscard]] std::unique_ptr<Model> make_gpt2_tiny(const ModelSizes&, const TensorOptions&);

}  // namespace headroom::train::internal
