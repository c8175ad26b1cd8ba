// The asynchronous backend finds what it is there to find: each mistake that works on the processor
// and not on a GPU shows here, and the same code without the mistake is right.
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include "headroom/base/error.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/allocator_choice.h"
#include "headroom/tensor.h"
#include "headroom/tensor/internal/launch.h"

#include "tests/support/async_device.h"
#include "tests/support/async_kernels.h"
#include "tests/support/sanitized.h"

namespace headroom::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsNan;
using ::testing::Not;

// Nothing runs before somebody waits for it.
class AsyncBackend : public ::testing::Test {
 protected:
  [[nodiscard]] TensorOptions here() const { return {.device = *allocator_}; }
  [[nodiscard]] device::Device& device() { return device_; }
  [[nodiscard]] AsyncLaunches& launches() { return device_.launches(); }

  // A tensor of the default stream is read by another and dropped before that has run.
  Tensor read_after_drop(bool records) {
    const Stream side(device_);
    Tensor y;
    {
      const Tensor x = full({1000}, 3, here());
      side.wait(default_stream(device_));
      {
        const StreamScope scope(side);
        y = x * 2;
      }
      if (records) x.record_stream(side);
    }
    const Tensor next = full({1000}, 50, here());
    default_stream(device_).synchronize();
    side.synchronize();
    return y;
  }

  // The default stream writes, another reads.
  std::vector<double> read_on_another_stream(bool waits) {
    const Stream side(device_);
    const Tensor x = full({1000}, 3, here());
    if (waits) side.wait(default_stream(device_));
    const StreamScope scope(side);
    return (x * 2).to_doubles();
  }

 private:
  AsyncDevice device_{{.patience = std::chrono::hours(1)}};
  std::unique_ptr<memory::Allocator> allocator_ = memory::make_allocator(device_);
};

TEST_F(AsyncBackend, IsAGpuToWhoeverAsks) {
  EXPECT_EQ(device().id().kind, device::DeviceKind::kCuda);
  const Tensor x = zeros({3}, here());
  EXPECT_THROW((void)x.data<float>(), InvalidArgument);
  EXPECT_TRUE(AsyncDevice::is_far(x.address()));
  EXPECT_FALSE(tensor::backend_of(device()).kernels.is_host);
}

TEST_F(AsyncBackend, MemoryIsPoisonBeforeItIsWritten) {
  EXPECT_THAT(empty({1000}, here()).to_doubles(), Each(IsNan()));
  (void)full({1000}, 3, here());
  EXPECT_THAT(empty({1000}, here()).to_doubles(), Each(IsNan()));
}

TEST_F(AsyncBackend, AHostThatDoesNotWaitReadsWhatWasThereBefore) {
  const Tensor x = full({4}, 3, here());
  std::vector<float> values(4, 7);
  const auto copied =
      device().copy_to_host(values.data(), x.address(), x.size_bytes(), device::StreamId::kDefault);
  ASSERT_TRUE(copied);
  const std::vector<float> before = values;
  default_stream(device()).synchronize();
  EXPECT_THAT(before, Each(7));
  EXPECT_THAT(values, Each(3));
}

TEST_F(AsyncBackend, HostMemoryThatGoesTooEarlyIsReadTooLate) {
  std::vector<float> values(4, 7);
  const Tensor x = zeros({4}, here());
  ASSERT_TRUE(device().copy_to_device(
      x.address(), values.data(), x.size_bytes(), device::StreamId::kDefault));
  std::fill(values.begin(), values.end(), 9.0F);
  EXPECT_THAT(x.to_doubles(), Each(9));
}

TEST_F(AsyncBackend, AStreamThatDoesNotWaitReadsTooEarly) {
  EXPECT_THAT(read_on_another_stream(/*waits=*/false), Each(Not(6)));
  EXPECT_THAT(read_on_another_stream(/*waits=*/true), Each(6));
}

TEST_F(AsyncBackend, AMissingRecordStreamShows) {
  if (kHasAddressSanitizer) GTEST_SKIP() << "AddressSanitizer ends the process right there";
  EXPECT_THAT(read_after_drop(/*records=*/false).to_doubles(), Each(Not(6)));
}

TEST_F(AsyncBackend, ARecordedStreamKeepsTheBlock) {
  EXPECT_THAT(read_after_drop(/*records=*/true).to_doubles(), Each(6));
}

