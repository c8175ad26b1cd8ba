// Every input that a fuzzer found worth keeping, once more.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <string>

#include <gtest/gtest.h>

#include "headroom/trace/hrt/hrt_writer.h"

#include "tests/fuzz/hrt_property.h"
#include "tests/fuzz/idx_property.h"
#include "tests/fuzz/pickle_property.h"
#include "tests/fuzz/safetensors_property.h"
#include "tests/trace/random_trace.h"

namespace headroom::trace {
namespace {

namespace fs = std::filesystem;

using Property = std::optional<std::string> (*)(std::span<const std::byte>);

void expect_property(const std::string& folder, Property broken_property) {
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    const auto broken = broken_property(std::as_bytes(std::span(bytes)));
    EXPECT_FALSE(broken) << entry.path() << ": " << *broken;
    ++count;
  }
  EXPECT_GT(count, 0U);
}

TEST(FuzzCorpus, PicklesKeepTheirProperty) {
  expect_property(HEADROOM_FUZZ_CORPUS "/pickle", testing::broken_pickle_property);
}

TEST(FuzzCorpus, HrtFilesKeepTheirProperty) {
  expect_property(HEADROOM_FUZZ_CORPUS "/hrt", testing::broken_hrt_property);
}

TEST(FuzzCorpus, SafetensorsFilesKeepTheirProperty) {
  expect_property(HEADROOM_FUZZ_CORPUS "/safetensors", nn::testing::broken_safetensors_property);
}

TEST(FuzzCorpus, IdxFilesKeepTheirProperty) {
  expect_property(HEADROOM_FUZZ_CORPUS "/idx", nn::testing::broken_idx_property);
}

// What a fuzzer starts from: HEADROOM_FUZZ_SEEDS=DIR writes them there.
TEST(FuzzCorpus, SeedsKeepTheirProperty) {
  const char* folder = std::getenv("HEADROOM_FUZZ_SEEDS");
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto file = write_hrt(testing::random_trace(seed, 30), {.events_per_block = 16});
    for (const auto& bytes : {file, testing::as_bare_blocks(file)}) {
      const auto broken = testing::broken_hrt_property(bytes);
      EXPECT_FALSE(broken) << seed << ": " << *broken;
      if (folder == nullptr) continue;
      std::ofstream out(std::string(folder) + "/" + std::to_string(seed) +
                            (&bytes == &file ? "" : "-") + std::to_string(bytes.size()),
                        std::ios::binary);
      out.write(reinterpret_cast<const char*>(bytes.data()),
                static_cast<std::streamsize>(bytes.size()));
    }
  }
}

}  // namespace
}  // namespace headroom::trace
