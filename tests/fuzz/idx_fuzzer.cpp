// libFuzzer's entry: see tests/fuzz/CMakeLists.txt on how to run it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/idx_property.h"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto broken =
      headroom::nn::testing::broken_idx_property(std::as_bytes(std::span(data, size)));
  if (broken) {
    (void)std::fprintf(stderr, "%s\n", broken->c_str());
    std::abort();
  }
  return 0;
}
