// The loops that element-wise ops are compared with: as short as they can be written, vectorised by
// the compiler, over as many threads as the ops have.
#pragma once

#include <cstdint>

namespace headroom::cli::plain {

struct Loop {
  float* out = nullptr;
  const float* a = nullptr;
  const float* b = nullptr;
  std::int64_t count = 0;
  std::int64_t row = 1;  // of a bias
  int threads = 1;
};

void add(const Loop& loop);
void add_row(const Loop& loop);  // b is one row, added to every row of a
void scale(const Loop& loop);    // by 2.5
void relu(const Loop& loop);
void copy(const Loop& loop);
void exponential(const Loop& loop);
[[nodiscard]] float sum(const Loop& loop);

}  // namespace headroom::cli::plain
