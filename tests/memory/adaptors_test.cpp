// Buffer, Array and the pmr resources.
#include <list>
#include <memory_resource>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/device/cpu/cpu_device.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/buffer.h"
#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/memory/pmr.h"

namespace headroom::memory {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

static_assert(!std::is_copy_constructible_v<Buffer>);
static_assert(std::is_nothrow_move_constructible_v<Buffer>);
static_assert(std::is_nothrow_move_assignable_v<Array<float>>);

class Adaptors : public ::testing::Test {
 protected:
  ~Adaptors() override { EXPECT_EQ(allocator_.check_invariants(), std::nullopt); }

  [[nodiscard]] std::int64_t allocated() const {
    return allocator_.statistics().allocated_bytes.all.current;
  }
  [[nodiscard]] std::int64_t blocks() const { return allocator_.statistics().active.all.current; }

  std::unique_ptr<device::CpuDevice> device_ =
      device::CpuDevice::create({.capacity_bytes = 64_MiB});
  CachingAllocator allocator_{*device_};
};

// --- Buffer --------------------------------------------------------------------------------------

TEST_F(Adaptors, ABufferFreesItselfAtTheEndOfItsScope) {
  {
    const Buffer buffer(allocator_, 1000);
    EXPECT_EQ(buffer.size_bytes(), 1000U);
    EXPECT_EQ(buffer.allocator(), &allocator_);
    EXPECT_EQ(allocated(), 1024);
  }
  EXPECT_EQ(allocated(), 0);
}

TEST_F(Adaptors, AMovedBufferHasOneOwner) {
  Buffer first(allocator_, 512);
  const DeviceAddress address = first.address();
  Buffer second(std::move(first));
  EXPECT_EQ(second.address(), address);
  EXPECT_EQ(first.address(), 0U);  // NOLINT(bugprone-use-after-move): what is left is the point
  EXPECT_TRUE(first.empty());
  EXPECT_EQ(first.allocator(), nullptr);
  EXPECT_EQ(blocks(), 1);

  Buffer third(allocator_, 2_MiB);
  third = std::move(second);  // frees the 2 MiB
  EXPECT_EQ(third.address(), address);
  EXPECT_EQ(allocated(), 512);
  Buffer& alias = third;
  third = std::move(alias);
  EXPECT_EQ(third.address(), address);
  third = Buffer();
  EXPECT_EQ(blocks(), 0);
  EXPECT_EQ(allocator_.misuse_count(), 0U);
}

TEST_F(Adaptors, ABufferCanBeResetTwiceAndReleasedOnce) {
  Buffer buffer(allocator_, 512);
  buffer.reset();
  buffer.reset();
  EXPECT_EQ(blocks(), 0);
  buffer = Buffer(allocator_, 512);
  const DeviceAddress address = buffer.release();
  EXPECT_TRUE(buffer.empty());
  EXPECT_EQ(blocks(), 1);
  allocator_.free(address);
  EXPECT_EQ(blocks(), 0);
  EXPECT_EQ(allocator_.misuse_count(), 0U);
}

TEST_F(Adaptors, ABufferOfNothingIsNothing) {
  const Buffer buffer(allocator_, 0);
  EXPECT_EQ(buffer.address(), 0U);
  EXPECT_TRUE(buffer.empty());
  EXPECT_EQ(allocator_.statistics().allocation.all.allocated, 0);
  buffer.record_stream(StreamId{99});  // of no block
}

TEST_F(Adaptors, ABufferThatDoesNotFitThrowsTheReport) {
  Buffer held(allocator_, 40_MiB);
  const DeviceAddress before = held.address();
  EXPECT_THAT([&] { held = Buffer(allocator_, 40_MiB); },
              ThrowsMessage<OutOfMemory>(HasSubstr("out of memory: asked for 40MiB")));
  EXPECT_EQ(held.address(), before);
}

TEST_F(Adaptors, ABufferLivesOnAStream) {
  const StreamId main = *device_->create_stream({});
  const StreamId side = *device_->create_stream({});
  Buffer buffer(allocator_, 2_MiB, main);
  EXPECT_EQ(buffer.stream(), main);
  buffer.record_stream(side);
  EXPECT_THROW(buffer.record_stream(StreamId{12345}), Error);
  buffer.reset();
  allocator_.empty_cache();  // waits for side
  EXPECT_EQ(blocks(), 0);
}

// --- Array ---------------------------------------------------------------------------------------

TEST_F(Adaptors, AnArrayHoldsElements) {
  std::vector<float> values(1000);
  std::iota(values.begin(), values.end(), 0.5F);
  Array<float> array(allocator_, values.size());
  EXPECT_EQ(array.size(), 1000U);
  EXPECT_EQ(allocated(), 4096);
  array.copy_from(values);
  EXPECT_EQ(array.to_vector(), values);
  array.span()[7] = -1;  // the processor can touch it here
  values[7] = -1;
  EXPECT_EQ(array.to_vector(), values);

  Array<float> taken(std::move(array));
  EXPECT_EQ(taken.to_vector(), values);
  // NOLINTNEXTLINE(bugprone-use-after-move): what is left is the point
  EXPECT_TRUE(array.empty());
  EXPECT_TRUE(array.span().empty());
  EXPECT_TRUE(array.to_vector().empty());
  taken.reset();
  EXPECT_EQ(blocks(), 0);
}

TEST_F(Adaptors, AnArrayRefusesAnotherCount) {
  Array<int> array(allocator_, 3);
  const std::vector<int> four(4);
  EXPECT_THAT(
      [&] { array.copy_from(four); },
      ThrowsMessage<InvalidArgument>(HasSubstr("Array::copy_from: 4 elements for an array of 3")));
  EXPECT_THROW(Array<int>().copy_from(four), InvalidArgument);
}

TEST_F(Adaptors, AnArrayPastAllMemoryIsRefusedNotWrapped) {
  const std::uint64_t count = UINT64_MAX / sizeof(double) + 2;  // times 8 is 8, in 64 bits
  EXPECT_THROW(Array<double>(allocator_, count), OutOfMemory);
  EXPECT_EQ(blocks(), 0);
}

TEST(AdaptorsOnMeta, AnArrayHasNoElementsThere) {
  const auto card = device::MetaDevice::create({.capacity_bytes = 1_GiB});
  CachingAllocator allocator(*card);
  const Array<float> array(allocator, 10);
  EXPECT_THAT([&] { (void)array.span(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("cannot touch memory of meta:0")));
  EXPECT_THROW((void)array.to_vector(), Error);
}

// --- pmr -----------------------------------------------------------------------------------------

TEST_F(Adaptors, PmrContainersAreCountedAndLimited) {
  AllocatorResource resource(allocator_);
  std::pmr::vector<float> values(1024, 0.5F, &resource);
  EXPECT_EQ(allocated(), 4096);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(values.data()) % kMinBlockBytes, 0U);
  std::pmr::list<int> list({1, 2, 3}, &resource);
  EXPECT_EQ(blocks(), 4);
  allocator_.set_limit(2_MiB);
  EXPECT_THAT([&] { values.resize(10'000'000); },
              ThrowsMessage<OutOfMemory>(HasSubstr("raise the limit of 2MiB")));
  EXPECT_EQ(values.size(), 1024U);
  EXPECT_EQ(values.front(), 0.5F);
  EXPECT_THROW(values.resize(10'000'000), std::bad_alloc);  // which is what OutOfMemory is
  values = std::pmr::vector<float>(&resource);
  list.clear();
  EXPECT_EQ(blocks(), 0);
}

TEST_F(Adaptors, PmrOfNoBytesIsAPointerAndNoBlock) {
  AllocatorResource resource(allocator_);
  void* const nothing = resource.allocate(0, 1);
  EXPECT_NE(nothing, nullptr);
  EXPECT_EQ(allocator_.statistics().allocation.all.allocated, 0);
  resource.deallocate(nothing, 0, 1);
  EXPECT_EQ(allocator_.misuse_count(), 0U);
}

TEST_F(Adaptors, PmrPromisesTheAlignmentOfBlocksAndRefusesMore) {
  AllocatorResource resource(allocator_);
  void* const aligned = resource.allocate(1, 512);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(aligned) % 512, 0U);
  resource.deallocate(aligned, 1, 512);
  EXPECT_THROW((void)resource.allocate(1, 1024), std::bad_alloc);
  EXPECT_THROW((void)resource.allocate(0, 1024), std::bad_alloc);
  EXPECT_EQ(blocks(), 0);
}

