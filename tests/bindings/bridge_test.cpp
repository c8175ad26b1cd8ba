// What PyTorch's translation calls (bindings/pytorch/bridge), on cpu devices, whose streams are
// threads.
#include "bindings/pytorch/bridge/bridge.h"

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"
#include "headroom/device/device.h"
#include "headroom/device/registry.h"

#include "tests/support/stream_gate.h"

namespace headroom {
namespace {

using bridge::Context;
using bridge::DeviceMemory;
using bridge::KeepContexts;
using bridge::NativeStream;
using bridge::PoolKey;
using bridge::Segment;
using bridge::TraceAction;
using bridge::TraceEntry;
using headroom::testing::StreamGate;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

// Each kind of test has a device of its own, as pools, histories and streams are a device's.
DeviceMemory& memory(int device = 0) {
  static const bool is_set = [] {
    setenv("HEADROOM_CPU_DEVICES", "4", 1);        // NOLINT(concurrency-mt-unsafe)
    setenv("HEADROOM_CPU_CAPACITY", "256MiB", 1);  // NOLINT(concurrency-mt-unsafe)
    (void)bridge::configure({.device_kind = "cpu"});
    return true;
  }();
  EXPECT_TRUE(is_set);
  return bridge::device_memory(device);
}

device::Device& cpu(int index) {
  (void)memory(index);
  return *device::registry().find({.kind = device::DeviceKind::kCpu, .index = index}).value();
}

void* take(DeviceMemory& from, std::size_t size, NativeStream stream = 0) {
  void* const block = from.allocate(size, stream, true);
  EXPECT_NE(block, nullptr) << bridge::last_failure().text;
  return block;
}

std::vector<void*> blocks_of(DeviceMemory& of, PoolKey pool) {
  std::vector<void*> blocks;
  for (const bridge::Block& block : of.pool_state(pool).blocks) {
    blocks.push_back(reinterpret_cast<void*>(block.address));
  }
  return blocks;
}

TEST(Bridge, CountsAsPyTorchDoes) {
  DeviceMemory& m = memory();
  const std::int64_t before = m.stats().allocated_bytes.all.current;
  void* const block = take(m, 3_MiB + 1);
  EXPECT_EQ(m.stats().allocated_bytes.all.current - before, std::int64_t{3_MiB + 512});
  EXPECT_EQ(m.block_bytes(block), 3_MiB + 512);
  EXPECT_GE(m.reserved_bytes(), m.allocated_bytes());
  EXPECT_EQ(m.flat_stats().at("allocated_bytes.all.current"),
            m.stats().allocated_bytes.all.current);
  EXPECT_TRUE(bridge::free_block(block));
  EXPECT_FALSE(bridge::free_block(block)) << "freed already";
  EXPECT_EQ(m.stats().allocated_bytes.all.current, before);
}

TEST(Bridge, AZeroSizeIsNoBlock) { EXPECT_EQ(memory().allocate(0, 0, true), nullptr); }

TEST(Bridge, FindsTheDeviceOfABlock) {
  void* const first = take(memory(0), 1_MiB);
  void* const second = take(memory(1), 1_MiB);
  EXPECT_TRUE(bridge::free_block(second));
  EXPECT_TRUE(bridge::free_block(first));
  int elsewhere = 0;
  EXPECT_FALSE(bridge::free_block(&elsewhere));
}

TEST(Bridge, AFailureSaysItInPyTorchsWordsAndOurs) {
  DeviceMemory& m = memory();
  static std::vector<std::uint64_t> told;  // observers stay
  bridge::add_out_of_memory_observer(
      [](int, std::uint64_t asked, std::uint64_t total, std::uint64_t) {
        told = {asked, total};
      });
  EXPECT_EQ(m.allocate(8_GiB, 0, true), nullptr);
  EXPECT_TRUE(bridge::last_failure().is_out_of_memory);
  EXPECT_THAT(bridge::last_failure().text,
              StartsWith("CUDA out of memory. Tried to allocate 8.00 GiB.\n"));
  EXPECT_THAT(told, ElementsAre(8_GiB, 256_MiB));
  EXPECT_EQ(m.allocate(std::size_t{1} << 60U, 0, true), nullptr);
  EXPECT_THAT(bridge::last_failure().text, HasSubstr("1EB"));
}

TEST(Bridge, AsksRegisteredCallbacksBeforeItFails) {
  DeviceMemory& m = memory(2);
  static void* hoard = nullptr;  // callbacks stay
  static int asked = 0;
  hoard = take(m, 200_MiB);
  bridge::add_free_callback([] {
    ++asked;
    if (hoard == nullptr) return false;
    return bridge::free_block(std::exchange(hoard, nullptr));
  });
  void* const block = m.allocate(180_MiB, 0, true);
  EXPECT_NE(block, nullptr);
  EXPECT_EQ(asked, 1);
  EXPECT_TRUE(bridge::free_block(block));
}

TEST(Bridge, AFractionBoundsAndOneTakesTheBoundAway) {
  DeviceMemory& m = memory(2);
  m.empty_cache({});
  m.set_memory_fraction(0.25);
  EXPECT_DOUBLE_EQ(m.memory_fraction(), 0.25);
  EXPECT_EQ(m.allocate(100_MiB, 0, true), nullptr);
  EXPECT_LE(m.largest_request_bytes(), 64_MiB);
  m.set_memory_fraction(1.0);
  void* const block = take(m, 100_MiB);
  EXPECT_TRUE(bridge::free_block(block));
  EXPECT_GE(m.largest_request_bytes(), 100_MiB);
  EXPECT_THROW(m.set_memory_fraction(1.5), std::runtime_error);
}

TEST(Bridge, ABlockInUseElsewhereIsNotHandedOutAgain) {
  DeviceMemory& m = memory();
  const auto made = cpu(0).create_stream().value();
  const NativeStream side = cpu(0).native_stream(made).value();
  StreamGate gate(cpu(0), made);
  void* const block = take(m, 5_MiB);
  m.record_stream(block, side, true);
  EXPECT_TRUE(bridge::free_block(block));
  void* const other = take(m, 5_MiB);
  EXPECT_NE(other, block);
  EXPECT_TRUE(bridge::free_block(other));
  gate.open();
  int not_ours = 0;
  m.record_stream(&not_ours, side, true);  // left alone
}

// --- History -------------------------------------------------------------------------------------

std::vector<TraceAction> actions_of(const std::vector<TraceEntry>& entries, const void* block) {
  std::vector<TraceAction> actions;
  for (const TraceEntry& entry : entries) {
    if (entry.address == reinterpret_cast<std::uint64_t>(block)) actions.push_back(entry.action);
  }
  return actions;
}

TEST(BridgeHistory, KeepsContextsOfBlocksAndEntries) {
  DeviceMemory& m = memory(1);
  int made = 0;
  bridge::set_history({.is_enabled = true,
                       .make_context = [&] { return Context(std::make_shared<int>(++made)); },
                       .max_entries = 100,
                       .keep = KeepContexts::kAll,
                       .clears = true});
  EXPECT_TRUE(bridge::is_history_enabled());
  bridge::push_compile_context("graph 7");
  bridge::set_user_metadata("step 3");
  void* const block = take(m, 7_MiB);
  bridge::pop_compile_context();
  bridge::set_user_metadata("");
  const int at_allocation = made;
  EXPECT_GE(at_allocation, 1);
  bool is_seen = false;
  for (const Segment& segment : m.segments({})) {
    for (const bridge::Block& listed : segment.blocks) {
      if (listed.address != reinterpret_cast<std::uint64_t>(block)) continue;
      is_seen = true;
      EXPECT_TRUE(listed.is_allocated && listed.is_active);
      EXPECT_EQ(listed.requested_bytes, 7_MiB);
      ASSERT_NE(listed.context, nullptr);
    }
  }
  EXPECT_TRUE(is_seen);
  EXPECT_TRUE(bridge::free_block(block));
  EXPECT_GT(made, at_allocation) << "the free has a context of its own";
  const std::vector<TraceEntry> entries = m.trace();
  for (const TraceEntry& entry : entries) {
    if (entry.action != TraceAction::kAlloc) continue;
    EXPECT_EQ(*entry.compile_context, "graph 7");
    EXPECT_EQ(*entry.user_metadata, "step 3");
    EXPECT_EQ(entry.device, 1);
    EXPECT_GT(entry.time_us, 1'600'000'000'000'000);
    EXPECT_NE(entry.context, nullptr);
  }
  const auto actions = actions_of(entries, block);
  EXPECT_THAT(actions, ::testing::Contains(TraceAction::kAlloc));
  EXPECT_THAT(actions, ::testing::Contains(TraceAction::kFreeCompleted));
  bridge::set_history({});
  EXPECT_FALSE(bridge::is_history_enabled());
  EXPECT_TRUE(m.trace().empty());
}

TEST(BridgeHistory, TheRingKeepsTheLastAndSkipsWhatIsNotWanted) {
  DeviceMemory& m = memory(1);
  bridge::set_history({.is_enabled = true,
                       .max_entries = 3,
                       .clears = true,
                       .skipped_actions = {"free_requested"}});
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(bridge::free_block(take(m, 2_MiB)));
  const auto entries = m.trace();
  ASSERT_EQ(entries.size(), 3U);
  EXPECT_EQ(entries.back().action, TraceAction::kFreeCompleted);
  EXPECT_EQ(entries[1].action, TraceAction::kAlloc);
  m.record_snapshot();
  EXPECT_EQ(m.trace().back().action, TraceAction::kSnapshot);
  bridge::set_history({});
}

TEST(BridgeHistory, WithStateOnlyTheBlocksHaveContexts) {
  DeviceMemory& m = memory(1);
  bridge::set_history({.is_enabled = true,
                       .make_context = [] { return Context(std::make_shared<int>(1)); },
                       .max_entries = 10,
                       .keep = KeepContexts::kState});
  void* const block = take(m, 2_MiB);
  for (const TraceEntry& entry : m.trace()) EXPECT_EQ(entry.context, nullptr);
  EXPECT_TRUE(bridge::free_block(block));
  bridge::set_history({});
}

// --- Pools ---------------------------------------------------------------------------------------

TEST(BridgePools, AScopeRoutesTheStreamsItsFilterTakes) {
  DeviceMemory& m = memory();
  const PoolKey pool{.user = 41};
  m.begin_allocate_to_pool(
      pool, [](NativeStream stream) { return stream == 0; }, 0);
  void* const inside = take(m, 3_MiB);
  m.end_allocate_to_pool(pool);
  void* const outside = take(m, 3_MiB);
  EXPECT_THAT(blocks_of(m, pool), ElementsAre(inside));
  EXPECT_TRUE(m.holds_exactly(pool, {inside}));
  EXPECT_FALSE(m.holds_exactly(pool, {inside, outside}));
  EXPECT_EQ(m.pool_use_count(pool), 1);
  for (const Segment& segment : m.segments(pool)) EXPECT_EQ(segment.pool, pool);
  EXPECT_TRUE(bridge::free_block(inside));
  EXPECT_TRUE(bridge::free_block(outside));
  m.release_pool(pool);
  EXPECT_GE(bridge::empty_caches(pool), 3_MiB);
  EXPECT_EQ(m.pool_use_count(pool), 0);
}

TEST(BridgePools, APoolIsPutBackToWhatItHeld) {
  DeviceMemory& m = memory();
  const PoolKey pool{.user = 42};
  m.retain_pool(pool);
  m.begin_allocate_to_pool(pool, {}, 0);
  void* const stays = take(m, 3_MiB);
  void* const goes = take(m, 5_MiB);
  void* const small = take(m, 700);
  const auto then = m.pool_state(pool);
  EXPECT_TRUE(bridge::free_block(goes));
  EXPECT_TRUE(bridge::free_block(small));
  void* const later = take(m, 1_MiB);
  m.end_allocate_to_pool(pool);
  const auto change = m.restore_pool(then);
  EXPECT_THAT(blocks_of(m, pool), UnorderedElementsAre(stays, goes, small));
  EXPECT_THAT(change.freed, UnorderedElementsAre(stays, later));
  EXPECT_THAT(change.allocated, UnorderedElementsAre(stays, goes, small));
  for (void* const block : change.allocated) EXPECT_TRUE(bridge::free_block(block));
  m.release_pool(pool);
  m.release_pool(pool);
  EXPECT_GT(bridge::empty_caches(pool), 0U);
  EXPECT_THROW(m.restore_pool(then), std::runtime_error);
}

TEST(BridgePools, SegmentsComeFromWhoeverThePoolNames) {
  DeviceMemory& m = memory(3);
  const PoolKey pool{.user = 43};
  std::set<void*> given;
  m.retain_pool(pool);
  m.set_pool_source(
      pool,
      {.allocate =
           [&](std::size_t size, NativeStream) {
             if (size > 64_MiB) return static_cast<void*>(nullptr);
             const auto made = cpu(3).allocate_segment(size);
             auto* const segment = reinterpret_cast<void*>(made.value());
             given.insert(segment);
             return segment;
           },
       .free =
           [&](void* segment) {
             EXPECT_EQ(given.erase(segment), 1U);
             EXPECT_TRUE(cpu(3).free_segment(reinterpret_cast<std::uint64_t>(segment)));
           }});
  m.begin_allocate_to_pool(pool, {}, 0);
  void* const first = take(m, 3_MiB);
  void* const second = take(m, 3_MiB);
  EXPECT_EQ(given.size(), 1U) << "both in one segment of 20 MiB";
  EXPECT_EQ(m.segments(pool).at(0).size_bytes, 20_MiB);
  EXPECT_EQ(m.allocate(65_MiB, 0, true), nullptr) << "the source has none";
  EXPECT_TRUE(bridge::last_failure().is_out_of_memory);
  m.end_allocate_to_pool(pool);
  EXPECT_TRUE(bridge::free_block(first));
  EXPECT_TRUE(bridge::free_block(second));
  EXPECT_EQ(given.size(), 1U) << "cached";
  m.release_pool(pool);
  m.release_pool(pool);
  EXPECT_EQ(bridge::empty_caches(pool), 20_MiB);
  EXPECT_TRUE(given.empty());
}

TEST(BridgeShares, ADeviceThatSharesNothingSaysSo) {
  DeviceMemory& m = memory();
  void* const block = take(m, 1_MiB);
  try {
    (void)m.share(block);
    FAIL() << "the cpu device shares no memory";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), HasSubstr("cpu:0 shares no memory with other processes"));
  }
  EXPECT_THROW((void)m.open_shared("c1234"), std::runtime_error);
  EXPECT_TRUE(bridge::free_block(block));
}

// --- The rest ------------------------------------------------------------------------------------

TEST(BridgeScopes, NestAndTellTheirPeaks) {
  DeviceMemory& m = memory();
  bridge::push_scope("layer", 0);
  void* const outer = take(m, 8_MiB);
  bridge::push_scope("attention", 0);
  EXPECT_TRUE(bridge::free_block(take(m, 16_MiB)));
  const auto inner_peaks = bridge::pop_scope();
  EXPECT_EQ(inner_peaks.path, "layer/attention");
  EXPECT_TRUE(bridge::free_block(outer));
  const auto peaks = bridge::pop_scope();
  EXPECT_EQ(peaks.path, "layer");
  EXPECT_GE(peaks.peak_allocated, 24_MiB);
  EXPECT_GE(peaks.peak_allocated, inner_peaks.peak_allocated);
  EXPECT_THROW(bridge::pop_scope(), std::runtime_error);
}

// What has the tag, on each of two devices.
TEST(BridgeSleep, TaggedMemoryComesBackAtItsAddress) {
  DeviceMemory& first = memory(0);
  DeviceMemory& second = memory(1);
  bridge::push_scope("weights", 0);
  void* const a = take(first, 8_MiB);
  void* const b = take(second, 4_MiB);
  (void)bridge::pop_scope();
  std::memset(a, 3, 8_MiB);
  std::memset(b, 4, 4_MiB);
  EXPECT_EQ(bridge::sleep("cache", false), 0U);
  const std::uint64_t before = first.reserved_bytes() + second.reserved_bytes();
  const std::uint64_t given = bridge::sleep("weights", /*keeps_contents=*/true);
  EXPECT_GE(given, 8_MiB);
  EXPECT_EQ(before - (first.reserved_bytes() + second.reserved_bytes()), given);
  EXPECT_THAT(first.report(), HasSubstr("8MiB asleep"));
  EXPECT_THAT(first.account_json(), HasSubstr("\"sleeping_bytes\": 8388608"));
  EXPECT_EQ(first.block_bytes(a), 0U);

  (void)bridge::empty_caches({});
  first.set_limit(first.reserved_bytes());
  EXPECT_EQ(bridge::wake("weights"), std::nullopt);
  EXPECT_TRUE(bridge::last_failure().is_out_of_memory);
  EXPECT_THAT(bridge::last_failure().text, HasSubstr("Tried to allocate 8.00 MiB"));
  first.set_limit(std::nullopt);
  EXPECT_TRUE(bridge::wake("weights").has_value());
  EXPECT_EQ(first.block_bytes(a), 8_MiB);
  EXPECT_EQ(static_cast<const char*>(a)[8_MiB - 1], 3);
  EXPECT_EQ(static_cast<const char*>(b)[4_MiB - 1], 4);
  EXPECT_TRUE(bridge::free_block(a));
  EXPECT_EQ(bridge::sleep("weights", false), 4_MiB);
  EXPECT_TRUE(bridge::free_block(b)) << "also while it sleeps";
}

TEST(BridgeSleep, WhatIsInAPoolIsRefused) {
  DeviceMemory& m = memory(2);
  const PoolKey pool{0, 11};
  bridge::push_scope("graph", 2);
  m.begin_allocate_to_pool(pool, {}, 0);
  void* const block = take(m, 2_MiB);
  m.end_allocate_to_pool(pool);
  (void)bridge::pop_scope();
  try {
    (void)bridge::sleep("graph", false);
    ADD_FAILURE() << "nothing was refused";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("private pool"));
  }
  EXPECT_TRUE(bridge::free_block(block));
  m.release_pool(pool);
}

