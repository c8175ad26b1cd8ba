// The seed of a property test: new every time, or HEADROOM_TEST_SEED to see a failure again.
#pragma once

#include <cstdlib>
#include <random>
#include <string>

namespace headroom::testing {

[[nodiscard]] inline unsigned test_seed() {
  if (const char* text = std::getenv("HEADROOM_TEST_SEED")) {
    return static_cast<unsigned>(std::stoul(text));
  }
  return std::random_device{}();
}

// For SCOPED_TRACE: what to set to see it again.
[[nodiscard]] inline std::string seed_text(unsigned seed) {
  return "HEADROOM_TEST_SEED=" + std::to_string(seed);
}

}  // namespace headroom::testing
