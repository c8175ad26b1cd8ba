// The C ABI, on the cpu device: what PyTorch's plug-in stands on.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bindings/c/headroom.h"

namespace {

using ::testing::HasSubstr;

headroom_allocator* open_cpu() {
  headroom_allocator* allocator = nullptr;
  EXPECT_EQ(headroom_open("cpu:0", &allocator), HEADROOM_OK) << headroom_last_error();
  return allocator;
}

headroom_stats stats_of(headroom_allocator* allocator) {
  headroom_stats stats{};
  stats.size = sizeof(stats);
  EXPECT_EQ(headroom_get_stats(allocator, &stats), HEADROOM_OK);
  return stats;
}

// #21: `cpu` and `cpu:0` were two allocators, each with a limit of its own.
TEST(CAbi, OneDeviceHasOneAllocatorWhateverItsSpelling) {
  headroom_allocator* const first = open_cpu();
  for (const char* name : {"cpu", "cpu:0", "cpu:00"}) {
    headroom_allocator* allocator = nullptr;
    EXPECT_EQ(headroom_open(name, &allocator), HEADROOM_OK) << headroom_last_error();
    EXPECT_EQ(allocator, first) << name;
  }
  headroom_allocator* none = nullptr;
  for (const char* name : {"", "CPU", " cpu", "cpu:", "cpu: 0", "cpu:-1", "cpu:+0", "cpu:0x0"}) {
    EXPECT_EQ(headroom_open(name, &none), HEADROOM_INVALID) << name;
  }
  EXPECT_EQ(none, nullptr);
}

TEST(CAbi, BlocksAreMemoryAndAreCounted) {
  headroom_allocator* const allocator = open_cpu();
  void* const large = headroom_allocate(allocator, 3 << 20, nullptr);
  void* const small = headroom_allocate(allocator, 100, nullptr);
  ASSERT_NE(large, nullptr) << headroom_last_error();
  ASSERT_NE(small, nullptr) << headroom_last_error();
  std::memset(large, 1, 3 << 20);
  std::memset(small, 2, 100);
  const headroom_stats held = stats_of(allocator);
  EXPECT_EQ(held.allocated, (3U << 20) + 512U);
  EXPECT_GE(held.reserved, held.allocated);
  EXPECT_EQ(headroom_free(allocator, large), HEADROOM_OK);
  EXPECT_EQ(headroom_free(allocator, small), HEADROOM_OK);
  EXPECT_EQ(stats_of(allocator).allocated, 0U);
  EXPECT_EQ(headroom_empty_cache(allocator), held.reserved);
  EXPECT_EQ(stats_of(allocator).reserved, 0U);
}

TEST(CAbi, WhatIsWrongIsToldAndNothingBreaks) {
  headroom_allocator* const allocator = open_cpu();
  void* const block = headroom_allocate(allocator, 1 << 20, nullptr);
  EXPECT_EQ(headroom_free(allocator, block), HEADROOM_OK);
  EXPECT_EQ(headroom_free(allocator, block), HEADROOM_INVALID);
  EXPECT_THAT(headroom_last_error(), HasSubstr("was it freed before?"));
  EXPECT_EQ(headroom_free(nullptr, block), HEADROOM_INVALID);
  EXPECT_EQ(headroom_allocate(nullptr, 1, nullptr), nullptr);
  headroom_allocator* none = nullptr;
  EXPECT_EQ(headroom_open("tpu:0", &none), HEADROOM_INVALID);
  EXPECT_EQ(headroom_open(nullptr, &none), HEADROOM_INVALID);
  headroom_stats unsized{};
  EXPECT_EQ(headroom_get_stats(allocator, &unsized), HEADROOM_INVALID);
}

TEST(CAbi, ABlockIsOwnedUntilItIsFreed) {
  headroom_allocator* const allocator = open_cpu();
  for (const std::size_t bytes : {std::size_t{100}, std::size_t{3} << 20U}) {
    void* const block = headroom_allocate(allocator, bytes, nullptr);
    EXPECT_EQ(headroom_owns(allocator, block), 1);
    EXPECT_EQ(headroom_owns(allocator, static_cast<char*>(block) + 8), 0);
    EXPECT_EQ(headroom_free(allocator, block), HEADROOM_OK);
    EXPECT_EQ(headroom_owns(allocator, block), 0);
  }
  EXPECT_EQ(headroom_owns(allocator, nullptr), 0);
  EXPECT_EQ(headroom_owns(nullptr, nullptr), 0);
}

TEST(CAbi, ABlockIsRecordedOnEveryStreamThatWasGiven) {
  headroom_allocator* const allocator = open_cpu();
  void* const stream = reinterpret_cast<void*>(std::uintptr_t{0x77});
  EXPECT_EQ(headroom_free(allocator, headroom_allocate(allocator, 512, stream)), HEADROOM_OK);
  void* const block = headroom_allocate(allocator, 1 << 20, nullptr);
  EXPECT_EQ(headroom_record_all_streams(allocator, block), HEADROOM_OK);
  EXPECT_EQ(headroom_free(allocator, block), HEADROOM_OK);
  EXPECT_EQ(headroom_record_all_streams(allocator, block), HEADROOM_INVALID) << "it was freed";
  EXPECT_EQ(headroom_record_all_streams(nullptr, block), HEADROOM_INVALID);
}

TEST(CAbi, ALimitIsKeptAndTheReportSaysSo) {
  headroom_allocator* const allocator = open_cpu();
  (void)headroom_empty_cache(allocator);
  EXPECT_EQ(headroom_set_limit(allocator, 8 << 20), HEADROOM_OK);
  EXPECT_EQ(headroom_allocate(allocator, 64 << 20, nullptr), nullptr);
  EXPECT_THAT(headroom_last_error(), HasSubstr("64MiB"));
  void* const fitting = headroom_allocate(allocator, 4 << 20, nullptr);
  EXPECT_NE(fitting, nullptr) << headroom_last_error();
  EXPECT_EQ(headroom_free(allocator, fitting), HEADROOM_OK);
  EXPECT_EQ(headroom_set_limit(allocator, UINT64_MAX), HEADROOM_OK);
}

TEST(CAbi, AnOlderCallersStatisticsAreNotWrittenPast) {
  headroom_allocator* const allocator = open_cpu();
  headroom_stats stats{};
  stats.size = offsetof(headroom_stats, active);
  stats.active = 42;
  EXPECT_EQ(headroom_get_stats(allocator, &stats), HEADROOM_OK);
  EXPECT_EQ(stats.active, 42U);
}

// The environment is read once, so each case is a process of its own.
int exit_with_settings(const char* settings) {
  setenv("HEADROOM_ALLOC_CONF", settings, 1);  // NOLINT(concurrency-mt-unsafe)
  headroom_allocator* allocator = nullptr;
  if (headroom_open("cpu:0", &allocator) != HEADROOM_OK) {
    std::fputs(headroom_last_error(), stderr);
    return 10;
  }
  (void)headroom_allocate(allocator, 3 << 20, nullptr);
  return stats_of(allocator).reserved == 20U << 20U ? 11 : 12;  // PyTorch's segment, or pages
}

TEST(CAbiDeathTest, TheEnvironmentChoosesTheAllocatorAsEverywhere) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  using ::testing::ExitedWithCode;
  EXPECT_EXIT(std::exit(exit_with_settings("backend:native")), ExitedWithCode(11), "");
  EXPECT_EXIT(std::exit(exit_with_settings("page_mb:2")), ExitedWithCode(12), "");
  EXPECT_EXIT(std::exit(exit_with_settings("no_such_key:1")),
              ExitedWithCode(10),
              "HEADROOM_ALLOC_CONF: .*no_such_key");
}

}  // namespace