TEST_F(AsyncBackend, EventsCompleteWhenTheirWorkHasRun) {
  const Tensor x = full({4}, 3, here());
  const Event event = default_stream(device()).record();
  event.synchronize();
  EXPECT_TRUE(event.is_done());
}

// What the test that runs it would have failed with.
std::string failures_of(const std::function<void()>& action) {
  ::testing::TestPartResultArray results;
  {
    using Reporter = ::testing::ScopedFakeTestPartResultReporter;
    const Reporter reporter(Reporter::INTERCEPT_ALL_THREADS, &results);
    action();
  }
  std::string out;
  for (int i = 0; i < results.size(); ++i) out += results.GetTestPartResult(i).message();
  return out;
}

// What the kernels of a GPU could not follow.
TEST_F(AsyncBackend, AHostPointerAmongTheArgumentsIsAFailure) {
  const Tensor y = zeros({4}, here());
  const std::vector<float> values(4);
  const tensor::SoftmaxArgs args{
      .rows = {.classes = 4}, .in = values.data(), .out = reinterpret_cast<void*>(y.address())};
  EXPECT_THAT(failures_of([&] {
                tensor::launch("softmax", y.storage().allocator(), &tensor::Kernels::softmax, args);
              }),
              HasSubstr("not memory of the device"));
  default_stream(device()).synchronize();
}

TEST_F(AsyncBackend, AWorkspaceOfAnotherSizeIsAFailure) {
  const Tensor x = zeros({4}, here());
  const tensor::SoftmaxArgs args{.rows = {.classes = 4},
                                 .in = reinterpret_cast<void*>(x.address()),
                                 .out = reinterpret_cast<void*>(x.address())};
  const tensor::Launch where{.device = device(), .state = device().attachment()};
  EXPECT_GT(async_kernels().softmax.workspace_bytes(args, device().properties()), 0);
  EXPECT_THAT(failures_of([&] { (void)async_kernels().softmax.run(args, where); }),
              HasSubstr("bytes of workspace"));
}

// Nobody waits for the indices to look at them; the kernel knows what they must be.
TEST_F(AsyncBackend, AnIndexOutOfRangeIsFoundByTheKernel) {
  const Tensor x = full({3}, 5, here());
  TensorOptions integers = here();
  integers.dtype = kI64;
  const Tensor good = from(std::vector<std::int64_t>{0, 2}, {2}, integers);
  const Tensor bad = from(std::vector<std::int64_t>{0, 3}, {2}, integers);
  const std::uint64_t waits = device().calls(device::Call::kSynchronizeStream);
  const Tensor y = gather(x, 0, good);
  EXPECT_EQ(device().calls(device::Call::kSynchronizeStream), waits);
  EXPECT_THAT(y.to_doubles(), Each(5));
  EXPECT_THAT(failures_of([&] {
                (void)gather(x, 0, bad);
                default_stream(device()).synchronize();
              }),
              HasSubstr("an index of 3 for a size of 3"));
}

TEST_F(AsyncBackend, AFailedLaunchNamesTheOpAndTheNextOneRuns) {
  const Tensor x = full({4}, 3, here());
  launches().fail_at(1);
  try {
    (void)exp(x);
    FAIL() << "the launch was made to fail";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "exp: launch: the device failed: made to fail by a test");
  }
  EXPECT_THAT((x * 2).to_doubles(), Each(6));
}

// Each workspace is as its rule says, to whoever asks: the device and its meta.
TEST_F(AsyncBackend, MetaAsksForTheSameWorkspaces) {
  const auto meta = device::MetaDevice::create({.profile = device::profile_of(device())});
  const tensor::Kernels& planned = tensor::backend_of(*meta).kernels;
  EXPECT_TRUE(tensor::backend_of(*meta).is_planned);
  int with_room = 0;
  for (std::int64_t m = 1; m < 400; ++m) {
    const tensor::MatmulArgs args{.m = m, .n = 3, .k = 5};
    const std::uint64_t bytes = async_kernels().matmul.workspace_bytes(args, device().properties());
    EXPECT_EQ(planned.matmul.workspace_bytes(args, meta->properties()), bytes);
    with_room += static_cast<int>(bytes > 0);
  }
  EXPECT_GT(with_room, 200);
}

}  // namespace
}  // namespace headroom::testing
