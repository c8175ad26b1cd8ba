// Slabs: classes, places, what is told of wrong addresses, and how pages come and go.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/cpu/cpu_device.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/internal/size_classes.h"

#include "tests/memory/slab_allocator.h"

namespace headroom::memory {
namespace {

using internal::kClasses;
using internal::kSizeClasses;
using internal::kSlabMaxBytes;
using internal::kSlabPageBytes;
using testing::SlabAllocator;

TEST(SizeClasses, ARequestGetsTheSmallestClassThatHoldsIt) {
  for (std::uint64_t size = 1; size <= kSlabMaxBytes; ++size) {
    const std::size_t c = internal::size_class_of(size);
    ASSERT_LT(c, kSizeClasses) << size;
    ASSERT_GE(kClasses[c].block_bytes, size);
    ASSERT_TRUE(c == 0 || kClasses[c - 1].block_bytes < size) << size;
  }
}

TEST(SizeClasses, AreAnEighthApartAtMostAndTheirSlabsWasteASixteenthAtMost) {
  for (std::size_t c = 0; c < kSizeClasses; ++c) {
    const internal::SizeClass& kind = kClasses[c];
    EXPECT_EQ(kind.block_bytes % kMinBlockBytes, 0U);
    if (c > 0) {
      const std::uint32_t step = kind.block_bytes - kClasses[c - 1].block_bytes;
      EXPECT_LE(step, std::max<std::uint32_t>(512, kClasses[c - 1].block_bytes / 8));
    }
    const std::uint64_t slab = kind.slab_granules * internal::kGranuleBytes;
    const std::uint64_t used = std::uint64_t{kind.slab_blocks} * kind.block_bytes;
    EXPECT_GE(kind.slab_blocks, 4);
    EXPECT_LE(kind.slab_blocks, internal::kSlabMaxBlocks);
    EXPECT_LE(used, slab);
    EXPECT_LE(slab - used, slab / 16) << kind.block_bytes;
    EXPECT_LE(kind.magazine_blocks, 64);
    EXPECT_LE(std::uint64_t{kind.magazine_blocks} * kind.block_bytes, internal::kMagazineBytes);
  }
}

class Slabs : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(allocator_.check_invariants(), std::nullopt); }

  [[nodiscard]] std::uint64_t reserved() const {
    return static_cast<std::uint64_t>(allocator_.statistics().reserved_bytes.all.current);
  }
  std::vector<DeviceAddress> allocate_many(std::size_t count,
                                           std::uint64_t size,
                                           StreamId stream = StreamId::kDefault) {
    std::vector<DeviceAddress> blocks(count);
    for (DeviceAddress& block : blocks) block = allocator_.allocate(size, stream);
    return blocks;
  }
  void free_all(const std::vector<DeviceAddress>& blocks) {
    for (const DeviceAddress block : blocks) EXPECT_TRUE(allocator_.try_free(block).has_value());
  }

  static constexpr std::size_t kPages = 32;
  std::unique_ptr<device::MetaDevice> device_ = device::MetaDevice::create();
  StreamId side_ = device_->create_stream().value();
  SlabAllocator allocator_{*device_, kPages};
};

// Else threads that hold them would wait for one another.
TEST(SlabPages, TheWordsOfBlocksOfOneSizeAreInDifferentCacheLines) {
  using internal::SlabPage;
  constexpr std::size_t kLines = SlabPage::kSlots / 8;
  std::set<std::size_t> words;
  for (std::size_t slot = 0; slot < SlabPage::kSlots; ++slot) {
    words.insert(SlabPage::word_index(slot));
  }
  EXPECT_EQ(words.size(), SlabPage::kSlots);
  EXPECT_LT(*words.rbegin(), SlabPage::kSlots);
  for (const std::uint64_t size_bytes : {4_KiB, 8_KiB, 16_KiB, 32_KiB, 64_KiB}) {
    const std::size_t step = size_bytes / kMinBlockBytes;
    std::set<std::size_t> lines;
    for (std::size_t slot = 0; slot < SlabPage::kSlots; slot += step) {
      lines.insert(SlabPage::word_index(slot) / 8);
    }
    EXPECT_EQ(lines.size(), std::min(SlabPage::kSlots / step, kLines)) << size_bytes;
  }
}

TEST_F(Slabs, EveryClassServesItsSmallestAndItsLargestRequest) {
  std::uint64_t smallest = 1;
  for (const internal::SizeClass& kind : kClasses) {
    for (const std::uint64_t size : {smallest, std::uint64_t{kind.block_bytes}}) {
      const DeviceAddress block = allocator_.allocate(size);
      const auto found = allocator_.find_block(block);
      ASSERT_TRUE(found.has_value());
      EXPECT_EQ(found->size_bytes, kind.block_bytes);
      EXPECT_EQ(found->requested_bytes, size);
      EXPECT_EQ(block % kMinBlockBytes, 0U);
      allocator_.free(block);
    }
    smallest = kind.block_bytes + 1;
  }
  EXPECT_EQ(allocator_.misuse_count(), 0U);
}

