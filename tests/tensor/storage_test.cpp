// Storage lives exactly as long as somebody uses it.
#include <functional>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "headroom/base/checked.h"

#include "tests/support/seed.h"
#include "tests/tensor/op_suite.h"
#include "tests/tensor/test_tape.h"

namespace headroom::testing {
namespace {

// Handles and views are made and dropped at random; the bytes that are allocated are those of the
// storages that some handle still reaches, at every step.
TEST(Storage, LivesAsLongAsAnyHandleReachesIt) {
  const std::uint64_t seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const World world = tensor_backends()[0].make();
  std::vector<Tensor> handles;
  const auto pick = [&]() -> const Tensor& { return handles[random() % handles.size()]; };
  const std::vector<std::function<Tensor()>> makers{
      [&] {
        return zeros({static_cast<std::int64_t>(random() % 50), 12}, {.device = world.allocator()});
      },
      [&] { return pick(); },
      [&] { return pick().transpose(0, -1); },
      [&] { return pick().unsqueeze(0).squeeze(0); },
      [&] { return pick().slice(0, 1); },
      [&] { return pick().detach(); },
      [&] { return pick().contiguous(); },
      [&] { return pick().clone(); },
      [&] { return relu(pick()); }};
  for (int step = 0; step < 5000; ++step) {
    if (handles.empty() || (handles.size() < 40 && random() % 2 == 0)) {
      handles.push_back(makers[handles.empty() ? 0 : random() % makers.size()]());
    } else {
      std::swap(handles[random() % handles.size()], handles.back());
      handles.pop_back();
    }
    std::map<const tensor::Storage*, std::uint64_t> reached;
    for (const Tensor& handle : handles) {
      reached[&handle.storage()] = round_up(handle.storage().size_bytes(), 512);
    }
    std::uint64_t expected = 0;
    for (const auto& [storage, bytes] : reached) expected += bytes;
    ASSERT_EQ(static_cast<std::uint64_t>(world.allocated_bytes()), expected) << "step " << step;
  }
}

// Random ops on random tensors, some with gradients and a backward, dropped at random.
void build_and_drop(std::mt19937_64& random, const World& world) {
  const auto x = rand({4, 4}, {.device = world.allocator()});
  if (random() % 2 == 0) x.requires_grad_();
  std::vector<Tensor> nodes{x};
  const auto pick = [&]() -> const Tensor& { return nodes[random() % nodes.size()]; };
  const std::vector<std::function<Tensor()>> ops{
      [&] { return add(pick(), pick()); },
      [&] { return mul(pick(), pick()); },
      [&] { return matmul(pick(), pick()); },
      [&] { return relu(pick()); },
      [&] { return pick().transpose(0, 1); },
      [&] { return sigmoid(pick()); },
      [&] {
        return cat({pick().narrow(0, 0, 2), pick().narrow(0, 2, 2)});
      },
      [&] { return clamp(pick(), -1, 1); },
      [&] { return softmax(pick(), 1); },
      [&] { return pick().detach(); },
      [&] { return pick().clone().mul_(pick()); }};
  const std::size_t size = 2 + random() % 12;
  while (nodes.size() < size) nodes.push_back(ops[random() % ops.size()]());
  if (nodes.back().requires_grad() && random() % 2 == 0)
    nodes.back().backward(ones_like(nodes.back()));
}

TEST(Storage, TenThousandGraphsLeaveNothing) {
  const std::uint64_t seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const World world = tensor_backends()[0].make();
  TestTape tape;
  const TapeScope scope(tape);
  for (int i = 0; i < 10'000; ++i) {
    build_and_drop(random, world);
    ASSERT_EQ(world.allocated_bytes(), 0) << "graph " << i;
  }
}

struct Write {
  const char* name;
  std::function<void(const Tensor&)> make;
};

// A write is seen through every view, and by whoever saved the tensor.
TEST(Storage, EveryWriteInPlaceRaisesTheVersion) {
  const World world = tensor_backends()[0].make();
  const Place place(world.allocator());
  const Tensor other = ones({2, 3}, {.device = place});
  const Tensor mask = ones({2, 3}, {.dtype = kBool, .device = place});
  const Tensor index = zeros({2, 3}, {.dtype = kI64, .device = place});
  const std::vector<Write> writes{
      {"fill_", [](const Tensor& x) { x.fill_(1); }},
      {"zero_", [](const Tensor& x) { x.zero_(); }},
      {"copy_", [&](const Tensor& x) { x.copy_(other); }},
      {"add_", [&](const Tensor& x) { x.add_(other); }},
      {"add_ scaled", [&](const Tensor& x) { x.add_(other, 2); }},
      {"add_ number", [](const Tensor& x) { x.add_(1); }},
      {"sub_", [&](const Tensor& x) { x.sub_(other); }},
      {"sub_ number", [](const Tensor& x) { x.sub_(1); }},
      {"mul_", [&](const Tensor& x) { x.mul_(other); }},
      {"mul_ number", [](const Tensor& x) { x.mul_(1); }},
      {"div_", [&](const Tensor& x) { x.div_(other); }},
      {"div_ number", [](const Tensor& x) { x.div_(1); }},
      {"+=", [&](const Tensor& x) { x += other; }},
      {"pow_", [](const Tensor& x) { x.pow_(2); }},
      {"neg_", [](const Tensor& x) { x.neg_(); }},
      {"abs_", [](const Tensor& x) { x.abs_(); }},
      {"exp_", [](const Tensor& x) { x.exp_(); }},
      {"log_", [](const Tensor& x) { x.log_(); }},
      {"sqrt_", [](const Tensor& x) { x.sqrt_(); }},
      {"rsqrt_", [](const Tensor& x) { x.rsqrt_(); }},
      {"reciprocal_", [](const Tensor& x) { x.reciprocal_(); }},
      {"square_", [](const Tensor& x) { x.square_(); }},
      {"sin_", [](const Tensor& x) { x.sin_(); }},
      {"cos_", [](const Tensor& x) { x.cos_(); }},
      {"tanh_", [](const Tensor& x) { x.tanh_(); }},
      {"sigmoid_", [](const Tensor& x) { x.sigmoid_(); }},
      {"relu_", [](const Tensor& x) { x.relu_(); }},
      {"floor_", [](const Tensor& x) { x.floor_(); }},
      {"ceil_", [](const Tensor& x) { x.ceil_(); }},
      {"round_", [](const Tensor& x) { x.round_(); }},
      {"trunc_", [](const Tensor& x) { x.trunc_(); }},
      {"clamp_", [](const Tensor& x) { x.clamp_(0, 1); }},
      {"masked_fill_", [&](const Tensor& x) { x.masked_fill_(mask, 3); }},
      {"scatter_", [&](const Tensor& x) { x.scatter_(1, index, other); }},
      {"scatter_add_", [&](const Tensor& x) { x.scatter_add_(1, index, other); }},
      {"uniform_", [](const Tensor& x) { x.uniform_(); }},
      {"normal_", [](const Tensor& x) { x.normal_(); }}};
  for (const Write& write : writes) {
    SCOPED_TRACE(write.name);
    const Tensor x = ones({2, 3}, {.device = place});
    const Tensor view = x.view({3, 2});
    const EventLog log(world.allocator());
    write.make(x);
    EXPECT_EQ(view.version(), 1U);
    EXPECT_TRUE(log.lines().empty()) << "wrote in place, and yet allocated";
  }
}

// What a block of a network keeps: x for the weight's gradient, the output of ReLU, which also is
// the next layer's input, and of a residual sum nothing. As PyTorch, which keeps the same.
TEST(Storage, AChainOfLinearReluAndResidualSavesWhatIsNeededOnce) {
  const World world = tensor_backends()[0].make();
  const Place place(world.allocator());
  TestTape tape;
  CountingTape counting(tape);
  const TapeScope scope(counting);
  constexpr std::int64_t kBatch = 64;
  constexpr std::int64_t kWidth = 32;
  constexpr int kDepth = 4;
  const std::uint64_t activation = kBatch * kWidth * 4;
  const std::uint64_t weight = kWidth * kWidth * 4;
  Tensor x = rand({kBatch, kWidth}, {.device = place});
  for (int i = 0; i < kDepth; ++i) {
    const Tensor w = rand({kWidth, kWidth}, {.device = place}).requires_grad_();
    const Tensor b = rand({kWidth}, {.device = place}).requires_grad_();
    x = relu(linear(x, w, b)) + x;
  }
  // The input of each layer, the output of each ReLU, the weights themselves where a layer before
  // wants a gradient; not a byte for the bias or the sum.
  EXPECT_EQ(counting.saved_bytes,
            kDepth * activation + kDepth * activation + (kDepth - 1) * weight);
}

}  // namespace
}  // namespace headroom::testing
