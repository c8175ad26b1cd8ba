// Examples from files: bytes for a language model, IDX images (as MNIST's) for the others.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "headroom/train/examples.h"

namespace headroom::train {

// For a model that reads tokens, the bytes of any file, in windows that the seed chooses. For one
// that reads numbers, IDX images of as many numbers as it reads; their labels are beside them, in a
// file whose name has `labels` and `idx1` where theirs has `images` and `idx3`.
// Throws Error, with the path, for a file that cannot be used.
[[nodiscard]] std::unique_ptr<Examples> file_examples(const std::string& path,
                                                      const ExampleShape& shape,
                                                      std::uint64_t seed);

}  // namespace headroom::train
