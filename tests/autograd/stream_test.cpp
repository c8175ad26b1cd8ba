// A backward runs on the streams of its forward, in order with the stream of whoever called it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/autograd.h"
#include "headroom/base/bytes.h"
#include "headroom/device/cpu/cpu_device.h"
#include "headroom/memory/caching/caching_allocator.h"

#include "tests/support/stream_gate.h"

namespace headroom {
namespace {

using ::testing::Each;
using testing::StreamGate;

class BackwardStreams : public ::testing::Test {
 protected:
  [[nodiscard]] TensorOptions here() { return {.dtype = kF64, .device = allocator}; }

  std::unique_ptr<device::CpuDevice> device =
      device::CpuDevice::create({.index = 6, .capacity_bytes = 64_MiB});
  memory::CachingAllocator allocator{*device};
  Stream first{*device};
  Stream second{*device};
};

TEST_F(BackwardStreams, ANodeRemembersTheStreamOfItsForward) {
  const Tensor x = ones({4}, here()).requires_grad_();
  const Tensor a = x * 2;
  const StreamScope scope(first);
  const Tensor b = x * 3;
  EXPECT_EQ(autograd::grad_fn(a)->stream().id(), device::StreamId::kDefault);
  EXPECT_EQ(autograd::grad_fn(b)->stream().id(), first.id());
  first.synchronize();  // before x is freed, which belongs to the default stream
}

// The op behind the gate has not run when the backward is asked for; nor has its gradient when that
// returns. The caller's stream comes after both.
TEST_F(BackwardStreams, TheCallersStreamWaitsForTheStreamsOfTheForward) {
  const Tensor x = ones({1000}, here()).requires_grad_();
  StreamGate gate(*device, second.id());
  Tensor y;
  {
    const StreamScope scope(second);
    y = square(x + 1).sum();
  }
  const StreamScope caller(first);
  y.backward();
  const Tensor seen = x.grad() * 1;
  const auto event = first.record();
  EXPECT_FALSE(event.is_done());
  gate.open();
  first.synchronize();
  EXPECT_THAT(x.grad().to_doubles(), Each(4));
  EXPECT_THAT(seen.to_doubles(), Each(4));
}

// x goes through both streams; its gradients are made on both and added up.
TEST_F(BackwardStreams, GradientsOfSeveralStreamsAreAddedInOrder) {
  for (int round = 0; round < 20; ++round) {
    const Tensor x = full({5000}, 2, here()).requires_grad_();
    const Tensor h = x * 3;
    Tensor a;
    Tensor b;
    first.wait(default_stream(*device));
    second.wait(default_stream(*device));
    StreamGate gate(*device, (round % 2 == 0 ? first : second).id());
    {
      const StreamScope scope(first);
      a = square(h);
    }
    {
      const StreamScope scope(second);
      b = square(h) * 2;
      second.wait(first);
      a.record_stream(second);
      b = (a + b).sum();
    }
    gate.open();
    b.backward();
    b = {};
    a = {};
    // Of 3 h^2 by h = 6, times 3.
    ASSERT_THAT(x.grad().to_doubles(), Each(6 * 6.0 * 3)) << round;
  }
}

// Two backwards of one leaf, from two streams that nobody put in order.
TEST_F(BackwardStreams, ALeafIsAddedToByOneStreamAfterTheOther) {
  const Tensor w = ones({64, 64}, here()).requires_grad_();
  const Tensor x = ones({8, 64}, here());
  const auto backward_on = [&](const Stream& stream) {
    const StreamScope scope(stream);
    linear(x, w).sum().backward();
  };
  for (int round = 1; round <= 10; ++round) {
    StreamGate gate(*device, first.id());
    backward_on(first);
    backward_on(second);
    gate.open();
    first.synchronize();
    second.synchronize();
    ASSERT_THAT(w.grad().to_doubles(), Each(16.0 * round));
  }
}

// What was made on one stream and saved on another goes back when the second has passed.
TEST_F(BackwardStreams, WhatWasSavedIsNotReusedTooEarly) {
  for (int round = 0; round < 20; ++round) {
    const Tensor w = ones({20000}, here()).requires_grad_();
    Tensor factor = full({20000}, 3, here());
    Tensor y;
    {
      const StreamScope scope(first);
      y = (w * factor).sum();
    }
    factor = {};  // the node alone holds it
    StreamGate gate(*device, first.id());
    {
      const StreamScope caller(second);
      y.backward();
    }
    y = {};
    const Tensor other = full({20000}, 77, here());  // of as many bytes, on the default stream
    gate.open();
    second.synchronize();
    ASSERT_THAT(w.grad().to_doubles(), Each(3)) << round;
  }
}

TEST_F(BackwardStreams, CheckpointsRunAgainOnTheirOwn) {
  const Tensor x = full({1000}, 2, here()).requires_grad_();
  Tensor y;
  {
    const StreamScope scope(first);
    y = checkpoint([](const Tensor& in) { return square(square(in)); }, x).sum();
  }
  const StreamScope caller(second);
  y.backward();
  second.synchronize();
  EXPECT_THAT(x.grad().to_doubles(), Each(32));
}

}  // namespace
}  // namespace headroom
