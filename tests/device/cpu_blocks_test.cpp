// Blocks inside segments, under AddressSanitizer: a use after the block was freed is caught, in
// stream order. In other builds the device does not want to know of blocks.
#include <array>
#include <memory>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/cpu/cpu_device.h"
#include "headroom/device/cpu/internal/areas.h"

#include "tests/device/small_device.h"

namespace headroom::device {
namespace {

std::unique_ptr<CpuDevice> plain_device() {
  return CpuDevice::create({.capacity_bytes = 16_MiB, .granularity_bytes = 64_KiB});
}

#if defined(__SANITIZE_ADDRESS__)

class CpuBlocks : public ::testing::Test {
 protected:
  CpuBlocks() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  std::unique_ptr<CpuDevice> device_ = plain_device();
  DeviceAddress block_ = device_->allocate_segment(1_MiB).value();
  char* byte_ = static_cast<char*>(internal::to_pointer(block_));
};

TEST_F(CpuBlocks, AFreedBlockMustNotBeUsed) {
  ASSERT_TRUE(device_->tracks_blocks());
  device_->block_allocated(block_, 512, kDefault);
  *byte_ = 1;
  device_->block_freed(block_, 512, kDefault);
  EXPECT_DEATH(*byte_ = 2, "use-after-poison");
  EXPECT_DEATH((void)device_->fill(block_, 0, 512, kDefault), "use-after-poison");
  device_->block_allocated(block_, 512, kDefault);
  *byte_ = 3;
}

TEST_F(CpuBlocks, AFreeComesAfterTheWorkAlreadyQueued) {
  const StreamId stream = device_->create_stream().value();
  device_->block_allocated(block_, 512, stream);
  ASSERT_TRUE(device_->fill(block_, 1, 512, stream));
  device_->block_freed(block_, 512, stream);
  ASSERT_TRUE(device_->synchronize_stream(stream));
  EXPECT_DEATH(
      {
        (void)device_->fill(block_, 1, 512, stream);
        (void)device_->synchronize_stream(stream);
      },
      "use-after-poison");
}

TEST_F(CpuBlocks, AddressesThatGoBackAreClean) {
  device_->block_freed(block_, 1_MiB, kDefault);
  ASSERT_TRUE(device_->free_segment(block_));
  const auto base = device_->reserve_addresses(64_KiB).value();
  const std::array pages{device_->create_pages(64_KiB).value()};
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(device_->map_pages(base, pages));
    ASSERT_TRUE(device_->fill(base, 1, 64_KiB, kDefault));
    device_->block_freed(base, 64_KiB, kDefault);
    ASSERT_TRUE(device_->unmap_pages(base, 64_KiB));
  }
  // Wherever the next segment lies, it may be used.
  const auto next = device_->allocate_segment(1_MiB).value();
  ASSERT_TRUE(device_->fill(next, 1, 1_MiB, kDefault));
}

TEST_F(CpuBlocks, ABlockOfAReleasedStreamMayStillBeAllocated) {
  const StreamId stream = device_->create_stream().value();
  device_->block_freed(block_, 512, stream);
  ASSERT_TRUE(device_->synchronize_stream(stream));
  ASSERT_TRUE(device_->release_stream(stream));
  device_->block_allocated(block_, 512, stream);
  *byte_ = 1;
}

#else

TEST(CpuBlocks, AreNotTrackedWithoutAddressSanitizer) {
  EXPECT_FALSE(plain_device()->tracks_blocks());
}

#endif

}  // namespace
}  // namespace headroom::device
