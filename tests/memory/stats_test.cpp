#include "headroom/memory/stats.h"

#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headroom::memory {
namespace {

using ::testing::Each;
using ::testing::SizeIs;

// --- One quantity --------------------------------------------------------------------------------

TEST(Stat, RemembersItsPeakAndItsTotals) {
  Stat stat;
  stat.increase(10);
  stat.increase(5);
  stat.decrease(12);
  stat.increase(1);
  EXPECT_EQ(stat.current, 4);
  EXPECT_EQ(stat.peak, 15);
  EXPECT_EQ(stat.allocated, 16);
  EXPECT_EQ(stat.freed, 12);
}

// PyTorch applies net changes as one movement, which its totals show.
TEST(Stat, AChangeIsOneMovement) {
  Stat stat;
  stat.change(7);
  stat.change(-3);
  stat.change(0);
  EXPECT_EQ(stat.current, 4);
  EXPECT_EQ(stat.peak, 7);
  EXPECT_EQ(stat.allocated, 7);
  EXPECT_EQ(stat.freed, 3);
}

TEST(Stat, ResetsWhatItIsToldTo) {
  Stat stat;
  stat.increase(10);
  stat.decrease(4);
  stat.reset_peak();
  EXPECT_EQ(stat.peak, 6);
  EXPECT_EQ(stat.allocated, 10);
  stat.reset_accumulated();
  EXPECT_EQ(stat.allocated, 0);
  EXPECT_EQ(stat.freed, 0);
  EXPECT_EQ(stat.current, 6);
}

TEST(StatArray, AllIsSmallPlusLarge) {
  StatArray array;
  array.increase(true, 3);
  array.increase(false, 40);
  array.decrease(true, 1);
  array.change(false, -5);
  array.sum_up();
  EXPECT_EQ(array.small_pool.current, 2);
  EXPECT_EQ(array.large_pool.current, 35);
  EXPECT_EQ(array.all.current, 37);
  EXPECT_EQ(array.all.peak, 43);
  EXPECT_EQ(array.all.freed, 6);
}

// --- All of them ---------------------------------------------------------------------------------

Statistics busy() {
  Statistics stats;
  for (StatArray* array : {&stats.allocation, &stats.segment, &stats.reserved_bytes}) {
    array->increase(true, 8);
    array->increase(false, 2);
    array->decrease(true, 5);
  }
  stats.oversize_segments.increase(2);
  stats.live_bytes.increase(9);
  stats.live_bytes.decrease(4);
  stats.category_bytes[1].increase(3);
  stats.num_alloc_retries = 1;
  stats.num_ooms = 2;
  stats.num_sync_all_streams = 3;
  stats.num_device_alloc = 4;
  stats.num_device_free = 5;
  stats.num_oom_rejections = 6;
  stats.max_split_size = 7;
  stats.sum_up();
  return stats;
}

TEST(Statistics, ResetPeakLeavesTotalsAndCounters) {
  Statistics stats = busy();
  stats.reset_peak();
  EXPECT_EQ(stats.segment.all.peak, 5);
  EXPECT_EQ(stats.segment.small_pool.peak, 3);
  EXPECT_EQ(stats.segment.all.allocated, 10);
  EXPECT_EQ(stats.live_bytes.peak, 5);
  EXPECT_EQ(stats.num_ooms, 2);
}

TEST(Statistics, ResetAccumulatedLeavesCurrentAndPeaks) {
  Statistics stats = busy();
  stats.reset_accumulated();
  EXPECT_EQ(stats.segment.all.current, 5);
  EXPECT_EQ(stats.segment.all.peak, 10);
  EXPECT_EQ(stats.segment.all.allocated, 0);
  EXPECT_EQ(stats.oversize_segments.allocated, 0);
  EXPECT_EQ(stats.category_bytes[1].allocated, 0);
  EXPECT_EQ(stats.num_alloc_retries + stats.num_ooms + stats.num_sync_all_streams, 0);
  EXPECT_EQ(stats.num_device_alloc + stats.num_device_free + stats.num_oom_rejections, 0);
  EXPECT_EQ(stats.max_split_size, 7);
}

TEST(Flatten, HasPyTorchsKeysAndNoOthers) {
  std::set<std::string> expected{"num_alloc_retries",
                                 "num_ooms",
                                 "max_split_size",
                                 "num_sync_all_streams",
                                 "num_device_alloc",
                                 "num_device_free",
                                 "num_oom_rejections"};
  const std::vector<std::string> movements{".current", ".peak", ".allocated", ".freed"};
  for (const char* name : {"allocation",
                           "segment",
                           "active",
                           "inactive_split",
                           "allocated_bytes",
                           "reserved_bytes",
                           "active_bytes",
                           "inactive_split_bytes",
                           "requested_bytes"}) {
    for (const char* pool : {".all", ".small_pool", ".large_pool"}) {
      for (const std::string& movement : movements) {
        expected.insert(std::string(name) + pool + movement);
      }
    }
  }
  for (const char* name : {"oversize_allocations", "oversize_segments"}) {
    for (const std::string& movement : movements) expected.insert(name + movement);
  }
  std::set<std::string> found;
  for (const auto& [key, value] : flatten(Statistics{})) found.insert(key);
  EXPECT_EQ(found, expected);
  EXPECT_EQ(found.size(), 9U * 12 + 2 * 4 + 7);
}

TEST(Flatten, GivesEachKeyItsValue) {
  const auto flat = flatten(busy());
  EXPECT_EQ(flat.at("reserved_bytes.all.current"), 5);
  EXPECT_EQ(flat.at("reserved_bytes.small_pool.freed"), 5);
  EXPECT_EQ(flat.at("reserved_bytes.large_pool.peak"), 2);
  EXPECT_EQ(flat.at("oversize_segments.allocated"), 2);
  EXPECT_EQ(flat.at("num_device_free"), 5);
  EXPECT_EQ(flatten(Statistics{}).at("max_split_size"), -1);
}

// --- memory_summary ------------------------------------------------------------------------------

std::vector<std::string> summary_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Written by hand from the layout: byte cells change unit at 768 * 1024 of the `all` row, count
// cells at 750 * 1000, and the numbers are rounded down.
Statistics example_statistics() {
  Statistics stats;
  stats.num_ooms = 3;
  stats.num_alloc_retries = 12;
  stats.allocated_bytes.all = {786432, 786431, 3LL << 30U, 5};
  stats.allocated_bytes.large_pool = {716800, 716800, 2LL << 30U, 4};
  stats.allocated_bytes.small_pool = {69632, 69631, 1LL << 30U, 1};
  stats.reserved_bytes.all = {20971520, 41943040, 41943040, 20971520};
  stats.reserved_bytes.large_pool = stats.reserved_bytes.all;
  stats.allocation.all = {749999, 750000, 750000000, 999};
  stats.allocation.large_pool = {1, 749999, 1999999, 1};
  stats.oversize_segments = {1, 2, 3, 2};
  return stats;
}

TEST(MemorySummary, MatchesPyTorchsLayoutAbbreviated) {
  EXPECT_EQ(memory_summary(example_statistics(), 0, true),
            R"(|===========================================================================|
|                  PyTorch CUDA memory summary, device ID 0                 |
|---------------------------------------------------------------------------|
|            CUDA OOMs: 3            |        cudaMalloc retries: 12        |
|===========================================================================|
|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |
|---------------------------------------------------------------------------|
| Allocated memory      |    768 KiB | 786431 B   |   3072 MiB |      5 B   |
|---------------------------------------------------------------------------|
| Active memory         |      0 B   |      0 B   |      0 B   |      0 B   |
|---------------------------------------------------------------------------|
| Requested memory      |      0 B   |      0 B   |      0 B   |      0 B   |
|---------------------------------------------------------------------------|
| GPU reserved memory   |  20480 KiB |  40960 KiB |  40960 KiB |  20480 KiB |
|---------------------------------------------------------------------------|
| Non-releasable memory |      0 B   |      0 B   |      0 B   |      0 B   |
|---------------------------------------------------------------------------|
| Allocations           |  749999    |     750 K  |     750 M  |     999    |
|---------------------------------------------------------------------------|
| Active allocs         |       0    |       0    |       0    |       0    |
|---------------------------------------------------------------------------|
| GPU reserved segments |       0    |       0    |       0    |       0    |
|---------------------------------------------------------------------------|
| Non-releasable allocs |       0    |       0    |       0    |       0    |
|---------------------------------------------------------------------------|
| Oversize allocations  |       0    |       0    |       0    |       0    |
|---------------------------------------------------------------------------|
| Oversize GPU segments |       1    |       2    |       3    |       2    |
|===========================================================================|
)");
}

TEST(MemorySummary, RowsOfPoolsUseTheUnitOfTheirColumn) {
  const std::vector<std::string> lines = summary_lines(memory_summary(example_statistics(), 12));
  ASSERT_THAT(lines, SizeIs(6 + 9 * 4 + 2 * 2 + 1));
  EXPECT_EQ(lines[7],
            "| Allocated memory      |    768 KiB | 786431 B   |   3072 MiB |      5 B   |");
  EXPECT_EQ(lines[8],
            "|       from large pool |    700 KiB | 716800 B   |   2048 MiB |      4 B   |");
  EXPECT_EQ(lines[9],
            "|       from small pool |     68 KiB |  69631 B   |   1024 MiB |      1 B   |");
  EXPECT_EQ(lines[27],
            "| Allocations           |  749999    |     750 K  |     750 M  |     999    |");
  EXPECT_EQ(lines[28],
            "|       from large pool |       1    |     749 K  |       1 M  |       1    |");
  EXPECT_EQ(lines[29],
            "|       from small pool |       0    |       0 K  |       0 M  |       0    |");
}

TEST(MemorySummary, EveryLineHasSeventySevenCharacters) {
  for (const bool abbreviated : {false, true}) {
    for (const int device : {0, 7, 1023}) {
      Statistics stats = busy();
      stats.reserved_bytes.all.current = INT64_MAX;
      EXPECT_THAT(summary_lines(memory_summary(stats, device, abbreviated)), Each(SizeIs(77)));
    }
  }
}

TEST(MemorySummary, EndsWithANewline) { EXPECT_EQ(memory_summary(Statistics{}, 0).back(), '\n'); }

}  // namespace
}  // namespace headroom::memory
