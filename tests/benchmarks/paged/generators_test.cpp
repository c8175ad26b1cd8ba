// The generators: deterministic, whole, and as the issue has them.
#include "benchmarks/paged/generators.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "headroom/base/fingerprint.h"

#include "tests/support/seed.h"

namespace headroom::bench {
namespace {

using replay::OpKind;

constexpr int kSmall = 4;  // percent

std::uint64_t print_of(const replay::Program& program) {
  Fingerprint print;
  for (const replay::Op& op : program.ops) {
    print.add(op.size_bytes).add(op.slot).add(op.stream);
    print.add(static_cast<std::uint64_t>(op.kind)).add(op.pool);
  }
  return print.value();
}

TEST(Generators, AreManyAndEachHasANameOfItsOwn) {
  EXPECT_GE(generators().size(), 40U);
  std::set<std::string> names;
  for (const Generator& generator : generators()) {
    names.insert(std::string(generator.group) + ": " + std::string(generator.name));
    EXPECT_FALSE(generator.summary.empty()) << generator.name;
    EXPECT_LE(generator.name.size(), 20U) << generator.name << " is too long for the table";
  }
  EXPECT_EQ(names.size(), generators().size());
}

TEST(Generators, AreFoundByGroupAndName) {
  EXPECT_EQ(generators_like("").size(), generators().size());
  EXPECT_EQ(generators_like("random: between_2_4_mib").size(), 1U);
  EXPECT_EQ(generators_like("pools: ").size(), 3U);
  EXPECT_TRUE(generators_like("no such traffic").empty());
}

TEST(Generators, TheSameSeedGivesTheSameProgram) {
  for (const Generator& generator : generators()) {
    const Made first = generate(generator, {.seed = 5, .percent = kSmall});
    const Made again = generate(generator, {.seed = 5, .percent = kSmall});
    EXPECT_EQ(first.program.ops, again.program.ops) << generator.name;
  }
}

// A change of the generator of numbers, or of a draw, would make old measurements incomparable.
TEST(Generators, ProgramsAreTheSameOnEveryMachine) {
  const std::map<std::string, std::uint64_t> expected{
      {"random: by_octaves", 18392087956688309056U},
      {"serving: kv_rows", 16217149227724844340U},
      {"streams: used_by_two", 17906010453874965245U}};
  for (const auto& [name, print] : expected) {
    const auto found = generators_like(name);
    ASSERT_EQ(found.size(), 1U) << name;
    EXPECT_EQ(print_of(generate(found[0], {.seed = 1, .percent = kSmall}).program), print) << name;
  }
}

// A simple model of what is held, kept beside the program.
TEST(Generators, EveryProgramIsWholeAndFreesWhatItAllocatesOrSaysSo) {
  const unsigned seed = headroom::testing::test_seed();
  SCOPED_TRACE(headroom::testing::seed_text(seed));
  for (const Generator& generator : generators()) {
    SCOPED_TRACE(std::string(generator.name));
    const Made made = generate(generator, {.seed = seed, .percent = kSmall});
    std::map<std::uint32_t, std::uint64_t> held;  // by slot
    std::map<std::uint32_t, std::uint64_t> pending;
    std::uint64_t live = 0;
    std::uint64_t peak = 0;
    std::uint64_t allocs = 0;
    for (const replay::Op& op : made.program.ops) {
      ASSERT_LT(op.stream, made.program.streams.size());
      ASSERT_LT(op.pool, made.program.pools.size());
      switch (op.kind) {
        case OpKind::kAllocate:
          ASSERT_LT(op.slot, made.program.slot_count);
          ASSERT_GT(op.size_bytes, 0U);
          ASSERT_TRUE(!held.contains(op.slot) && !pending.contains(op.slot));
          held[op.slot] = (op.size_bytes + 511) / 512 * 512;
          live += held[op.slot];
          peak = std::max(peak, live);
          ++allocs;
          break;
        case OpKind::kFree:
          ASSERT_TRUE(held.contains(op.slot));
          live -= held[op.slot];
          held.erase(op.slot);
          break;
        case OpKind::kFreeHeld:
          ASSERT_TRUE(held.contains(op.slot));
          pending[op.slot] = held[op.slot];
          held.erase(op.slot);
          break;
        case OpKind::kComplete:
          ASSERT_TRUE(pending.contains(op.slot));
          live -= pending[op.slot];
          pending.erase(op.slot);
          break;
        case OpKind::kFailed:
          FAIL() << "nothing was recorded, so nothing failed";
        case OpKind::kEmptyCache:
          break;
      }
    }
    EXPECT_EQ(made.program.peak_live, peak);
    EXPECT_EQ(made.program.allocs, allocs);
    EXPECT_EQ(made.kept_bytes, live);
    EXPECT_EQ(generator.keeps, live > 0);
  }
}

TEST(Generators, OtherSeedsGiveOtherProgramsUnlessNothingIsDrawn) {
  std::set<std::string> fixed;
  for (const Generator& generator : generators()) {
    const Made one = generate(generator, {.seed = 1, .percent = kSmall});
    const Made two = generate(generator, {.seed = 2, .percent = kSmall});
    if (one.program.ops == two.program.ops) fixed.insert(std::string(generator.name));
  }
  const std::set<std::string> expected{"survivors",
                                       "survivors_copied",
                                       "kept_scalars",
                                       "ever_new_sizes",
                                       "same_step",
                                       "changing_batch",
                                       "tiny_and_large",
                                       "resnet18",
                                       "resnet50",
                                       "gpt2"};
  EXPECT_EQ(fixed, expected);
}

}  // namespace
}  // namespace headroom::bench
