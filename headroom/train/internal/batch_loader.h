// BatchLoader: puts examples into tensors of a device.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "headroom/train/examples.h"

namespace headroom::train::internal {

class BatchLoader {
 public:
  // Floating tensors are f32 or f64.
  BatchLoader(const ExampleShape& shape,
              std::unique_ptr<Examples> examples,
              DType type,
              memory::Allocator& allocator);

  // Of category data, for `count` examples.
  [[nodiscard]] Batch allocate(std::int64_t count) const;
  // The examples from `first` on. On meta there is nothing to fill.
  void fill(const Batch& batch, std::uint64_t first);

 private:
  void fill_tokens(const Batch& batch, std::uint64_t first);
  void write_numbers(const Tensor& to);

  ExampleShape shape_;
  std::unique_ptr<Examples> examples_;
  DType type_;
  memory::Allocator& allocator_;
  std::vector<float> numbers_{};
  std::vector<float> target_numbers_{};
  std::vector<double> doubles_{};
  std::vector<std::int64_t> indices_{};
  std::vector<std::int64_t> targets_{};
};

}  // namespace headroom::train::internal