TEST_F(Slabs, BlocksOfAllClassesLieApart) {
  std::vector<std::pair<DeviceAddress, std::uint64_t>> ranges;
  for (int round = 0; round < 40; ++round) {
    for (const internal::SizeClass& kind : kClasses) {
      ranges.emplace_back(allocator_.allocate(kind.block_bytes), kind.block_bytes);
    }
  }
  std::ranges::sort(ranges);
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    ASSERT_LE(ranges[i - 1].first + ranges[i - 1].second, ranges[i].first);
  }
  for (const auto& [address, size] : ranges) allocator_.free(address);
  allocator_.flush();
  EXPECT_EQ(reserved(), 0U);
}

TEST_F(Slabs, PagesGoBackWhenTheirBlocksAreFree) {
  allocator_.enable_magazines(false);
  const auto blocks = allocate_many(20 * kSlabPageBytes / 16_KiB, 16_KiB);
  EXPECT_EQ(reserved(), 20 * kSlabPageBytes);
  EXPECT_EQ(allocator_.heap().live_bytes(), 20 * kSlabPageBytes);
  free_all(blocks);
  EXPECT_EQ(reserved(), kSlabPageBytes) << "one stays";
  EXPECT_EQ(allocator_.heap().live_bytes(), 0U);
  EXPECT_EQ(allocator_.flush(), kSlabPageBytes);
  EXPECT_EQ(reserved(), 0U);
  EXPECT_EQ(allocator_.pages_left(), kPages);
}

TEST_F(Slabs, AFlushEmptiesMagazinesToo) {
  free_all(allocate_many(8, 1_KiB));
  EXPECT_GT(allocator_.heap().cached_bytes(), 0U);
  EXPECT_EQ(allocator_.flush(), kSlabPageBytes);
  EXPECT_EQ(allocator_.heap().cached_bytes(), 0U);
  EXPECT_EQ(allocator_.heap().page_bytes(), 0U);
}

TEST_F(Slabs, APageThatHoldsABlockStays) {
  const DeviceAddress kept = allocator_.allocate(512);
  free_all(allocate_many(4096, 2_KiB));
  EXPECT_EQ(reserved() - allocator_.flush(), kSlabPageBytes);
  EXPECT_EQ(allocator_.find_block(kept)->requested_bytes, 512U);
}

TEST_F(Slabs, APageBelongsToOneStreamAtATime) {
  const auto page_of = [](DeviceAddress block) { return block / kSlabPageBytes; };
  const DeviceAddress mine = allocator_.allocate(512);
  const DeviceAddress other = allocator_.allocate(512, side_);
  EXPECT_NE(page_of(mine), page_of(other));
  allocator_.free(mine);
  EXPECT_NE(allocator_.allocate(512, side_), mine) << "cached for the stream it was of";
  allocator_.flush();
  const auto more = allocate_many(2 * kSlabPageBytes / 512, 512, side_);
  EXPECT_TRUE(std::ranges::any_of(
      more, [&](DeviceAddress block) { return page_of(block) == page_of(mine); }));
}

TEST_F(Slabs, MixedClassesShareAPage) {
  for (const internal::SizeClass& kind : kClasses) {
    if (kind.block_bytes <= 16_KiB) (void)allocator_.allocate(kind.block_bytes);
  }
  EXPECT_EQ(reserved(), kSlabPageBytes);
}

TEST_F(Slabs, WrongAddressesAreToldAndChangeNothing) {
  const DeviceAddress block = allocator_.allocate(4_KiB);
  const DeviceAddress freed = allocator_.allocate(4_KiB);
  const DeviceAddress page = round_down(block, kSlabPageBytes);
  allocator_.free(freed);
  const std::array<DeviceAddress, 7> wrong{freed,
                                           block + 1,
                                           block + 512,
                                           page + kSlabPageBytes - 512,
                                           page + kSlabPageBytes,
                                           page - 512,
                                           DeviceAddress{4096}};
  for (const bool has_magazines : {true, false}) {
    allocator_.enable_magazines(has_magazines);
    for (const DeviceAddress address : wrong) {
      EXPECT_FALSE(allocator_.try_free(address).has_value()) << address - page;
      EXPECT_FALSE(allocator_.record_stream(address, side_).has_value());
      EXPECT_EQ(allocator_.find_block(address), std::nullopt);
    }
    EXPECT_EQ(allocator_.check_invariants(), std::nullopt);
  }
  EXPECT_TRUE(allocator_.try_free(block).has_value());
  EXPECT_FALSE(allocator_.try_free(block).has_value());
  allocator_.flush();
  EXPECT_FALSE(allocator_.try_free(block).has_value()) << "its page is gone";
}

