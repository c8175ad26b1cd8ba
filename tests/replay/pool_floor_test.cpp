#include "headroom/replay/pool_floor.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"

#include "tests/support/seed.h"

namespace headroom::replay {
namespace {

Program program_with(std::vector<Op> ops, std::size_t pools) {
  Program program;
  for (const Op& op : ops) program.slot_count = std::max(program.slot_count, op.slot + 1);
  program.ops = std::move(ops);
  for (std::size_t i = 0; i < pools; ++i) program.pools.push_back({.graph = i});
  program.streams = {memory::StreamId::kDefault};
  return program;
}

TEST(PoolFloor, IsTheLivePeakWithoutPrivatePools) {
  const Program program = program_with({{.size_bytes = 3_MiB, .slot = 0},
                                        {.slot = 0, .kind = OpKind::kFree},
                                        {.size_bytes = 2_MiB, .slot = 0}},
                                       1);
  EXPECT_FALSE(has_private_pools(program));
  EXPECT_EQ(pool_floor_bytes(program), 3_MiB);
}

TEST(PoolFloor, APoolKeepsItsPeakWhenItsBlocksAreGone) {
  const Program program = program_with({{.size_bytes = 8_MiB, .slot = 0, .pool = 1},
                                        {.slot = 0, .kind = OpKind::kFree},
                                        {.size_bytes = 5_MiB, .slot = 0},
                                        {.slot = 0, .kind = OpKind::kFree},
                                        {.size_bytes = 6_MiB, .slot = 0, .pool = 1},
                                        {.size_bytes = 4_MiB, .slot = 1}},
                                       2);
  EXPECT_TRUE(has_private_pools(program));
  EXPECT_EQ(pool_floor_bytes(program), 13_MiB);
}

// The peak outside may come before the pools have grown: the two peaks do not add up.
TEST(PoolFloor, IsTakenAtOneMoment) {
  const Program program = program_with({{.size_bytes = 20_MiB, .slot = 0},
                                        {.slot = 0, .kind = OpKind::kFree},
                                        {.size_bytes = 7_MiB, .slot = 0, .pool = 1}},
                                       2);
  EXPECT_EQ(pool_floor_bytes(program), 20_MiB);
}

TEST(PoolFloor, AHeldBlockIsLiveUntilItCompletes) {
  const Program program = program_with({{.size_bytes = 4_MiB, .slot = 0},
                                        {.size_bytes = 1, .slot = 0, .kind = OpKind::kFreeHeld},
                                        {.size_bytes = 2_MiB, .slot = 1},
                                        {.size_bytes = 1, .slot = 0, .kind = OpKind::kComplete},
                                        {.size_bytes = 1_MiB, .slot = 2}},
                                       1);
  EXPECT_EQ(pool_floor_bytes(program), 6_MiB);
}

// By its definition, in time that is the square of the program's length.
std::uint64_t floor_by_definition(const Program& program) {
  std::uint64_t most = 0;
  for (std::size_t end = 1; end <= program.ops.size(); ++end) {
    std::vector<std::uint64_t> live(program.pools.size());
    std::vector<std::uint64_t> peak(program.pools.size());
    std::vector<Op> held(program.slot_count);
    for (std::size_t i = 0; i < end; ++i) {
      const Op& op = program.ops[i];
      if (op.kind == OpKind::kAllocate) {
        held[op.slot] = op;
        live[op.pool] += op.size_bytes;
        peak[op.pool] = std::max(peak[op.pool], live[op.pool]);
      } else {
        live[held[op.slot].pool] -= held[op.slot].size_bytes;
      }
    }
    std::uint64_t floor = live[0];
    for (std::size_t pool = 1; pool < peak.size(); ++pool) floor += peak[pool];
    most = std::max(most, floor);
  }
  return most;
}

TEST(PoolFloor, AgreesWithItsDefinition) {
  const unsigned seed = headroom::testing::test_seed();
  SCOPED_TRACE(headroom::testing::seed_text(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 40; ++round) {
    std::vector<Op> ops;
    std::vector<std::uint32_t> held;
    std::uint32_t slots = 0;
    for (int i = 0; i < 60; ++i) {
      if (held.empty() || random() % 2 == 0) {
        ops.push_back({.size_bytes = 512 * (1 + random() % 100),
                       .slot = slots,
                       .pool = static_cast<std::uint8_t>(random() % 4)});
        held.push_back(slots++);
      } else {
        std::swap(held[random() % held.size()], held.back());
        ops.push_back({.slot = held.back(), .kind = OpKind::kFree});
        held.pop_back();
      }
    }
    const Program program = program_with(std::move(ops), 4);
    EXPECT_EQ(pool_floor_bytes(program), floor_by_definition(program));
  }
}

}  // namespace
}  // namespace headroom::replay
