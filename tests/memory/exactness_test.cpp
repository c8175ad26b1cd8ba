// The point of CachingAllocator: on a recording of PyTorch every allocation lands on the recorded
// address and every segment event happens where it is recorded.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/memory/recording.h"

namespace headroom::memory::testing {
namespace {

std::vector<std::string> recordings() {
  std::vector<std::string> paths;
  const char* more = std::getenv("HEADROOM_RECORDINGS");
  for (const char* folder : {HEADROOM_TEST_RECORDINGS, more}) {
    if (folder == nullptr) continue;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string name = entry.path().string();
      if (name.ends_with(".csv") || name.ends_with(".csv.zst")) paths.push_back(name);
    }
  }
  std::ranges::sort(paths);
  return paths;
}

std::string name_of(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = std::filesystem::path(info.param).filename().string();
  name = name.substr(0, name.find('.'));
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

class Exactness : public ::testing::TestWithParam<std::string> {};

TEST_P(Exactness, EveryAddressAndEverySegmentIsPyTorchs) {
  const Recording recording = read_recording(GetParam());
  const PlayResult result = play(recording);
  EXPECT_EQ(result.address_mismatches, 0U) << result.first_mismatch;
  EXPECT_EQ(result.segment_mismatches, 0U) << result.first_mismatch;
  EXPECT_TRUE(result.has_same_end) << "the final segments and blocks differ";
  EXPECT_EQ(result.broken_invariant, "");
  EXPECT_GT(result.allocs, 0U);
}

INSTANTIATE_TEST_SUITE_P(Recordings, Exactness, ::testing::ValuesIn(recordings()), name_of);

// The comparison must be able to fail: a tie broken otherwise, or another card, shows.
TEST(ExactnessPlayer, NoticesAnotherVersionsDecisions) {
  const Recording recording =
      read_recording(std::string(HEADROOM_TEST_RECORDINGS) + "/llama_serve.csv.zst");
  const PlayResult result = play(recording, {.version = kPyTorch213});
  EXPECT_GT(result.address_mismatches, 0U);
}

TEST(ExactnessPlayer, NoticesAnotherLimit) {
  const Recording recording =
      read_recording(std::string(HEADROOM_TEST_RECORDINGS) + "/resnet50_gc_tight.csv.zst");
  const PlayResult result = play(recording, {.card_bytes = 80'000'000'000});
  EXPECT_GT(result.segment_mismatches, 0U);
}

}  // namespace
}  // namespace headroom::memory::testing
