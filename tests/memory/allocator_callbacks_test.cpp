// Functions of the caller that an allocator calls: callbacks and filters of private pools. They may
// throw, call the allocator and hold its memory.
#include <atomic>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"

#include "tests/memory/allocator_backends.h"

namespace headroom::memory::testing {
namespace {

template <class Backend>
class AllocatorCallbacks : public AllocatorFixture<Backend> {};
TYPED_TEST_SUITE(AllocatorCallbacks, AllocatorWorlds, BackendNames);

// #21: the first that threw kept the later ones from being asked.
TYPED_TEST(AllocatorCallbacks, ACallbackThatThrowsKeepsNoOtherFromBeingCalled) {
  auto& allocator = this->allocator();
  allocator.set_limit(40_MiB);
  DeviceAddress spare = allocator.allocate(32_MiB);
  int told = 0;
  const auto throw_in_free = []() -> bool { throw std::runtime_error("mine"); };
  const auto throw_in_oom = [](const OutOfMemoryReport&) { throw std::runtime_error("mine too"); };
  allocator.add_free_callback(throw_in_free);
  allocator.add_free_callback([&] {
    if (spare == 0) return false;
    allocator.free(std::exchange(spare, 0));
    return true;
  });
  allocator.add_free_callback(throw_in_free);
  allocator.add_out_of_memory_callback(throw_in_oom);
  allocator.add_out_of_memory_callback([&](const OutOfMemoryReport&) { ++told; });
  allocator.add_out_of_memory_callback(throw_in_oom);

  ::testing::internal::CaptureStderr();
  const auto served = allocator.try_allocate(20_MiB);
  EXPECT_TRUE(served.has_value()) << "the second callback freed 32 MiB";
  EXPECT_EQ(spare, 0U);
  const std::string once = "headroom: a free-memory callback threw; it is ignored\n";
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), once + once) << "once for each";

  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(allocator.try_allocate(60_MiB).has_value());
  (void)::testing::internal::GetCapturedStderr();
  EXPECT_EQ(told, 1);
}

// --- Filters of private pools (#21) --------------------------------------------------------------

// Memory of an allocator that frees itself, as a caller's lambda may hold it.
std::shared_ptr<void> held_block(Allocator& allocator) {
  const DeviceAddress block = allocator.allocate(4_MiB);
  return {reinterpret_cast<void*>(block), [&allocator, block](void*) { allocator.free(block); }};
}

// The pool whose segment a block lies in.
PoolId pool_of(const Allocator& allocator, DeviceAddress address) {
  for (const SegmentInfo& segment : allocator.segments()) {
    for (const BlockInfo& block : segment.blocks) {
      if (block.address == address) return segment.pool;
    }
  }
  return {};
}

TYPED_TEST(AllocatorCallbacks, AFilterMayCallTheAllocator) {
  auto& allocator = this->allocator();
  const PoolId pool = allocator.new_pool_id();
  int asked = 0;
  allocator.begin_allocate_to_pool(pool, [&](StreamId stream) {
    ++asked;
    (void)allocator.statistics();
    const DeviceAddress block = allocator.allocate(3_MiB, stream);
    const DeviceAddress small = allocator.allocate(512, stream);
    allocator.free(block);
    allocator.free(small);
    return true;
  });
  const DeviceAddress large = allocator.allocate(4_MiB);
  const DeviceAddress small = allocator.allocate(512);
  EXPECT_EQ(asked, 2) << "what a filter allocates asks no filter";
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
  allocator.end_allocate_to_pool(pool);
  EXPECT_EQ(pool_of(allocator, large), pool);
  EXPECT_EQ(pool_of(allocator, small), pool);
  allocator.free(large);
  allocator.free(small);
  allocator.release_pool(pool);
  allocator.empty_cache();
  EXPECT_EQ(this->reserved(), 0U);
}

