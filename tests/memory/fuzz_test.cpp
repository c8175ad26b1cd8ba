// CachingAllocator against a naive model of PyTorch's decisions, over random sequences.
//
// A million operations, or as many as HEADROOM_FUZZ_OPS says. A failure prints the seed of its
// sequence (HEADROOM_TEST_SEED) and the shortest sequence found that still fails, as a line to
// paste into kCases below.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>

#include <gtest/gtest.h>

#include "headroom/base/env.h"

#include "tests/memory/duel.h"
#include "tests/support/sanitized.h"
#include "tests/support/seed.h"

namespace headroom::memory::testing {
namespace {

constexpr std::size_t kLength = 500;
// A sanitizer takes some twenty times as long.
constexpr std::int64_t kDefaultOps = headroom::testing::kIsSanitized ? 50'000 : 1'000'000;

TEST(Fuzz, AgreesWithTheModelOnRandomSequences) {
  const auto wanted = static_cast<std::uint64_t>(
      env_int("HEADROOM_FUZZ_OPS", 1, 1'000'000'000'000).value().value_or(kDefaultOps));
  const std::uint64_t first_seed = headroom::testing::test_seed();
  // Ahead, should it crash.
  std::printf("HEADROOM_TEST_SEED=%llu\n", static_cast<unsigned long long>(first_seed));
  std::fflush(stdout);
  DuelResult total;
  std::uint64_t sequences = 0;
  for (; total.ops < wanted; ++sequences) {
    const std::uint64_t seed = first_seed + sequences;
    const Sequence sequence = random_sequence(seed, kLength);
    const DuelResult result = fight(sequence);
    if (!result.difference.empty()) {
      const Sequence shorter = shrink(sequence);
      FAIL() << "HEADROOM_TEST_SEED=" << seed << "\n"
             << result.difference << "\nshrunk to " << shorter.ops.size() << " operations:\n"
             << to_string(shorter) << "\n"
             << fight(shorter).difference;
    }
    total.ops += result.ops;
    total.allocated += result.allocated;
    total.failed += result.failed;
    total.accounts += result.accounts;
  }
  EXPECT_GE(total.accounts, std::min<std::uint64_t>(wanted / 1000, 1000)) << "accounts added up";
  EXPECT_GT(total.failed, 0U);
  RecordProperty("operations", std::to_string(total.ops));
  RecordProperty("sequences", std::to_string(sequences));
  RecordProperty("allocations", std::to_string(total.allocated));
  RecordProperty("failures", std::to_string(total.failed));
  RecordProperty("accounts", std::to_string(total.accounts));
}

// Sequences on which the two once differed, or that show a rule.
constexpr const char* kCases[] = {
    // Two oversize blocks of one size are released for a request, the normal one is not.
    ("v13 m268435456 g12 l136314880 a0,41943040,0,1 a1,41943040,0,2 a2,12582912,0,4 f0 f1 f2 "
     "a3,83886080,0,5"),
    // A capture keeps the cache.
    "v13 m268435456 a0,31457280,0,1 f0 k e t1048576 u e",
    // The flush takes two blocks for the ends of the pages it unmaps, and the request splits one of
    // those ends without mapping anything.
    ("v13 m268435456 g7 a0,5242880,0,1 a1,41943040,0,2 a2,10485760,0,3 f1 l62914560 "
     "a3,8388608,0,4"),
    // A pool released while its scope is open, then flushed, still serves.
    "v13 m268435456 b0,15 x0 e a0,4194304,0,1 f0 n0 e a1,512,0,2",
};

TEST(Fuzz, AgreesOnTheCasesKept) {
  for (const char* text : kCases) {
    const Sequence sequence = parse_sequence(text);
    EXPECT_EQ(to_string(sequence), text) << "it is read as it was written";
    const DuelResult result = fight(sequence);
    EXPECT_EQ(result.difference, "") << text;
    EXPECT_EQ(result.ops, sequence.ops.size());
  }
}

// The comparison must be able to fail, and what it finds must be short enough to read.
TEST(Fuzz, NoticesAnotherVersionsDecisionsAndShrinks) {
  const DuelOptions options{.model_minor = 11};
  std::uint64_t seed = 1;
  Sequence sequence;
  do {
    sequence = random_sequence(seed++, kLength);
    sequence.minor = 13;
    ASSERT_LT(seed, 500U) << "no difference between 2.11 and 2.13 was noticed";
  } while (fight(sequence, options).difference.empty());
  const Sequence shorter = shrink(sequence, options);
  EXPECT_NE(fight(shorter, options).difference, "");
  EXPECT_LE(shorter.ops.size(), 30U) << to_string(shorter);
  EXPECT_EQ(fight(shorter).difference, "") << "the right version agrees";
}

}  // namespace
}  // namespace headroom::memory::testing
