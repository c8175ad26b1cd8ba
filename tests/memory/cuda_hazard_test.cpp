// What record_stream is for, with real kernels: a block is freed while a kernel of another stream
// has yet to read it, and its next owner writes. A gate holds the other stream, so that the order
// is the same every time.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/cuda/cuda_device.h"
#include "headroom/memory/caching/caching_allocator.h"

#include "tests/support/block_kernels.h"
#include "tests/support/device_status.h"
#include "tests/support/native_cuda.h"
#include "tests/support/stream_gate.h"

namespace headroom::memory {
namespace {

using device::CudaDevice;
using headroom::testing::BlockKernels;
using headroom::testing::NativeContext;
using headroom::testing::NativeCuda;
using headroom::testing::NativeTestStream;
using headroom::testing::StreamGate;
using headroom::testing::worked;

constexpr std::uint64_t kBytes = 4_MiB;
constexpr std::uint64_t kWords = kBytes / BlockKernels::kWordBytes;
constexpr std::uint32_t kOurs = 0x11;
constexpr std::uint32_t kTheirs = 0x22;

// The parameter is the allocator's settings.
class CudaRecordStream : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (CudaDevice::count() == 0) GTEST_SKIP() << CudaDevice::why_none();
    device_ = CudaDevice::create({.capacity_bytes = 256_MiB}).value();
    cuda_.emplace();
    context_.emplace(*cuda_);
    kernels_.emplace(*cuda_);
    side_.emplace(*cuda_, *device_);
    wrong_ = device_->allocate_segment(512).value();
    ASSERT_TRUE(worked(device_->fill(wrong_, 0, 512, StreamId::kDefault)));
    // Once each before a gate is closed: a first launch may wait for all that is queued.
    kernels_->fill({wrong_ + 256, BlockKernels::kWordBytes}, 0, nullptr);
    kernels_->check({wrong_ + 256, BlockKernels::kWordBytes}, 0, wrong_, nullptr);
    ASSERT_EQ(count(), 0U);
    allocator_.emplace(*device_);
    allocator_->configure(GetParam());
  }

  // How many words a kernel on another stream finds wrong in a block that was freed before it ran.
  std::uint64_t wrong_words_on_another_stream(bool is_recorded) {
    const DeviceAddress block = allocator_->allocate(kBytes);
    kernels_->fill({block, kBytes}, kOurs, nullptr);
    const auto filled = device_->record_event(StreamId::kDefault);
    EXPECT_TRUE(worked(filled));
    EXPECT_TRUE(worked(device_->wait_event(side_->id(), *filled)));
    EXPECT_TRUE(worked(device_->release_event(*filled)));
    StreamGate gate(*device_, side_->id());
    kernels_->check({block, kBytes}, kOurs, wrong_, side_->native());
    if (is_recorded) {
      EXPECT_TRUE(worked(allocator_->record_stream(block, side_->id())));
    }
    allocator_->free(block);

    const DeviceAddress next = allocator_->allocate(kBytes);
    is_reused_ = next == block;
    kernels_->fill({next, kBytes}, kTheirs, nullptr);
    EXPECT_TRUE(worked(device_->synchronize_stream(StreamId::kDefault)));
    gate.open();
    EXPECT_TRUE(worked(device_->synchronize_stream(side_->id())));
    allocator_->free(next);
    return count();
  }

  std::uint64_t count() {
    std::uint64_t found = 0;
    EXPECT_TRUE(worked(device_->copy_to_host(&found, wrong_, sizeof found, StreamId::kDefault)));
    EXPECT_TRUE(worked(device_->synchronize_stream(StreamId::kDefault)));
    return found;
  }

  std::unique_ptr<CudaDevice> device_;
  std::optional<NativeCuda> cuda_;
  std::optional<NativeContext> context_;
  std::optional<BlockKernels> kernels_;
  std::optional<NativeTestStream> side_;
  std::optional<CachingAllocator> allocator_;
  DeviceAddress wrong_ = 0;
  bool is_reused_ = false;
};

TEST_P(CudaRecordStream, WithoutItTheOtherStreamReadsTheNextOwnersWords) {
  EXPECT_EQ(wrong_words_on_another_stream(false), kWords) << "this is the corruption";
  EXPECT_TRUE(is_reused_);
}

TEST_P(CudaRecordStream, WithItTheBlockWaitsForTheOtherStream) {
  EXPECT_EQ(wrong_words_on_another_stream(true), 0U);
  EXPECT_FALSE(is_reused_);
  allocator_->process_events();
  EXPECT_EQ(allocator_->statistics().active.all.current, 0) << "both frees are complete";
}

// The order of the stream keeps the next owner's kernel behind the last one's.
TEST_P(CudaRecordStream, OnItsOwnStreamABlockMayBeFreedBeforeItsKernelsHaveRun) {
  const StreamId own = side_->id();
  const DeviceAddress block = allocator_->allocate(kBytes, own);
  StreamGate gate(*device_, own);
  kernels_->fill({block, kBytes}, kOurs, side_->native());
  kernels_->check({block, kBytes}, kOurs, wrong_, side_->native());
  allocator_->free(block);
  const DeviceAddress next = allocator_->allocate(kBytes, own);
  EXPECT_EQ(next, block) << "at once";
  kernels_->fill({next, kBytes}, kTheirs, side_->native());
  kernels_->check({next, kBytes}, kTheirs, wrong_, side_->native());
  gate.open();
  EXPECT_TRUE(worked(device_->synchronize_stream(own)));
  EXPECT_EQ(count(), 0U);
  allocator_->free(next);
}

INSTANTIATE_TEST_SUITE_P(Settings,
                         CudaRecordStream,
                         ::testing::Values("", "expandable_segments:True"),
                         [](const auto& settings) {
                           return std::string(*settings.param == '\0' ? "Segments" : "Expandable");
                         });

}  // namespace
}  // namespace headroom::memory
