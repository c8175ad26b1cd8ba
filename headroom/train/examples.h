// Where the examples of a step come from: a stream without an end, each by its number, so that what
// a step sees does not depend on how it is cut into micro-batches.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "headroom/train/models.h"

namespace headroom::train {

struct Batch {
  Tensor input{};
  Tensor target{};
};

class Examples {
 public:
  Examples() = default;
  Examples(const Examples&) = delete;
  Examples& operator=(const Examples&) = delete;
  virtual ~Examples() = default;

  // Of the tasks with numbers as input; the target of kNumbers goes to `target`, a class is
  // returned.
  [[nodiscard]] virtual std::int64_t numbers(std::uint64_t example,
                                             std::span<float> input,
                                             std::span<float> target) const = 0;
  // Of kTokens: one more than the input has, each the target of the one before.
  virtual void tokens(std::uint64_t example, std::span<std::int64_t> out) const = 0;
};

// Something to learn, drawn from the seed. Classes are patterns under noise, numbers are to be made
// positive, tokens follow from the one before.
[[nodiscard]] std::unique_ptr<Examples> synthetic_examples(const ExampleShape& shape,
                                                           std::uint64_t seed);

}  // namespace headroom::train