TYPED_TEST(AllocatorCallbacks, AFilterMayEndItsOwnScope) {
  auto& allocator = this->allocator();
  const PoolId outer = allocator.new_pool_id();
  const PoolId inner = allocator.new_pool_id();
  allocator.begin_allocate_to_pool(outer, nullptr);
  allocator.begin_allocate_to_pool(inner, [&](StreamId) {
    allocator.end_allocate_to_pool(inner);
    allocator.release_pool(inner);
    allocator.empty_cache();
    return true;
  });
  const DeviceAddress block = allocator.allocate(4_MiB);
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
  allocator.end_allocate_to_pool(outer);
  EXPECT_EQ(pool_of(allocator, block), outer) << "the next that wants it";
  allocator.free(block);
}

TYPED_TEST(AllocatorCallbacks, ARequestWhoseFilterThrowsFailsAndNothingElseDoes) {
  auto& allocator = this->allocator();
  const PoolId pool = allocator.new_pool_id();
  const DeviceAddress before = allocator.allocate(4_MiB);
  allocator.begin_allocate_to_pool(pool, [](StreamId) -> bool { throw std::runtime_error("no"); });
  for (const std::uint64_t bytes : {std::uint64_t{512}, 100_KiB, 4_MiB, 50_MiB}) {
    const auto refused = allocator.try_allocate(bytes);
    ASSERT_FALSE(refused.has_value());
    EXPECT_THAT(to_string(refused.error().status), ::testing::HasSubstr("filter"));
    EXPECT_EQ(allocator.check_invariants(), std::nullopt);
  }
  EXPECT_THROW((void)allocator.allocate(512), Error);
  allocator.free(before);
  allocator.end_allocate_to_pool(pool);
  EXPECT_TRUE(allocator.try_allocate(4_MiB).has_value());
}

// Neither to copy nor to destroy what a function holds takes place under the lock.
TYPED_TEST(AllocatorCallbacks, FiltersAndCallbacksMayHoldMemoryOfTheAllocator) {
  auto& allocator = this->allocator();
  const PoolId pool = allocator.new_pool_id();
  allocator.begin_allocate_to_pool(
      pool, [held = held_block(allocator)](StreamId) { return held == nullptr; });
  EXPECT_THROW(allocator.begin_allocate_to_pool(
                   pool, [held = held_block(allocator)](StreamId) { return held == nullptr; }),
               InvalidArgument);
  allocator.end_allocate_to_pool(pool);
  const auto id =
      allocator.add_free_callback([held = held_block(allocator)] { return held == nullptr; });
  const auto oom = allocator.add_out_of_memory_callback(
      [held = held_block(allocator)](const OutOfMemoryReport&) {});
  allocator.remove_callback(id);
  allocator.remove_callback(oom);
  EXPECT_EQ(allocator.statistics().allocated_bytes.all.current, 0);
}

// Threads allocate through filters while scopes come and go.
TYPED_TEST(AllocatorCallbacks, ScopesMayEndWhileTheirFiltersAreAsked) {
  auto& allocator = this->allocator();
  std::atomic<bool> is_done{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!is_done.load()) {
        for (const std::uint64_t bytes : {std::uint64_t{512}, 2_MiB}) {
          const auto block = allocator.try_allocate(bytes);
          if (block) allocator.free(*block);
        }
      }
    });
  }
  for (int i = 0; i < 200; ++i) {
    const PoolId pool = allocator.new_pool_id();
    allocator.begin_allocate_to_pool(pool, [&, i](StreamId) {
      (void)allocator.statistics();
      return i % 2 == 0;
    });
    allocator.free(allocator.allocate(1_MiB));
    allocator.end_allocate_to_pool(pool);
    allocator.release_pool(pool);
  }
  is_done = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
  allocator.empty_cache();
  EXPECT_EQ(this->reserved(), 0U);
}

}  // namespace
}  // namespace headroom::memory::testing
