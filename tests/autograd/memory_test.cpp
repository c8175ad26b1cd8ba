// Every byte of a step: what is saved, what a backward takes, whose it is.
#include <array>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/trace/record/history.h"

#include "tests/autograd/world.h"

namespace headroom {
namespace {

using memory::Category;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::EventLog;
using ::testing::IsSupersetOf;
using testing::World;

constexpr std::int64_t kBatch = 256;
constexpr std::int64_t kWidth = 64;
constexpr std::int64_t kActivation = kBatch * kWidth * 4;
constexpr std::int64_t kWeight = kWidth * kWidth * 4;
constexpr std::int64_t kScalar = 512;  // one number, as allocated

Tensor parameter(const World& world, const Shape& shape) {
  const memory::CategoryScope scope(Category::kParameter);
  return randn(shape, world.f32()).mul_(0.1).requires_grad_();
}

std::vector<Tensor> layers(const World& world, int count) {
  std::vector<Tensor> out;
  for (int i = 0; i < count; ++i) out.push_back(parameter(world, {kWidth, kWidth}));
  return out;
}

class Memory : public ::testing::Test {
 protected:
  World world_{World::Kind::kMeta};
  Tensor x_ = randn({kBatch, kWidth}, world_.f32());
  std::vector<Tensor> weights_ = layers(world_, 10);

