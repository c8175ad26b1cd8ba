#include "headroom/train/data.h"

#include <algorithm>
#include <string_view>

#include "headroom/base/error.h"
#include "headroom/base/input_file.h"
#include "headroom/nn/data/files.h"
#include "headroom/nn/data/synthetic.h"

namespace headroom::train {
namespace {

using Task = ExampleShape::Task;

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  const std::size_t at = text.rfind(what);
  return at == std::string::npos ? text : text.replace(at, what.size(), by);
}

// MNIST's names: train-images-idx3-ubyte has its labels in train-labels-idx1-ubyte.
std::string labels_beside(const std::string& path) {
  std::string beside = replaced(replaced(path, "images", "labels"), "idx3", "idx1");
  if (beside != path) return beside;
  try {
    const InputFile there(path);  // else that is what is wrong, whatever its name
  } catch (const Error& error) {
    throw Error(path + ": " + error.what());
  }
  throw Error(path + ": its name has no 'images', by which the file of labels would be found");
}

std::unique_ptr<nn::Dataset> images(const std::string& path, const ExampleShape& shape) {
  auto out = std::make_unique<nn::IdxImages>(path, labels_beside(path));
  const std::int64_t wanted = nn::ElementSpec{.shape = shape.input}.numel();
  const std::int64_t found = out->spec().input.numel();
  if (found != wanted) {
    throw Error(path + ": its images have " + std::to_string(found) +
                " numbers each, and the model reads " + std::to_string(wanted));
  }
  if (out->classes() > shape.classes) {
    throw Error(path + ": its images have " + std::to_string(out->classes()) +
                " classes, and the model knows " + std::to_string(shape.classes));
  }
  return out;
}

}  // namespace

std::unique_ptr<nn::Dataset> synthetic_data(const ExampleShape& shape, std::uint64_t seed) {
  constexpr std::int64_t kExamples = 1 << 14;
  constexpr std::int64_t kClasses = 10;
  constexpr std::int64_t kTokens = 64;
  switch (shape.task) {
    case Task::kClasses:
      return std::make_unique<nn::SyntheticClasses>(
          kExamples, shape.input, std::min(shape.classes, kClasses), seed);
    case Task::kTokens:
      return std::make_unique<nn::SyntheticTokens>(
          kExamples, shape.input[0], std::min(shape.classes, kTokens), seed);
    default:
      return std::make_unique<nn::SyntheticRegression>(kExamples, shape.input, shape.input, seed);
  }
}

std::unique_ptr<nn::Dataset> file_data(const std::string& path, const ExampleShape& shape) {
  switch (shape.task) {
    case Task::kClasses:
      return images(path, shape);
    case Task::kTokens:
      return std::make_unique<nn::ByteText>(path, shape.input[0]);
    default:
      throw InvalidArgument("--data: this model learns from made-up numbers only");
  }
}

}  // namespace headroom::train
