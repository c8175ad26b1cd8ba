// How much a file may unfold to. Values of a pickle are shared, so a few bytes can name a list a
// million times; a real snapshot never has more items than bytes.
#pragma once

#include <cstdint>

#include "headroom/base/bytes.h"
#include "headroom/trace/internal/failure.h"

namespace headroom::trace::internal {

class Budget {
 public:
  explicit Budget(std::uint64_t input_bytes)
      : items_(input_bytes), value_bytes_(1_MiB + 16 * input_bytes) {}

  // For events, segments, blocks, frames, keys.
  void spend_items(std::uint64_t count) {
    if (count > items_) fail_unfolding();
    items_ -= count;
  }
  // For what is kept as a tree.
  void spend_value(std::uint64_t bytes) {
    if (bytes > value_bytes_) fail_unfolding();
    value_bytes_ -= bytes;
  }

 private:
  [[noreturn]] static void fail_unfolding() {
    fail(
        "the snapshot unfolds to far more than its size, because it refers to the same parts "
        "again and again: it is damaged, or made to do harm");
  }

  std::uint64_t items_;
  std::uint64_t value_bytes_;
};

}  // namespace headroom::trace::internal