std::uint64_t number_after(const std::string& json, const std::string& name) {
  const std::size_t at = json.find(name);
  return at == std::string::npos ? 0 : std::stoull(json.substr(at + name.size()));
}

std::uint64_t sum_of_lines(const std::string& json) {
  std::size_t at = json.find("\"lines\": {");
  const std::size_t end = json.find('}', at);
  std::uint64_t sum = 0;
  while ((at = json.find("_bytes\": ", at + 1)) < end) {
    sum += std::stoull(json.substr(at + std::string("_bytes\": ").size()));
  }
  return sum;
}

TEST(BridgeReports, TheAccountIsTextAndJson) {
  EXPECT_THAT(memory().report(), HasSubstr("free"));
  EXPECT_THAT(memory().account_json(), StartsWith(R"({"schema": 1, "device": "cpu:0")"));
  EXPECT_FALSE(bridge::version().empty());
}

TEST(BridgeReports, TheLinesOfTheAccountAddUp) {
  DeviceMemory& m = memory(2);
  void* const block = take(m, 3_MiB);
  const std::string json = m.account_json();
  EXPECT_THAT(json, HasSubstr("\"lines\": {\"live_bytes\": 3145728"));
  EXPECT_THAT(json, HasSubstr("\"limit_bytes\": null"));
  EXPECT_EQ(sum_of_lines(json), number_after(json, "\"total_bytes\": ")) << json;
  m.set_limit(1_GiB);
  EXPECT_THAT(m.account_json(), HasSubstr("\"limit_bytes\": 1073741824"));
  m.set_limit({});
  EXPECT_TRUE(bridge::free_block(block));
}

