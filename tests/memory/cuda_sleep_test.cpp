// Sleep and wake on a GPU: the card has the memory meanwhile, and the same addresses hold the same
// bytes afterwards.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/cuda/cuda_device.h"
#include "headroom/memory/annotation.h"
#include "headroom/memory/paged/paged_allocator.h"

#include "tests/support/device_status.h"

namespace headroom::memory {
namespace {

using device::CudaDevice;
using headroom::testing::worked;

class CudaSleep : public ::testing::Test {
 protected:
  void SetUp() override {
    if (CudaDevice::count() == 0) GTEST_SKIP() << CudaDevice::why_none();
    device_ = CudaDevice::create({.capacity_bytes = 1_GiB}).value();
    allocator_.emplace(*device_);
  }
  DeviceAddress weights(std::uint64_t size, int value) {
    const AnnotationScope names("weights");
    const DeviceAddress block = allocator_->allocate(size);
    EXPECT_TRUE(
        worked(device_->fill(block, static_cast<std::uint8_t>(value), size, StreamId::kDefault)));
    return block;
  }
  [[nodiscard]] bool holds(DeviceAddress address, int value, std::uint64_t size) {
    std::vector<std::uint8_t> bytes(size);
    EXPECT_TRUE(worked(device_->copy_to_host(bytes.data(), address, size, StreamId::kDefault)));
    EXPECT_TRUE(worked(device_->synchronize_stream(StreamId::kDefault)));
    return std::ranges::count(bytes, value) == static_cast<std::ptrdiff_t>(size);
  }

  std::unique_ptr<CudaDevice> device_;
  std::optional<PagedAllocator> allocator_;
};

TEST_F(CudaSleep, TheCardHasTheMemoryMeanwhile) {
  constexpr std::uint64_t kBlockBytes = 256_MiB;
  const DeviceAddress block = weights(kBlockBytes, 3);
  const std::uint64_t free_before = device_->memory_info()->free_bytes;
  const SleepChange slept = allocator_->sleep("weights", SleepContents::kKeptOnHost);
  EXPECT_EQ(slept.device_bytes, kBlockBytes);
  EXPECT_GE(device_->memory_info()->free_bytes, free_before + kBlockBytes);
  const DeviceAddress other = allocator_->allocate(896_MiB);
  EXPECT_TRUE(worked(device_->fill(other, 9, 896_MiB, StreamId::kDefault)));
  EXPECT_FALSE(allocator_->try_wake("weights"));
  allocator_->free(other);
  (void)allocator_->wake("weights");
  EXPECT_TRUE(holds(block, 3, kBlockBytes));
  EXPECT_EQ(allocator_->check_invariants(), std::nullopt);
}

TEST_F(CudaSleep, PagesSharedWithBlocksAwakeStayAsTheyAre) {
  const DeviceAddress awake = allocator_->allocate(3_MiB);
  EXPECT_TRUE(worked(device_->fill(awake, 7, 3_MiB, StreamId::kDefault)));
  std::vector<DeviceAddress> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(weights(5_MiB + 512, i));
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(allocator_->sleep("weights", SleepContents::kKeptOnHost).blocks, blocks.size());
    EXPECT_EQ(allocator_->check_invariants(), std::nullopt);
    EXPECT_TRUE(holds(awake, 7, 3_MiB));
    EXPECT_EQ(allocator_->wake("weights").blocks, blocks.size());
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      EXPECT_TRUE(holds(blocks[i], static_cast<int>(i), 5_MiB + 512));
    }
  }
}

}  // namespace
}  // namespace headroom::memory
