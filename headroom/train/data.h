// The data that models learn from: nn's datasets, chosen by the input of a model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "headroom/nn/data/dataset.h"
#include "headroom/train/models.h"

namespace headroom::train {

// Something to learn, drawn from the seed: nn's synthetic classes, numbers or tokens, of few enough
// classes and tokens that the loss falls while one watches.
[[nodiscard]] std::unique_ptr<nn::Dataset> synthetic_data(const ExampleShape& shape,
                                                          std::uint64_t seed);

// For a model that reads tokens, the bytes of any file. For one that reads numbers, IDX images (as
// MNIST's) of as many numbers as it reads; their labels are beside them, in a file whose name has
// `labels` and `idx1` where theirs has `images` and `idx3`.
// Throws Error, with the path, for a file that cannot be used.
[[nodiscard]] std::unique_ptr<nn::Dataset> file_data(const std::string& path,
                                                     const ExampleShape& shape);

}  // namespace headroom::train