  [[nodiscard]] Tensor chain() const {
    Tensor h = x_;
    for (const Tensor& w : weights_) h = relu(linear(h, w));
    return h.sum();
  }
};

// --- What is saved -------------------------------------------------------------------------------

// The output of relu is the next linear's input: one tensor a layer.
TEST_F(Memory, AChainSavesOneTensorALayer) {
  const Tensor loss = chain();
  EXPECT_EQ(world_.category_bytes(Category::kActivation), 10 * kActivation + kScalar);
}

// linear its input, relu its output, the sum nothing: what PyTorch saves.
TEST_F(Memory, AResidualChainSavesTwoTensorsALayer) {
  Tensor h = x_;
  for (const Tensor& w : weights_) h = h + relu(linear(h, w));
  const Tensor loss = h.sum();
  h = {};
  // The first input is data; the last sum is not saved.
  EXPECT_EQ(world_.category_bytes(Category::kActivation), (10 + 9) * kActivation + kScalar);
}

// In place, relu writes over the linear's output: as much is saved, but the two are never there at
// once.
TEST_F(Memory, InPlaceSavesTheMoment) {
  const auto forward_peak = [&](bool in_place) {
    world_.allocator().reset_peak_statistics();
    const std::int64_t before = world_.allocated_bytes();
    Tensor h = x_;
    for (const Tensor& w : weights_) {
      const Tensor y = linear(h, w);
      h = in_place ? y.relu_() : relu(y);
    }
    return world_.peak_bytes() - before;
  };
  EXPECT_EQ(forward_peak(false), 11 * kActivation);
  EXPECT_EQ(forward_peak(true), 10 * kActivation);
}

TEST_F(Memory, MasksAreBits) {
  const Tensor y = x_ * weights_[0].sum();  // 512 bytes of its own, x_ saved
  const std::int64_t before = world_.allocated_bytes();
  const Tensor z = clamp(y, 0.0, 1.0);
  EXPECT_EQ(world_.allocated_bytes() - before, kActivation + kActivation / 32);
}

TEST_F(Memory, NothingIsSavedUnderNoGrad) {
  const NoGradScope no_grad;
  const Tensor loss = chain();
  EXPECT_EQ(world_.category_bytes(Category::kActivation), kScalar);
}

// --- What a backward takes -----------------------------------------------------------------------

TEST_F(Memory, PeakOfABackwardToTheByte) {
  const Tensor loss = chain();
  const std::int64_t before = world_.allocated_bytes();
  EXPECT_EQ(before, 10 * kWeight + kActivation + 10 * kActivation + kScalar);
  world_.allocator().reset_peak_statistics();
  loss.backward();
  // At the last linear: the last activation has gone, the gradients of its output, input and
  // weight are there.
  EXPECT_EQ(world_.peak_bytes(), before - kActivation + 2 * kActivation + kWeight);
  EXPECT_EQ(world_.allocated_bytes(), 20 * kWeight + kActivation + kScalar);
  EXPECT_EQ(world_.category_bytes(Category::kGradient), 10 * kWeight);
  EXPECT_EQ(world_.category_bytes(Category::kActivation), kScalar);
}

TEST_F(Memory, ARetainedGraphKeepsWhatItSaved) {
  const Tensor loss = chain();
  loss.backward({}, /*retain_graph=*/true);
  EXPECT_EQ(world_.category_bytes(Category::kActivation), 10 * kActivation + kScalar);
}

TEST_F(Memory, AccumulationMakesNoAllocation) {
  const Tensor x = parameter(world_, {kBatch, kWidth});
  const Tensor loss = (x * 1.0 + x * 2.0 + x * 3.0).sum();
  std::int64_t before = world_.allocations();
  loss.backward({}, /*retain_graph=*/true);
  // The 1 that it begins with, and one for each product: sums are made in place, and the leaf
  // keeps the buffer.
  EXPECT_EQ(world_.allocations() - before, 4);
  EXPECT_EQ(world_.category_bytes(Category::kGradient), kActivation);
  before = world_.allocations();
  loss.backward();
  EXPECT_EQ(world_.allocations() - before, 4);
  EXPECT_EQ(world_.category_bytes(Category::kGradient), kActivation);
}

// --- Never where somebody else looks -------------------------------------------------------------

TEST(MemoryAliases, GradientsThatAreOneBufferStaySeparate) {
  const World world;
  const Tensor a = ones({2}, world.f32(true));
  const Tensor b = ones({2}, world.f32(true));
  const Tensor given = from({5, 7}, world.f32());
  (a + b).backward(given, true);
  EXPECT_FALSE(a.grad().address() == b.grad().address());
  EXPECT_NE(a.grad().address(), given.address());
  (a + a).backward(given);
  EXPECT_THAT(a.grad().to_doubles(), ElementsAre(15, 21));
  EXPECT_THAT(b.grad().to_doubles(), ElementsAre(5, 7));
  EXPECT_THAT(given.to_doubles(), ElementsAre(5, 7));
}

TEST(MemoryAliases, WhatAHookKeepsIsNotWrittenTo) {
  const World world;
  const Tensor x = ones({2}, world.f32(true));
  const Tensor y = x * 2.0;
  std::vector<Tensor> kept;
  const auto keep = [&](const Tensor& grad) {
    kept.push_back(grad);
    return Tensor();
  };
  autograd::register_hook(x, keep);
  autograd::register_hook(y, keep);
  (y + x * 3.0).sum().backward();
  (y + x * 3.0).sum().backward();
  EXPECT_THAT(kept[0].to_doubles(), ElementsAre(1, 1));
  EXPECT_THAT(kept[1].to_doubles(), ElementsAre(5, 5));
  EXPECT_THAT(x.grad().to_doubles(), ElementsAre(10, 10));
}

TEST(MemoryAliases, AnExpandedGradientIsCopiedOnce) {
  const World world;
  const Tensor x = ones({2, 2}, world.f32(true));
  x.sum().backward();
  EXPECT_TRUE(x.grad().is_contiguous());
  x.sum().backward();
  EXPECT_THAT(x.grad().to_doubles(), ElementsAre(2, 2, 2, 2));
}

// --- Categories and phases -----------------------------------------------------------------------

struct Step {
  Tensor w1, w2, bias;
  std::vector<Tensor> momentum;
};

Step make_step(const World& world) {
  const memory::AnnotationScope model("model");
  return {.w1 = parameter(world, {32, 16}),
          .w2 = parameter(world, {10, 32}),
          .bias = parameter(world, {10}),
          .momentum = {}};
}

void run_step(const World& world, Step& step) {
  Tensor loss;
  {
    const memory::PhaseScope phase(memory::Phase::kForward);
    const Tensor x = rand({8, 16}, world.f32());
    const Tensor target = zeros({8}, {.dtype = DType::kI64, .device = world.allocator()});
    Tensor hidden;
    {
      const memory::AnnotationScope layer("layer1");
      hidden = relu(linear(x, step.w1));
    }
    const memory::AnnotationScope layer("layer2");
    loss = cross_entropy(softmax(linear(hidden, step.w2, step.bias), 1), target);
  }
  loss.backward();
  const memory::PhaseScope phase(memory::Phase::kOptimizerStep);
  const NoGradScope no_grad;
  const std::array parameters{step.w1, step.w2, step.bias};
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (step.momentum.size() <= i) {
      const memory::CategoryScope scope(Category::kOptimizerState);
      step.momentum.push_back(zeros_like(parameters[i]));
    }
    step.momentum[i].mul_(0.9).add_(parameters[i].grad());
    parameters[i].sub_(step.momentum[i], 0.1);
    parameters[i].set_grad({});
  }
}

// From the events alone, after each of them: no category goes below nothing, none is unknown, a
// free is booked where its allocation was, and the end is what the allocator says.
TEST(MemoryCategories, AreExactAfterEveryEvent) {
  const World world;
  const EventLog log(world.allocator());
  Step step = make_step(world);
  std::int64_t parameters = 0;
  for (int i = 0; i < 3; ++i) {
    run_step(world, step);
    parameters = world.category_bytes(Category::kParameter);
    EXPECT_EQ(parameters, 2048 + 1536 + 512);
    EXPECT_EQ(world.category_bytes(Category::kOptimizerState), parameters);
    for (const Category gone : {Category::kGradient,
                                Category::kActivation,
                                Category::kWorkspace,
                                Category::kData,
                                Category::kUnknown}) {
      EXPECT_EQ(world.category_bytes(gone), 0);
    }
  }
  std::map<Category, std::int64_t> live;
  std::map<Category, std::int64_t> most;
  std::map<memory::DeviceAddress, memory::Event> blocks;
  for (const memory::Event& event : log.events()) {
    const auto rounded = static_cast<std::int64_t>((event.size_bytes + 511) / 512 * 512);
    if (event.action == memory::Action::kAlloc) {
      EXPECT_NE(event.category, Category::kUnknown);
      live[event.category] += rounded;
      most[event.category] = std::max(most[event.category], live[event.category]);
      blocks[event.address] = event;
    } else if (event.action == memory::Action::kFreeCompleted) {
      EXPECT_EQ(event.category, blocks.at(event.address).category);
      live[event.category] -= rounded;
      EXPECT_GE(live[event.category], 0);
      blocks.erase(event.address);
    }
  }
  EXPECT_EQ(live[Category::kParameter], parameters);
  EXPECT_EQ(live[Category::kOptimizerState], parameters);
  EXPECT_EQ(live[Category::kGradient] + live[Category::kActivation] + live[Category::kData], 0);
  EXPECT_EQ(most[Category::kData], 512 + 512);
  EXPECT_EQ(most[Category::kOptimizerState], parameters);
}

// A small step, event by event.
TEST(MemoryCategories, AreWhatWeKnow) {
  const World world;
  const EventLog log(world.allocator());
  {
    const Tensor w = [&] {
      const memory::CategoryScope scope(Category::kParameter);
      const memory::AnnotationScope model("model");
      return zeros({256}, world.f32()).requires_grad_();
    }();
    Tensor loss;
    {
      const memory::PhaseScope phase(memory::Phase::kForward);
      const Tensor x = ones({256}, world.f32());
      const memory::AnnotationScope layer("layer1");
      loss = (x * w).sum();
    }
    loss.backward();
  }
  std::vector<std::string> lines;
  for (const std::string& line : log.lines()) {
    if (line.starts_with("alloc") || line.starts_with("free_completed")) lines.push_back(line);
  }
  EXPECT_THAT(lines,
              ElementsAre("alloc parameter 1024 at 0 for model",
                          "alloc data 1024 at 1 for forward",
                          "alloc activation 1024 at 2 for forward/layer1",
                          "alloc activation 4 at 3 for forward/layer1",
                          "free_completed activation 1024 at 2 for forward/layer1",
                          "alloc gradient 4 at 2 for backward",
                          "alloc gradient 1024 at 4 for backward/layer1",
                          "free_completed gradient 4 at 2 for backward",
                          "free_completed data 1024 at 1 for forward",
                          "free_completed activation 4 at 3 for forward/layer1",
                          "free_completed gradient 1024 at 4 for backward/layer1",
                          "free_completed parameter 1024 at 0 for model"));
}

TEST(MemoryPhases, AreInARecording) {
  const World world;
  trace::History history;
  history.attach(world.allocator());
  Step step = make_step(world);
  run_step(world, step);
  const trace::Trace trace = history.snapshot();
  std::vector<std::string> marks;
  for (const trace::Annotation& mark : trace.annotations) {
    marks.emplace_back(trace.strings[mark.name]);
  }
  EXPECT_THAT(
      marks,
      ElementsAre(
          "forward", "forward", "backward", "backward", "optimizer_step", "optimizer_step"));
  std::vector<std::string> paths;
  const trace::Events& events = trace.devices.at(0).events;
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (const auto path = trace.details[events[i].details].user_metadata) {
      paths.emplace_back(trace.strings[*path]);
    }
  }
  EXPECT_THAT(paths,
              IsSupersetOf({"model",
                            "forward",
                            "forward/layer1",
                            "forward/layer2",
                            "backward/layer1",
                            "backward/layer2",
                            "optimizer_step"}));
}

TEST(MemoryPhases, ABackwardInsideOneIsNotAnother) {
  const World world;
  const EventLog log(world.allocator());
  const Tensor x = ones({}, world.f32(true));
  const Tensor y = exp(x);
  const memory::AnnotationScope outer("train");
  const memory::PhaseScope phase(memory::Phase::kBackward);
  y.backward();
  EXPECT_THAT(log.lines(), Contains("alloc gradient 4 at 3 for train/backward"));
}

// --- meta ----------------------------------------------------------------------------------------

TEST(MemoryOnMeta, IsThatOfTheCpuEventForEvent) {
  const World cpu;
  const World meta(World::Kind::kMeta);
  const EventLog cpu_log(cpu.allocator());
  const EventLog meta_log(meta.allocator());
  for (const World* world : {&cpu, &meta}) {
    Step step = make_step(*world);
    for (int i = 0; i < 3; ++i) run_step(*world, step);
  }
  EXPECT_GT(cpu_log.lines().size(), 100U);
  EXPECT_EQ(cpu_log.lines(), meta_log.lines());
}

}  // namespace
}  // namespace headroom
