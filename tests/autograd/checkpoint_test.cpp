// A region computed again gives what it gave: each way that this can go wrong, and nesting.
#include <array>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/autograd/world.h"

namespace headroom {
namespace {

using ::testing::HasSubstr;
using testing::message_of;
using testing::World;

// The same computation with checkpoints and without.
using Checkpointed =
    std::function<Tensor(const std::function<Tensor(const Tensor&)>&, const Tensor&)>;

Tensor with_checkpoint(const std::function<Tensor(const Tensor&)>& f, const Tensor& x) {
  return checkpoint(f, x);
}
Tensor without_checkpoint(const std::function<Tensor(const Tensor&)>& f, const Tensor& x) {
  return f(x);
}

class CheckpointTest : public ::testing::Test {
 protected:
  // Loss and gradients of x and the weights.
  using Model = std::function<Tensor(const Checkpointed&, const Tensor&)>;
  std::vector<std::vector<double>> outcome(const Model& model, const Checkpointed& how) {
    manual_seed(3);
    for (const Tensor& leaf : {x_, w_, v_}) leaf.set_grad({});
    const Tensor loss = square(model(how, x_)).sum();
    loss.backward();
    std::vector<std::vector<double>> out{loss.to_doubles()};
    for (const Tensor& leaf : {x_, w_, v_}) {
      if (leaf.grad().defined()) out.push_back(leaf.grad().to_doubles());
    }
    // And the generator is where it would be.
    out.push_back(rand({3}, world_.f32()).to_doubles());
    return out;
  }

