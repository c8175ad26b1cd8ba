// Few blocks that stay in each of many pages.
#include "headroom/analysis/spread.h"

#include <vector>

#include <gtest/gtest.h>

#include "tests/analysis/scripted_program.h"

namespace headroom::analysis {
namespace {

using testing::ScriptedProgram;

// Of 20 blocks of 100 KiB in a segment of 2 MiB every `stays`-th stays.
trace::Trace program_of(int stays) {
  ScriptedProgram program;
  std::vector<int> blocks;
  for (int i = 0; i < 2'000; ++i) blocks.push_back(program.alloc(100_KiB, i % stays == 0 ? 7 : 8));
  for (int i = 0; i < 2'000; ++i) {
    if (i % stays != 0) program.free(blocks[static_cast<std::size_t>(i)]);
  }
  (void)program.alloc(256_MiB, 9);
  return program.finish();
}

TEST(Spread, CountsThePagesThatFewBlocksKeep) {
  const trace::Trace trace = program_of(20);
  const TraceIndex index(trace, trace.devices[0]);
  const auto spread = find_spread(index, index.end_position());
  ASSERT_TRUE(spread);
  EXPECT_EQ(spread->pages, 100U);
  EXPECT_EQ(spread->blocks, 100U);
  EXPECT_EQ(spread->live_bytes, 100 * 100_KiB);
  EXPECT_EQ(spread->kept_bytes, 100 * (2_MiB - 100_KiB));
  EXPECT_EQ(spread->site, "train.py:7 train");
}

TEST(Spread, IsNothingWherePagesAreFull) {
  const trace::Trace trace = program_of(2);
  const TraceIndex index(trace, trace.devices[0]);
  EXPECT_FALSE(find_spread(index, index.end_position()));
  EXPECT_FALSE(find_spread(index, 0));
}

}  // namespace
}  // namespace headroom::analysis