TEST_F(Adaptors, PmrResourcesOfOneAllocatorAreEqual) {
  AllocatorResource one(allocator_);
  AllocatorResource same(allocator_);
  CachingAllocator elsewhere(*device_);
  AllocatorResource other(elsewhere);
  EXPECT_TRUE(one == same);
  EXPECT_FALSE(one == other);
  EXPECT_FALSE(one == *std::pmr::new_delete_resource());
  // So containers move between the equal and copy between the others.
  std::pmr::vector<int> from(100, 1, &one);
  const int* const data = from.data();
  std::pmr::vector<int> to(std::move(from), &same);
  EXPECT_EQ(to.data(), data);
  const std::pmr::vector<int> copied(std::move(to), &other);
  EXPECT_NE(copied.data(), data);
}

TEST(AdaptorsOnMeta, PmrIsRefusedThere) {
  const auto card = device::MetaDevice::create({.capacity_bytes = 1_GiB});
  CachingAllocator allocator(*card);
  EXPECT_THAT([&] { AllocatorResource{allocator}; },
              ThrowsMessage<InvalidArgument>(HasSubstr("cannot touch memory of meta:0; use an "
                                                       "allocator of a cpu device")));
}

TEST_F(Adaptors, PinnedMemoryIsNotTheDevices) {
  PinnedResource resource(*device_);
  {
    std::pmr::vector<float> values(1024, 0.5F, &resource);
    EXPECT_EQ(values.back(), 0.5F);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(values.data()) % 64, 0U);
    EXPECT_EQ(allocator_.account().used(), 0U);
    Array<float> array(allocator_, values.size());
    array.copy_from(values);
    EXPECT_EQ(array.to_vector().back(), 0.5F);
  }
  void* const nothing = resource.allocate(0, 1);
  EXPECT_NE(nothing, nullptr);
  resource.deallocate(nothing, 0, 1);
  EXPECT_THROW((void)resource.allocate(1, 128), std::bad_alloc);
  EXPECT_THROW((void)resource.allocate(std::size_t{1} << 62U, 1), std::bad_alloc);
  PinnedResource same(*device_);
  EXPECT_TRUE(resource == same);
  AllocatorResource pageable(allocator_);
  EXPECT_FALSE(resource == pageable);
}

TEST(AdaptorsOnMeta, PinnedMemoryIsRealThere) {
  const auto card = device::MetaDevice::create({.capacity_bytes = 1_GiB});
  PinnedResource resource(*card);
  const std::pmr::vector<int> values({1, 2, 3}, &resource);
  EXPECT_EQ(values[2], 3);
}

}  // namespace
}  // namespace headroom::memory
