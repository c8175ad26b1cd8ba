#include "headroom/train/data_files.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/nn/data/files.h"

namespace headroom::train {
namespace {

// A place for an example, without a state: the golden ratio's multiples lie evenly.
std::int64_t scattered(std::uint64_t number, std::uint64_t seed, std::int64_t count) {
  const std::uint64_t mixed = (number + seed * 7919 + 1) * 0x9e3779b97f4a7c15ULL;
  return static_cast<std::int64_t>((mixed >> 11U) % static_cast<std::uint64_t>(count));
}

class ByteExamples : public Examples {
 public:
  ByteExamples(const std::string& path, std::int64_t length, std::uint64_t seed)
      : text_(path, length), seed_(seed) {}

  [[nodiscard]] std::int64_t numbers(std::uint64_t,
                                     std::span<float>,
                                     std::span<float>) const override {
    throw InvalidArgument("train: a file of bytes has no numbers");
  }
  void tokens(std::uint64_t example, std::span<std::int64_t> out) const override {
    std::vector<std::int64_t> targets(out.size() - 1);
    text_.write(scattered(example, seed_, text_.size()), out.data(), targets.data());
    out.back() = targets.back();
  }

 private:
  nn::ByteText text_;
  std::uint64_t seed_;
};

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  const std::size_t at = text.rfind(what);
  return at == std::string::npos ? text : text.replace(at, what.size(), by);
}

// MNIST's names: train-images-idx3-ubyte has its labels in train-labels-idx1-ubyte.
std::string labels_beside(const std::string& path) {
  std::string beside = replaced(replaced(path, "images", "labels"), "idx3", "idx1");
  if (beside != path) return beside;
  throw Error(path + ": its name has no 'images', so where its labels are is not known");
}

class ImageExamples : public Examples {
 public:
  ImageExamples(const std::string& path, const ExampleShape& shape, std::uint64_t seed)
      : images_(path, labels_beside(path)), seed_(seed) {
    std::int64_t wanted = 1;
    for (const std::int64_t size : shape.input) wanted *= size;
    const std::int64_t found = images_.spec().input.numel();
    if (found != wanted) {
      throw Error(path + ": its images have " + std::to_string(found) +
                  " numbers, and the model reads " + std::to_string(wanted));
    }
    if (images_.classes() > shape.classes) {
      throw Error(path + ": its images have " + std::to_string(images_.classes()) +
                  " classes, and the model knows " + std::to_string(shape.classes));
    }
  }

  [[nodiscard]] std::int64_t numbers(std::uint64_t example,
                                     std::span<float> input,
                                     std::span<float>) const override {
    std::int64_t label = 0;
    images_.write(scattered(example, seed_, images_.size()), input.data(), &label);
    return label;
  }
  void tokens(std::uint64_t, std::span<std::int64_t>) const override {
    throw InvalidArgument("train: images have no tokens");
  }

 private:
  nn::IdxImages images_;
  std::uint64_t seed_;
};

}  // namespace

std::unique_ptr<Examples> file_examples(const std::string& path,
                                        const ExampleShape& shape,
                                        std::uint64_t seed) {
  switch (shape.task) {
    case ExampleShape::Task::kClasses:
      return std::make_unique<ImageExamples>(path, shape, seed);
    case ExampleShape::Task::kTokens:
      return std::make_unique<ByteExamples>(path, shape.input[0], seed);
    default:
      throw InvalidArgument("--data: this model learns from synthetic numbers only");
  }
}

}  // namespace headroom::train