TEST_F(Slabs, WhatAnotherStreamUsesIsNotHandedOutAgain) {
  const DeviceAddress block = allocator_.allocate(3_KiB);
  ASSERT_TRUE(allocator_.record_stream(block, side_).has_value());
  EXPECT_TRUE(allocator_.try_free(block).has_value());
  EXPECT_FALSE(allocator_.try_free(block).has_value());
  EXPECT_FALSE(allocator_.record_stream(block, side_).has_value());
  for (const DeviceAddress other : allocate_many(100, 3_KiB)) ASSERT_NE(other, block);
  const Statistics stats = allocator_.statistics();
  EXPECT_EQ(stats.active.all.current, 101);
  EXPECT_EQ(stats.allocation.all.current, 100);
  EXPECT_EQ(allocator_.check_invariants(), std::nullopt);
  allocator_.process_events();
  EXPECT_EQ(allocator_.statistics().active.all.current, 100);
  const auto more = allocate_many(100, 3_KiB);
  EXPECT_NE(std::ranges::find(more, block), more.end());
}

TEST_F(Slabs, WithoutAPageTheRequestFailsAndTheNextMayNot) {
  allocator_.set_limit(2 * kSlabPageBytes);
  std::vector<DeviceAddress> blocks;
  while (const auto block = allocator_.try_allocate(60_KiB)) blocks.push_back(*block);
  EXPECT_EQ(blocks.size(), 64U);
  EXPECT_EQ(allocator_.check_invariants(), std::nullopt);
  EXPECT_FALSE(allocator_.try_allocate(512).has_value());
  allocator_.free(blocks.back());
  EXPECT_TRUE(allocator_.try_allocate(60_KiB).has_value());
}

TEST_F(Slabs, WhatABlockIsForIsKept) {
  AnnotationId annotation = 0;
  std::vector<DeviceAddress> blocks;
  {
    const AnnotationScope layer("layer3");
    const CategoryScope category(Category::kGradient);
    annotation = current_context().annotation;
    blocks = allocate_many(3, 700);
  }
  for (const DeviceAddress block : blocks) {
    const auto found = allocator_.find_block(block);
    EXPECT_EQ(found->category, Category::kGradient);
    EXPECT_EQ(found->annotation, annotation);
    EXPECT_EQ(found->requested_bytes, 700U);
  }
  const Account account = allocator_.account();
  EXPECT_EQ(account.live_bytes[static_cast<std::size_t>(Category::kGradient)], 2100U);
  EXPECT_EQ(account.rounding_bytes, 3 * (1024U - 700U));
  EXPECT_EQ(account.sum(), account.total_bytes);
}

TEST_F(Slabs, SegmentsAreTiledByTheirBlocks) {
  std::set<DeviceAddress> held;
  for (const internal::SizeClass& kind : kClasses) {
    const DeviceAddress block = allocator_.allocate(kind.block_bytes);
    (kind.block_bytes % 1024 == 0) ? allocator_.free(block) : (void)held.insert(block);
  }
  std::uint64_t total = 0;
  for (const SegmentInfo& segment : allocator_.segments()) {
    DeviceAddress at = segment.address;
    for (const BlockInfo& block : segment.blocks) {
      EXPECT_EQ(block.address, at);
      EXPECT_EQ(block.state == BlockState::kAllocated, held.erase(block.address) == 1);
      at += block.size_bytes;
    }
    EXPECT_EQ(at, segment.address + segment.size_bytes);
    total += segment.size_bytes;
  }
  EXPECT_TRUE(held.empty());
  EXPECT_EQ(total, reserved());
}

// The cpu device tells AddressSanitizer what is free; without it this only fills blocks.
TEST(SlabsOnCpu, TheDeviceIsToldOfEveryBlock) {
  const auto device = device::CpuDevice::create({.capacity_bytes = 64_MiB});
  SlabAllocator allocator(*device, 8);
  for (const bool has_magazines : {true, false}) {
    allocator.enable_magazines(has_magazines);
    std::vector<DeviceAddress> blocks;
    for (int i = 0; i < 200; ++i) {
      blocks.push_back(allocator.allocate(3_KiB));
      EXPECT_TRUE(device->fill(blocks.back(), 7, 3_KiB, StreamId::kDefault).has_value());
      if (i % 3 == 0) {
        allocator.free(blocks[static_cast<std::size_t>(i) / 2]);
        blocks[static_cast<std::size_t>(i) / 2] = 0;
      }
    }
    for (const DeviceAddress block : blocks) allocator.free(block);
  }
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
}

}  // namespace
}  // namespace headroom::memory
