// Datasets: examples by number, an input and a target each, all of the same shapes and types.
//
//   class Mine : public nn::Dataset {
//    public:
//     std::int64_t size() const override { return 1000; }
//     nn::ExampleSpec spec() const override { return {{kF32, {3}}, {kI64, {}}}; }
//     void write(std::int64_t i, void* input, void* target) const override {
//       ... three floats, one std::int64_t ...
//     }
//   };
//
// An example is written straight into host memory that a device copies from, so that a loader makes
// no tensors but its batches.
#pragma once

#include <cstdint>

#include "headroom/tensor/tensor.h"

namespace headroom::nn {

struct ElementSpec {
  DType dtype = DType::kF32;
  Shape shape{};

  [[nodiscard]] std::int64_t numel() const;
  [[nodiscard]] std::uint64_t size_bytes() const;
};

// The type and shape of each example.
struct ExampleSpec {
  ElementSpec input{};
  ElementSpec target{};
};

struct Example {
  Tensor input{};
  Tensor target{};
};

class Dataset {
 public:
  Dataset() = default;
  virtual ~Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;

  [[nodiscard]] virtual std::int64_t size() const = 0;
  [[nodiscard]] virtual ExampleSpec spec() const = 0;
  // Writes example i, which is below size(), in row-major order. Several threads may call it at
  // once.
  virtual void write(std::int64_t i, void* input, void* target) const = 0;

  // Example i as tensors. Throws InvalidArgument when there is none, or on a place that the
  // processor cannot write to.
  [[nodiscard]] Example get(std::int64_t i, const Place& place = "cpu") const;
};

// Rows of two tensors that the processor can read.
class TensorDataset : public Dataset {
 public:
  // Throws InvalidArgument when they have not as many rows.
  TensorDataset(const Tensor& inputs, const Tensor& targets);
  [[nodiscard]] std::int64_t size() const override { return inputs_.size(0); }
  [[nodiscard]] ExampleSpec spec() const override;
  void write(std::int64_t i, void* input, void* target) const override;

 private:
  Tensor inputs_;
  Tensor targets_;
};

}  // namespace headroom::nn
