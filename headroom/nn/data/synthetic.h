// Datasets that need no file and can be learned: numbers by a rule and noise, the same for a seed
// on every machine. Nothing is kept: example i is a function of the seed and i.
#pragma once

#include <cstdint>
#include <vector>

#include "headroom/nn/data/dataset.h"

namespace headroom::nn {

// f32 inputs of any shape ([channels, height, width], or [features]) in `classes` classes, i64
// targets: each class has a pattern of its own, with noise as large over it. The pattern of an
// image is the same over cells of a fourteenth of its side, which a convolution can see.
class SyntheticClasses : public Dataset {
 public:
  // Throws InvalidArgument unless there are examples, classes and elements.
  SyntheticClasses(std::int64_t size,
                   const Shape& shape,
                   std::int64_t classes,
                   std::uint64_t seed = 0);
  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] ExampleSpec spec() const override;
  void write(std::int64_t i, void* input, void* target) const override;

 private:
  [[nodiscard]] std::vector<float> pattern_of(std::int64_t label) const;

  std::int64_t size_;
  Shape shape_;
  std::int64_t numel_;
  std::int64_t classes_;
  std::uint64_t seed_;
};

// f32 inputs, and f32 targets that are a smooth function of some of their elements.
class SyntheticRegression : public Dataset {
 public:
  SyntheticRegression(std::int64_t size, const Shape& in, const Shape& out, std::uint64_t seed = 0);
  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] ExampleSpec spec() const override;
  void write(std::int64_t i, void* input, void* target) const override;

 private:
  std::int64_t size_;
  ElementSpec in_;
  ElementSpec out_;
  std::uint64_t seed_;
};

// i64 sequences of tokens, and the same one token on. Nine times of ten a token decides the next,
// by a table that the seed makes; else it is any.
class SyntheticTokens : public Dataset {
 public:
  SyntheticTokens(std::int64_t size,
                  std::int64_t length,
                  std::int64_t vocabulary,
                  std::uint64_t seed = 0);
  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] ExampleSpec spec() const override;
  void write(std::int64_t i, void* input, void* target) const override;

 private:
  std::int64_t size_;
  std::int64_t length_;
  std::int64_t vocabulary_;
  std::uint64_t seed_;
};

}  // namespace headroom::nn