TEST(BridgeIdle, WhatIsFreedLaterGoesBackToo) {
  DeviceMemory& m = memory(3);
  void* const block = take(m, 40_MiB);
  void* const later = take(m, 48_MiB);
  EXPECT_TRUE(bridge::free_block(block));
  bridge::set_idle_trim(20, 0);
  const auto wait_for = [&](std::uint64_t less_than) {
    for (int i = 0; i < 2000 && m.reserved_bytes() >= less_than; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_LT(m.reserved_bytes(), less_than);
  };
  wait_for(88_MiB);
  EXPECT_TRUE(bridge::free_block(later));  // no growth tells of it
  wait_for(48_MiB);
  bridge::set_idle_trim(-1, 0);
}

TEST(BridgeIdle, CachedMemoryGoesBackWhenNothingGrows) {
  DeviceMemory& m = memory(3);
  EXPECT_TRUE(bridge::free_block(take(m, 40_MiB)));
  EXPECT_GE(m.reserved_bytes(), 40_MiB);
  bridge::set_idle_trim(20, 0);
  for (int i = 0; i < 2000 && m.reserved_bytes() >= 40_MiB; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_LT(m.reserved_bytes(), 40_MiB);
  bridge::set_idle_trim(-1, 0);
}

TEST(BridgeSettings, AreFixedOnceADeviceIsOpen) {
  (void)memory();
  EXPECT_THROW(bridge::configure({}), std::runtime_error);
  EXPECT_THROW((void)bridge::device_memory(77), std::runtime_error);
}

}  // namespace
}  // namespace headroom
