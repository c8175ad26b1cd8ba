// Any text at all as settings: it never crashes a reader, and both dialects agree.
#include <array>
#include <cstdint>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "headroom/memory/config.h"

#include "tests/memory/config_dialects.h"

namespace headroom::memory {
namespace {

using testing::pytorch;
using testing::strict;

constexpr std::array<const char*, 11> kSomeKeys{"max_split_size_mb",
                                                "max_non_split_rounding_mb",
                                                "roundup_power2_divisions",
                                                "expandable_segments",
                                                "backend",
                                                "garbage_collection_threshold",
                                                "large_segment_size_mb",
                                                "per_process_memory_fraction",
                                                "expandable_segments_reserve",
                                                "expandable_segments_reserve_by_class",
                                                "pinned_num_register_threads"};
constexpr std::array<const char*, 14> kSomeValues{"True",
                                                  "False",
                                                  "native",
                                                  "0.5",
                                                  "40G",
                                                  "64",
                                                  "128",
                                                  "-1",
                                                  "1e999",
                                                  "99999999999999999999",
                                                  "[64:8,256:4,>:1]",
                                                  "[>:2]",
                                                  "[a:0.5,b:8G]",
                                                  "\xff"};

template <std::size_t N>
const char* pick(const std::array<const char*, N>& from, std::mt19937_64& random) {
  return from[random() % N];
}

// Well-formed entries, most of them with a value of another key.
std::string random_entries(std::mt19937_64& random) {
  std::string out;
  for (auto left = 1 + random() % 3; left > 0; --left) {
    out += std::string(pick(kSomeKeys, random)) + ":" + pick(kSomeValues, random);
    if (left > 1) out += ",";
  }
  return out;
}

// The grammar's own pieces in any order: more likely to reach deep than random bytes.
std::string random_pieces(std::mt19937_64& random) {
  constexpr std::array<const char*, 6> kPunctuation{"[", "]", ":", ",", ">", " "};
  std::string out;
  for (auto left = random() % 24; left > 0; --left) {
    switch (random() % 8) {
      case 0:
        out += static_cast<char>(random() % 256);
        break;
      case 1:
        out += pick(kSomeKeys, random);
        break;
      case 2:
        out += pick(kSomeValues, random);
        break;
      default:
        out += pick(kPunctuation, random);
    }
  }
  return out;
}

// True when the strict reader takes the text.
bool check_any(const std::string& text, PyTorchVersion version) {
  const auto by_pytorch = pytorch(text, version);
  const auto by_us = strict(text, version);
  EXPECT_TRUE(!by_pytorch || by_pytorch->config.large_segment_bytes >= 11_MiB) << text;
  EXPECT_TRUE(by_us || !by_us.error().empty()) << text;
  if (!by_us) return false;
  if (version < kPyTorch210) return true;  // its numbers and white space were narrower
  // What the strict reader takes, PyTorch's takes too, and both mean the same.
  const std::string written = to_string(by_us->config);
  EXPECT_EQ(by_pytorch ? to_string(by_pytorch->config) : by_pytorch.error(), written) << text;
  const auto again = strict(written, version);
  EXPECT_EQ(again ? to_string(again->config) : again.error(), written) << text;
  return true;
}

TEST(ConfigFuzz, NoTextCrashesOrBreaksTheRules) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const std::array<PyTorchVersion, 3> versions{kPyTorch29, kPyTorch210, kPyTorch215};
  int taken = 0;
  for (int i = 0; i < 20000 && !HasFailure(); ++i) {
    const std::string text = random() % 2 == 0 ? random_entries(random) : random_pieces(random);
    if (check_any(text, versions[random() % versions.size()])) ++taken;
  }
  EXPECT_GT(taken, 200) << "the generator makes too little that is valid";
}

}  // namespace
}  // namespace headroom::memory
