// Work on streams: right with waits, and shown to be wrong without.
#include "headroom/tensor/stream.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/cpu/cpu_device.h"
#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/tensor.h"
#include "headroom/tensor/cpu/internal/thread_pool.h"

#include "tests/support/sanitized.h"
#include "tests/support/stream_gate.h"

namespace headroom {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::Pointwise;
using testing::StreamGate;

class TensorStreams : public ::testing::Test {
 protected:
  [[nodiscard]] TensorOptions here() { return {.device = allocator}; }

  std::unique_ptr<device::CpuDevice> device =
      device::CpuDevice::create({.index = 5, .capacity_bytes = 64_MiB});
  memory::CachingAllocator allocator{*device};
  Stream first{*device};
  Stream second{*device};
};

TEST_F(TensorStreams, OpsGoToTheCurrentStreamOfTheirDevice) {
  const Tensor x = zeros({4}, here());
  StreamGate gate(*device, first.id());
  {
    const StreamScope scope(first);
    EXPECT_EQ(current_stream_id(*device), first.id());
    x.fill_(3);
    EXPECT_EQ(zeros({4}, here()).storage().stream(), first.id());
  }
  EXPECT_EQ(current_stream_id(*device), device::StreamId::kDefault);
  EXPECT_THAT(x.to_doubles(), Each(0));  // not yet
  gate.open();
  first.synchronize();
  EXPECT_THAT(x.to_doubles(), Each(3));
}

// Their workspaces go back before they have run, and attention tells the product library how many
// threads to use.
TEST_F(TensorStreams, LayersOnTwoStreamsGiveWhatOneGives) {
  const Tensor heads = rand({2, 3, 150, 8}, here());
  const Tensor image = rand({2, 8, 30, 30}, here());
  const Tensor weight = rand({4, 8, 3, 3}, here());
  const auto attend = [&] { return scaled_dot_product_attention(heads, heads, heads); };
  const auto convolve = [&] { return layer_norm(conv2d(image, weight), {28}); };
  const std::vector<double> attended = attend().to_doubles();
  const std::vector<double> convolved = convolve().to_doubles();
  std::vector<Tensor> on_first;
  std::vector<Tensor> on_second;
  for (int i = 0; i < 3; ++i) {
    {
      const StreamScope scope(first);
      on_first.push_back(attend());
      on_first.push_back(convolve());
    }
    const StreamScope scope(second);
    on_second.push_back(convolve());
    on_second.push_back(attend());
  }
  first.synchronize();
  second.synchronize();
  for (std::size_t i = 0; i < on_first.size(); i += 2) {
    EXPECT_EQ(on_first[i].to_doubles(), attended);
    EXPECT_EQ(on_second[i + 1].to_doubles(), attended);
    EXPECT_THAT(on_first[i + 1].to_doubles(), Pointwise(DoubleNear(1e-5), convolved));
    EXPECT_THAT(on_second[i].to_doubles(), Pointwise(DoubleNear(1e-5), convolved));
  }
}

// `first` writes, `second` reads. The gate makes the writer late.
TEST_F(TensorStreams, AWaitMakesTheSecondStreamSeeWhatTheFirstWrote) {
  const Tensor x = zeros({1000}, here());
  StreamGate gate(*device, first.id());
  {
    const StreamScope scope(first);
    x.fill_(3);
  }
  second.wait(first);
  Tensor y;
  {
    const StreamScope scope(second);
    y = x * 2;
  }
  gate.open();
  second.synchronize();
  EXPECT_THAT(y.to_doubles(), Each(6));
}

TEST_F(TensorStreams, WithoutTheWaitItReadsTooEarly) {
  const Tensor x = zeros({1000}, here());
  StreamGate gate(*device, first.id());
  {
    const StreamScope scope(first);
    x.fill_(3);
  }
  Tensor y;
  {
    const StreamScope scope(second);
    y = x * 2;
  }
  second.synchronize();  // the writer is still at the gate
  EXPECT_THAT(y.to_doubles(), Each(0));
  gate.open();
  first.synchronize();
}

// A tensor of the default stream is read by another and dropped before that has run.
class DroppedTooEarly : public TensorStreams {
 protected:
  Tensor read_after_reuse(bool records) {
    StreamGate gate(*device, first.id());
    Tensor y;
    {
      const Tensor x = full({1000}, 3, here());
      {
        const StreamScope scope(first);
        y = x * 2;
      }
      if (records) x.record_stream(first);
    }
    const Tensor next = full({1000}, 50, here());  // takes the block, if it is free
    gate.open();
    first.synchronize();
    return y;
  }
};

TEST_F(DroppedTooEarly, RecordStreamKeepsTheBlock) {
  EXPECT_THAT(read_after_reuse(true).to_doubles(), Each(6));
}

TEST_F(DroppedTooEarly, WithoutItTheBlockIsOverwritten) {
  if (testing::kHasAddressSanitizer) {
    GTEST_SKIP() << "AddressSanitizer ends the process right there";
  }
  EXPECT_THAT(read_after_reuse(false).to_doubles(), Each(100));
}

TEST_F(TensorStreams, EventsSayWhenAStreamHasPassed) {
  StreamGate gate(*device, first.id());
  const Event event = first.record();
  EXPECT_FALSE(event.is_done());
  gate.open();
  event.synchronize();
  EXPECT_TRUE(event.is_done());
}

TEST_F(TensorStreams, CopiesBetweenDevicesMayBeLeftRunning) {
  auto other = device::CpuDevice::create({.index = 6, .capacity_bytes = 64_MiB});
  memory::CachingAllocator there(*other);
  const Stream copies(*other);
  StreamGate gate(*other, copies.id());
  Tensor y;
  {
    const Tensor x = full({1000}, 3, here());
    const StreamScope scope(copies);
    y = x.to(there, /*non_blocking=*/true);
  }
  const Tensor next = full({1000}, 50, here());  // x is gone, but its memory is still being read
  gate.open();
  copies.synchronize();
  EXPECT_THAT(y.to_doubles(), Each(3));
}

// --- Threads ------------------------------------------------------------------------------------

TEST(ThreadPool, RunsEveryPieceOnce) {
  for (const int threads : {1, 2, 5}) {
    tensor::cpu::ThreadPool pool(threads);
    for (int round = 0; round < 50; ++round) {
      std::vector<std::atomic<int>> hits(97);
      pool.run(
          97,
          [](void* data, std::int64_t i) {
            ++(*static_cast<std::vector<std::atomic<int>>*>(data))[static_cast<std::size_t>(i)];
          },
          &hits);
      for (const auto& hit : hits) ASSERT_EQ(hit.load(), 1);
    }
  }
}

// The pool serves one at a time; who finds it taken works alone. Either way the bits are the same.
TEST_F(TensorStreams, SeveralThreadsGetTheSameBits) {
  const Tensor x = randn({300, 1000}, here());
  const auto compute = [&x] {
    return std::vector<Tensor>{x * 3, sum(x), sum(x, {0}), sum(x, {1}), softmax(x, 1), var(x)};
  };
  const std::vector<Tensor> expected = compute();
  std::vector<std::jthread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 3; ++round) {
        const std::vector<Tensor> found = compute();
        for (std::size_t j = 0; j < found.size(); ++j)
          wrong += equal(found[j], expected[j]) ? 0 : 1;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace headroom