  World world_{};
  Tensor x_ = randn({6, 8}, world_.f32(/*requires_grad=*/true));
  Tensor w_ = randn({8, 8}, world_.f32(/*requires_grad=*/true));
  Tensor v_ = randn({8, 8}, world_.f32(/*requires_grad=*/true));
};

TEST_F(CheckpointTest, LossesAndGradientsAreTheSameBits) {
  const std::vector<std::pair<const char*, Model>> cases = {
      {"captured weights",
       [&](const Checkpointed& how, const Tensor& x) {
         return how([&](const Tensor& h) { return relu(linear(tanh(linear(h, w_)), v_)); }, x);
       }},
      {"dropout inside and after",
       [&](const Checkpointed& how, const Tensor& x) {
         const Tensor h = how(
             [&](const Tensor& in) {
               return dropout(tanh(linear(dropout(in, 0.3, true), w_)), 0.5, true);
             },
             x);
         return dropout(linear(h, v_), 0.2, true);
       }},
      {"nested, with dropout at each level",
       [&](const Checkpointed& how, const Tensor& x) {
         const auto inner = [&](const Tensor& in) {
           return tanh(linear(dropout(in, 0.4, true), w_)) * in;
         };
         const auto middle = [&, inner](const Tensor& in) {
           return sigmoid(how(inner, dropout(exp(in * 0.1), 0.1, true))) + how(inner, in);
         };
         const auto outer = [&, middle](const Tensor& in) {
           return dropout(how(middle, tanh(in)), 0.5, true) * linear(in, v_);
         };
         return how(outer, linear(x, v_));
       }},
      {"autocast",
       [&](const Checkpointed& how, const Tensor& x) {
         const AutocastScope autocast;
         const Tensor h =
             how([&](const Tensor& in) { return tanh(linear(gelu(linear(in, w_)), v_)); }, x);
         return how([&](const Tensor& in) { return linear(dropout(in, 0.5, true), w_); }, h);
       }},
      {"autocast nested",
       [&](const Checkpointed& how, const Tensor& x) {
         const AutocastScope autocast(kF16);
         const auto inner = [&](const Tensor& in) { return tanh(linear(in, w_)); };
         return how([&, inner](const Tensor& in) { return linear(how(inner, in), v_); }, x);
       }},
      {"writes in place to what the region made",
       [&](const Checkpointed& how, const Tensor& x) {
         return how(
                    [&](const Tensor& in) {
                      const Tensor h = linear(in, w_);
                      h.add_(1).relu_();
                      const Tensor sum = zeros({8}, world_.f32());
                      for (int i = 0; i < 3; ++i) sum.add_(h[i]);
                      return linear(h, v_) * sum;
                    },
                    x)
             .sum();
       }},
      {"a view as output and a branch that nobody uses",
       [&](const Checkpointed& how, const Tensor& x) {
         return how(
                    [&](const Tensor& in) {
                      const Tensor h = exp(linear(in, w_) * 0.1);
                      (void)tanh(h);
                      return h.t()[2];
                    },
                    x)
             .sum();
       }},
      {"an input used after",
       [&](const Checkpointed& how, const Tensor& x) {
         const Tensor h = tanh(x);
         return (how([&](const Tensor& in) { return square(tanh(in)); }, h) * h).sum();
       }},
      {"a leaf as input",
       [&](const Checkpointed& how, const Tensor& x) {
         return how([&](const Tensor& w) { return tanh(linear(x, w)); }, w_).sum();
       }},
  };
  for (const auto& [name, model] : cases) {
    EXPECT_EQ(outcome(model, with_checkpoint), outcome(model, without_checkpoint)) << name;
  }
}

TEST_F(CheckpointTest, SeveralInputsAndOneLeftOut) {
  const auto f = [](const Tensor& a, const Tensor& b, const Tensor& none) {
    EXPECT_FALSE(none.defined());
    return tanh(a) * exp(b * 0.1);
  };
  checkpoint(f, x_, x_ * 2, Tensor()).sum().backward();
  const std::vector<double> got = x_.grad().to_doubles();
  x_.set_grad({});
  f(x_, x_ * 2, Tensor()).sum().backward();
  EXPECT_EQ(x_.grad().to_doubles(), got);
}

TEST_F(CheckpointTest, WhereNothingIsRecordedItIsJustCalled) {
  const NoGradScope no_grad;
  EXPECT_FALSE(checkpoint([](const Tensor& x) { return tanh(x); }, x_).requires_grad());
}

// Trap 1: every generator goes back, and returns; also one that had not drawn before the region.
TEST_F(CheckpointTest, GeneratorsAreSetBackAndForth) {
  const Tensor y = checkpoint([](const Tensor& x) { return dropout(x, 0.5, true) * tanh(x); }, x_);
  Generator& generator = default_generator(x_.device());
  manual_seed(99);
  (void)rand({100}, world_.f32());
  const Generator::State before = generator.state();
  const std::vector<double> mask = (y.detach() / (x_ * tanh(x_)).detach()).to_doubles();
  y.sum().backward();
  EXPECT_EQ(generator.state(), before);
  const std::vector<double> grad = x_.grad().to_doubles();
  for (std::size_t i = 0; i < grad.size(); ++i) EXPECT_EQ(grad[i] == 0, mask[i] == 0) << i;
}

// Trap 2: what a second run would write twice is refused before it is written.
TEST_F(CheckpointTest, WritesToWhatWasThereBeforeAreRefused) {
  const Tensor count = zeros({1}, world_.f32());
  const Tensor h = x_ * 1;
  const std::vector<std::pair<const char*, std::function<Tensor(const Tensor&)>>> cases = {
      {"add_ writes to f32[1], which was made outside of the region",
       [&](const Tensor& in) {
         count.add_(1);
         return tanh(in);
       }},
      {"relu_ writes to f32[6, 8]", [](const Tensor& in) { return tanh(in.relu_()); }},
      {"mul_ writes to f32[8]",
       [](const Tensor& in) {
         in[0].mul_(2);
         return tanh(in);
       }},
  };
  for (const auto& [message, f] : cases) {
    EXPECT_THAT(message_of([&, f = f] { (void)checkpoint(f, h); }), HasSubstr(message));
  }
  EXPECT_EQ(count.item<double>(), 0);
  EXPECT_EQ(h.version(), 0U);
  count.add_(1);  // the guard has ended with the region
}

// What is written after it was saved, inside the region, is refused as it is outside of one.
TEST_F(CheckpointTest, AWriteToWhatTheRegionSavedIsRefusedInBackward) {
  const Tensor y = checkpoint(
      [](const Tensor& in) {
        const Tensor h = tanh(in);
        h.mul_(2);
        return exp(h);
      },
      x_);
  EXPECT_THAT(message_of([&] { y.sum().backward(); }),
              HasSubstr("tanh saved f32[6, 8] at version 0, but mul_ has since made it version 1"));
}

// Trap 3.
TEST_F(CheckpointTest, AnInputThatWasWrittenToIsRefused) {
  const Tensor h = x_.detach().clone();
  const Tensor y = checkpoint([&](const Tensor& in) { return tanh(linear(in, w_)); }, h);
  h.mul_(2);
  EXPECT_THAT(message_of([&] { y.sum().backward(); }),
              HasSubstr("checkpoint saved f32[6, 8] at version 0, but mul_ has since made it "
                        "version 1"));
}

TEST_F(CheckpointTest, ACapturedTensorThatWasWrittenToIsRefused) {
  const Tensor scale = x_.detach().clone();
  const Tensor y = checkpoint([&](const Tensor& in) { return in * scale; }, x_);
  scale.add_(1);
  EXPECT_THAT(message_of([&] { y.sum().backward(); }), HasSubstr("mul saved f32[6, 8]"));
}

// Trap 4.
TEST_F(CheckpointTest, TheSecondRunHasTheStateOfTheFirst) {
  struct Seen {
    bool grad;
    AutocastMode autocast;
    std::string path;
    memory::Category category;
    device::StreamId stream;
    bool again;
    bool operator==(const Seen&) const = default;
  };
  std::vector<Seen> seen;
  const Stream side(x_.device());
  Tensor y;
  {
    const AutocastScope autocast(kF16);
    const memory::AnnotationScope layer("layer1");
    const StreamScope stream(side);
    y = checkpoint(
        [&](const Tensor& in) {
          seen.push_back({GradMode::is_enabled(),
                          Autocast::mode(),
                          memory::annotation_path(memory::current_context().annotation),
                          memory::current_context().category,
                          current_stream_id(in.device()),
                          tensor::Region::is_again()});
          return tanh(linear(in, w_));
        },
        x_);
  }
  default_stream(x_.device()).wait(side);
  y.to(kF32).sum().backward();
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_TRUE(seen[1].again);
  seen[1].again = false;
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(seen[1].path, "layer1");
  EXPECT_EQ(seen[1].stream, side.id());
  EXPECT_EQ(current_stream_id(x_.device()), device::StreamId::kDefault);
  side.synchronize();
}

// Trap 5.
TEST_F(CheckpointTest, AnotherComputationIsNoticed) {
  int runs = 0;
  const std::vector<std::pair<const char*, std::function<Tensor(const Tensor&)>>> cases = {
      {"computed again, exp saved f32[6, 8] on cpu:9, where tanh saved f32[6, 8] on cpu:9 the "
       "first time, as tensor 0",
       [&](const Tensor& in) { return runs++ == 0 ? tanh(in) : exp(in); }},
      {"computed again, tanh saved f32[2, 8] on cpu:9, where tanh saved f32[6, 8] on cpu:9",
       [&](const Tensor& in) { return tanh(runs++ == 0 ? in : in.narrow(0, 0, 2)); }},
      {"tanh saved f64[6, 8] on cpu:9, where tanh saved f32[6, 8]",
       [&](const Tensor& in) { return tanh(runs++ == 0 ? in : in.to(kF64)).to(kF32); }},
      {"the region saved 1 tensors, where the first time it saved at least 2 and exp saved",
       [&](const Tensor& in) { return runs++ == 0 ? exp(tanh(in)) : tanh(in); }},
  };
  for (const auto& [message, f] : cases) {
    runs = 0;
    const Tensor y = checkpoint(f, x_);
    EXPECT_THAT(message_of([&] { y.sum().backward(); }), HasSubstr(message));
  }
}

// Trap 6: relu is the last that saves; what comes after it is not computed again.
TEST_F(CheckpointTest, TheSecondRunStopsWhenItHasAll) {
  std::vector<std::string> ran;
  const Tensor y = checkpoint(
      [&](const Tensor& in) {
        const Tensor h = relu(linear(in, w_));
        ran.emplace_back("relu");
        const Tensor sum = h + 1;
        ran.emplace_back("sum");
        return sum;
      },
      x_);
  y.sum().backward();
  EXPECT_THAT(ran, ::testing::ElementsAre("relu", "sum"));
}

// Trap 7.
TEST_F(CheckpointTest, RunningStatisticsMoveOnce) {
  const Tensor images = randn({4, 3, 2, 2}, world_.f32(/*requires_grad=*/true));
  const auto statistics = [&](const Checkpointed& how) {
    const Tensor mean = zeros({3}, world_.f32());
    const Tensor var = ones({3}, world_.f32());
    const Tensor y = how(
        [&](const Tensor& in) {
          return tanh(batch_norm(in, {}, {}, mean, var, {.training = true}));
        },
        images);
    images.set_grad({});
    square(y).sum().backward();
    return std::array{mean.to_doubles(), var.to_doubles(), images.grad().to_doubles()};
  };
  EXPECT_EQ(statistics(with_checkpoint), statistics(without_checkpoint));
}

// Trap 9, and what is kept: nothing but the input; again, one tensor after the other goes.
TEST_F(CheckpointTest, EachTensorGoesAsSoonAsItWasUsed) {
  const World meta(World::Kind::kMeta);
  const Tensor x = randn({1024, 64}, meta.f32(/*requires_grad=*/true));
  const std::int64_t one = 1024 * 64 * 4;
  const std::int64_t before = meta.allocated_bytes();
  std::vector<std::int64_t> live;
  Tensor y = checkpoint(
      [&](const Tensor& in) {
        Tensor h = in;
        for (int i = 0; i < 5; ++i) {
          h = tanh(h);
          autograd::register_hook(h, [&](const Tensor&) {
            live.push_back((meta.allocated_bytes() - before) / one);
            return Tensor();
          });
        }
        return h;
      },
      x);
  EXPECT_EQ(meta.allocated_bytes() - before, one);
  y.backward(ones({1024, 64}, meta.f32()));
  // y, its gradient and the caller's; and of what was saved again, what is still to be used.
  EXPECT_THAT(live, ::testing::ElementsAre(2, 3 + 4, 3 + 3, 3 + 2, 3 + 1));
  y = {};
  EXPECT_EQ(meta.allocated_bytes() - before, one);  // x's gradient
}

TEST_F(CheckpointTest, WhatABackwardDoesNotReachGoesWithIt) {
  const World meta(World::Kind::kMeta);
  const Tensor x = randn({1024, 64}, meta.f32(/*requires_grad=*/true));
  const Tensor other = randn({1024, 64}, meta.f32(/*requires_grad=*/true));
  const Tensor y =
      checkpoint([&](const Tensor& in) { return tanh(in) * tanh(tanh(other)); }, x).sum();
  const std::int64_t before = meta.allocated_bytes();
  const Tensor dx = autograd::grad({y}, {x}, {.retain_graph = true})[0];
  EXPECT_EQ(meta.allocated_bytes() - before, 1024 * 64 * 4);
}

TEST_F(CheckpointTest, BackwardTwiceComputesAgainTwice) {
  int runs = 0;
  const Tensor y = checkpoint(
      [&](const Tensor& in) {
        ++runs;
        return tanh(linear(in, w_));
      },
      x_);
  const Tensor loss = y.sum();
  loss.backward({}, /*retain_graph=*/true);
  const std::vector<double> once = w_.grad().to_doubles();
  loss.backward();
  EXPECT_EQ(runs, 3);
  const std::vector<double> twice = w_.grad().to_doubles();
  for (std::size_t i = 0; i < once.size(); ++i) EXPECT_EQ(twice[i], 2 * once[i]);
  EXPECT_THAT(message_of([&] { loss.backward(); }), HasSubstr("freed by an earlier backward"));
}

TEST_F(CheckpointTest, AFunctionThatFailsLeavesNothingBehind) {
  const std::int64_t before = world_.allocated_bytes();
  bool fails = true;
  const auto f = [&](const Tensor& in) {
    const Tensor h = tanh(linear(in, w_));
    if (fails) throw Error("no");
    return exp(h);
  };
  EXPECT_EQ(message_of([&] { (void)checkpoint(f, x_); }), "no");
  EXPECT_EQ(world_.allocated_bytes(), before);
  EXPECT_FALSE(tensor::Region::is_guarded());
  {
    // The second time only.
    fails = false;
    const Tensor loss = checkpoint(f, x_).sum();
    const std::int64_t after_forward = world_.allocated_bytes();
    const Generator::State state = default_generator(x_.device()).state();
    fails = true;
    EXPECT_EQ(message_of([&] { loss.backward(); }), "no");
    EXPECT_EQ(world_.allocated_bytes(), after_forward);
    EXPECT_EQ(default_generator(x_.device()).state(), state);
    EXPECT_FALSE(tensor::Region::is_again());
    fails = false;
    loss.backward();
  }
  EXPECT_TRUE(x_.grad().defined());
}

TEST_F(CheckpointTest, TheInputOfAnInnerRegionIsNotKept) {
  const World meta(World::Kind::kMeta);
  const Tensor x = randn({1024, 64}, meta.f32(/*requires_grad=*/true));
  const std::int64_t before = meta.allocated_bytes();
  const Tensor y = checkpoint(
      [](const Tensor& in) {
        return checkpoint([](const Tensor& h) { return tanh(exp(h)); }, tanh(tanh(in)));
      },
      x);
  EXPECT_EQ(meta.allocated_bytes() - before, 1024 * 64 * 4);
  y.sum().backward();
}

TEST_F(CheckpointTest, WrongNumbersOfSegmentsAreRefused) {
  const std::vector<std::function<Tensor(const Tensor&)>> stages(
      4, [](const Tensor& x) { return tanh(x); });
  for (const int segments : {0, -1, 5}) {
    EXPECT_THAT(message_of([&] { (void)checkpoint_sequential(stages, segments, x_); }),
                HasSubstr("1 to 4 segments are wanted, not " + std::to_string(segments)));
  }
  EXPECT_THAT(message_of([] { (void)sqrt_segments(0); }), HasSubstr("at least 1 stage"));
}

// --- The square root
// ------------------------------------------------------------------------------

struct ChainOutcome {
  std::int64_t peak = 0;   // above what was there before
  std::int64_t calls = 0;  // of layers
};

constexpr std::int64_t kChainBytes = 256 * 64 * 4;

ChainOutcome run_chain(int length, int segments) {
  const World meta(World::Kind::kMeta);
  Tensor x = randn({256, 64}, meta.f32(/*requires_grad=*/true));
  const Tensor seed = ones({256, 64}, meta.f32());
  const std::int64_t before = meta.allocated_bytes();
  ChainOutcome out;
  const std::vector<std::function<Tensor(const Tensor&)>> stages(static_cast<std::size_t>(length),
                                                                 [&](const Tensor& h) {
                                                                   ++out.calls;
                                                                   return tanh(h);
                                                                 });
  meta.allocator().reset_peak_statistics();
  checkpoint_sequential(stages, segments, x).backward(seed);
  out.peak = meta.peak_bytes() - before;
  return out;
}

// Of a chain of n layers, each of which saves its output of a bytes, with k = ceil(sqrt(n))
// segments: k - 1 inputs of segments (the first is the caller's), ceil(n / k) outputs of one, and
// two gradients while tanh is at work, which is what a layer needs by itself. So no more than
// (ceil(2 sqrt(n)) + 1) a, beside 2 sqrt(n) a of the theorem; and each layer at most twice.
TEST(CheckpointSequential, TheSquareRootHoldsItsBound) {
  for (int n = 4; n <= 400; n += n < 40 ? 1 : 13) {
    const ChainOutcome got = run_chain(n, sqrt_segments(n));
    const auto bound = static_cast<std::int64_t>(std::ceil(2 * std::sqrt(n)));
    EXPECT_LE(got.peak, (bound + 1) * kChainBytes) << n;
    EXPECT_LE(got.calls, 2 * n) << n;
  }
  const ChainOutcome whole = run_chain(400, sqrt_segments(400));
  EXPECT_EQ(whole.peak, 41 * kChainBytes);
  EXPECT_EQ(whole.calls, 780);  // the last segment is not computed again
  EXPECT_EQ(run_chain(400, 1).peak, 402 * kChainBytes);
}

}  // namespace
}  // namespace headroom
