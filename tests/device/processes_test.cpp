#include "headroom/device/internal/processes.h"

#include <cstdint>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"

namespace headroom::device::internal {
namespace {

constexpr std::int64_t kPid = 42;

ProcessMemory self(std::uint64_t used_bytes) {
  return {.pid = kPid, .used_bytes = used_bytes, .name = "train", .is_self = true};
}

std::uint64_t sum(const std::vector<ProcessMemory>& processes) {
  return std::accumulate(processes.begin(),
                         processes.end(),
                         std::uint64_t{0},
                         [](std::uint64_t so_far, const ProcessMemory& process) {
                           return so_far + process.used_bytes;
                         });
}

TEST(Processes, AListThatSaysAllStaysAsItIs) {
  const auto found = complete_processes(
      {self(3_GiB), {.pid = 7, .used_bytes = 2_GiB, .name = "other"}}, {kPid, 2_GiB}, 5_GiB);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].used_bytes, 3_GiB) << "libraries included, which we know nothing of";
  EXPECT_EQ(found[1].used_bytes, 2_GiB);
}

TEST(Processes, WhatAContainerHidesIsAnEntryOfItsOwn) {
  const auto found = complete_processes({self(3_GiB)}, {kPid, 2_GiB}, 10_GiB);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[1].pid, 0);
  EXPECT_FALSE(found[1].is_self);
  EXPECT_EQ(found[1].used_bytes, 7_GiB);
  EXPECT_EQ(sum(found), 10_GiB);
}

TEST(Processes, WithoutAnyListTheRestIsOthersIfAllOfOursIsKnown) {
  const auto found = complete_processes({}, {kPid, 2_GiB, true}, 10_GiB);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_TRUE(found[0].is_self);
  EXPECT_EQ(found[0].pid, kPid);
  EXPECT_EQ(found[0].used_bytes, 2_GiB);
  EXPECT_EQ(found[1].used_bytes, 8_GiB);
}

TEST(Processes, OtherwiseItMayBeOurs) {
  const auto found = complete_processes({}, {kPid, 2_GiB, false}, 10_GiB);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].used_bytes, 2_GiB);
}

TEST(Processes, AListWithoutBytesIsFilledIn) {
  const auto found = complete_processes(
      {self(0), {.pid = 7, .used_bytes = 0, .name = "other"}}, {kPid, 2_GiB, true}, 5_GiB);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].used_bytes, 2_GiB);
  EXPECT_EQ(sum(found), 5_GiB);
}

// A list in the numbers of a host has this process in it too, and must not count it twice.
TEST(Processes, NumbersOfAnotherNamespaceAreNotTrusted) {
  const auto found = complete_processes({{.pid = 90001, .used_bytes = 2_GiB, .name = ""},
                                         {.pid = 90002, .used_bytes = 8_GiB, .name = ""}},
                                        {kPid, 2_GiB, true},
                                        10_GiB);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_TRUE(found[0].is_self);
  EXPECT_EQ(sum(found), 10_GiB);
}

TEST(Processes, RoundingIsNoProcess) {
  EXPECT_EQ(complete_processes({self(3_GiB)}, {kPid, 3_GiB}, 3_GiB + 100_MiB).size(), 1U);
  EXPECT_EQ(complete_processes({self(3_GiB)}, {kPid, 3_GiB}, 2_GiB).size(), 1U) << "nor is less";
}

}  // namespace
}  // namespace headroom::device::internal
