// Every input that a fuzzer found worth keeping, once more.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "tests/fuzz/pickle_property.h"

namespace headroom::trace {
namespace {

namespace fs = std::filesystem;

TEST(FuzzCorpus, PicklesKeepTheirProperty) {
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator(HEADROOM_FUZZ_CORPUS "/pickle")) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    const auto broken = testing::broken_pickle_property(std::as_bytes(std::span(bytes)));
    EXPECT_FALSE(broken) << entry.path() << ": " << *broken;
    ++count;
  }
  EXPECT_GT(count, 0U);
}

}  // namespace
}  // namespace headroom::trace
