// Names, modes and moves of modules.
#include <map>

#include <gtest/gtest.h>

#include "headroom/nn.h"

#include "tests/autograd/world.h"

namespace headroom {
namespace {

using testing::EventLog;
using testing::message_of;
using testing::World;

class Mlp : public nn::Module {
 public:
  explicit Mlp(const TensorOptions& options = {})
      : fc1_(4, 6, true, options), norm_(6, {}, options), fc2_(6, 3, false, options) {
    add("fc1", fc1_);
    add("norm", norm_);
    add("fc2", fc2_);
  }
  Tensor forward(const Tensor& x) override { return fc2_(relu(norm_(fc1_(x)))); }

 private:
  nn::Linear fc1_;
  nn::LayerNorm norm_;
  nn::Linear fc2_;
};

class Tower : public nn::Module {
 public:
  Tower() {
    add("stem", stem_);
    add("blocks", blocks_);
    for (int i = 0; i < 2; ++i) blocks_.emplace<Mlp>();
    add_buffer("steps", steps_);
  }
  Tensor forward(const Tensor& x) override {
    Tensor out = stem_(x);
    for (const auto& block : blocks_) (void)(*block)(out);
    return out;
  }

 private:
  nn::Linear stem_{4, 4};
  nn::ModuleList blocks_{};
  Tensor steps_ = zeros({}, {.dtype = kI64});
};

std::vector<std::string> names_of(const std::vector<nn::NamedTensor>& tensors) {
  std::vector<std::string> out;
  for (const auto& named : tensors) out.push_back(named.first);
  return out;
}

TEST(Module, NamesAreThePathToATensor) {
  const Tower tower;
  EXPECT_EQ(names_of(tower.named_parameters()),
            (std::vector<std::string>{"stem.weight",
                                      "stem.bias",
                                      "blocks.0.fc1.weight",
                                      "blocks.0.fc1.bias",
                                      "blocks.0.norm.weight",
                                      "blocks.0.norm.bias",
                                      "blocks.0.fc2.weight",
                                      "blocks.1.fc1.weight",
                                      "blocks.1.fc1.bias",
                                      "blocks.1.norm.weight",
                                      "blocks.1.norm.bias",
                                      "blocks.1.fc2.weight"}));
  EXPECT_EQ(names_of(tower.named_buffers()), std::vector<std::string>{"steps"});
  EXPECT_EQ(tower.num_parameters(), 20 + 2 * (30 + 12 + 18));
}

TEST(Module, ATensorWithTwoNamesComesOnce) {
  struct Tied : nn::Module {
    Tied() {
      add("in", in);
      out.weight = in.weight;
      add("out", out);
    }
    nn::Embedding in{5, 3};
    nn::Linear out{3, 5, false};
  } const tied;
  EXPECT_EQ(names_of(tied.named_parameters()), std::vector<std::string>{"in.weight"});
}

TEST(Module, NamesThatCannotWorkAreRefused) {
  struct Open : nn::Module {
    using Module::add;
    using Module::add_parameter;
  };
  Open module;
  nn::Identity part;
  nn::Identity other;
  module.add("part", part);
  EXPECT_EQ(message_of([&] { module.add("part", other); }), "nn: \"part\" is there already");
  EXPECT_EQ(message_of([&] { module.add("a.b", other); }),
            "nn: \"a.b\" is no name: it is empty or has a dot");
  EXPECT_EQ(message_of([&] { module.add("", other); }),
            "nn: \"\" is no name: it is empty or has a dot");
  EXPECT_EQ(message_of([&] { module.add("again", part); }),
            "nn: what is added as \"again\" is a part of another module, as \"part\"");
  EXPECT_EQ(message_of([&] { (void)module(zeros({1})); }),
            "nn: this module has no forward of one tensor");
}

TEST(Module, TrainAndEvalReachEveryPart) {
  nn::Sequential net;
  auto& inner = net.emplace<nn::Sequential>();
  auto& drop = inner.emplace<nn::Dropout>(0.5);
  EXPECT_TRUE(drop.is_training());
  net.eval();
  EXPECT_FALSE(drop.is_training());
  const Tensor x = ones({100});
  EXPECT_TRUE(equal(net(x), x));
  net.train();
  EXPECT_FALSE(equal(net(x), x));
}

TEST(Module, WhatALayerAllocatesHasItsName) {
  const World world;
  std::map<std::string, int> paths;
  nn::Sequential net;
  net.emplace<Mlp>(world.f32());
  auto& list = net.emplace<nn::Sequential>();
  list.emplace<nn::Linear>(3, 2, true, world.f32());
  const Tensor x = ones({2, 4}, world.f32());
  const EventLog log(world.allocator());
  const Tensor y = net(x);
  for (const memory::Event& event : log.events()) {
    if (event.action == memory::Action::kAlloc) ++paths[memory::annotation_path(event.annotation)];
  }
  EXPECT_EQ(paths["0/fc1"], 1);
  EXPECT_EQ(paths["0/fc2"], 1);
  EXPECT_EQ(paths["0"], 1) << "relu, which is no layer";
  EXPECT_EQ(paths["1/0"], 1);
}

TEST(Module, PartsOfAListHaveItsNameToo) {
  World world;
  Tower tower;
  tower.to(world.allocator());
  const Tensor x = ones({2, 4}, world.f32());
  std::map<std::string, int> paths;
  const EventLog log(world.allocator());
  (void)tower(x);
  for (const memory::Event& event : log.events()) {
    ++paths[memory::annotation_path(event.annotation)];
  }
  EXPECT_GT(paths["blocks.1/fc2"], 0);
}

TEST(Module, ParametersAreCountedAsSuch) {
  const World world;
  const Mlp model(world.f32());
  EXPECT_EQ(world.category_bytes(memory::Category::kParameter), world.allocated_bytes());
  EXPECT_GT(world.allocated_bytes(), 0);
}

// --- Moves --------------------------------------------------------------------------------------

TEST(ModuleTo, HandlesSeeTheirTensorsMove) {
  const World from;
  const World to;
  Mlp model(from.f32());
  const std::vector<Tensor> held = model.parameters();  // as an optimiser has them
  const std::vector<double> before = held[0].detach().to_doubles();
  sum(model(ones({2, 4}, from.f32()))).backward();
  const std::vector<double> gradient = held[0].grad().to_doubles();

  model.to(to.allocator());
  EXPECT_EQ(from.allocated_bytes(), 0) << "nothing stays behind";
  EXPECT_EQ(&held[0].storage().allocator(), &to.allocator());
  EXPECT_TRUE(held[0].is_same(model.parameters()[0]));
  EXPECT_EQ(held[0].detach().to_doubles(), before);
  EXPECT_EQ(held[0].grad().to_doubles(), gradient);
  EXPECT_EQ(to.category_bytes(memory::Category::kParameter) +
                to.category_bytes(memory::Category::kGradient),
            to.allocated_bytes());

  sum(model(ones({2, 4}, to.f32()))).backward();
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    EXPECT_NEAR(held[0].grad().to_doubles()[i], 2 * gradient[i], 1e-5);
  }
}

TEST(ModuleTo, AnotherTypeIsForFloatingTensorsOnly) {
  nn::BatchNorm2d norm(3);
  const Tensor weight = norm.weight;
  norm.to(kF64);
  EXPECT_EQ(weight.dtype(), kF64);
  EXPECT_TRUE(weight.requires_grad());
  EXPECT_EQ(norm.running_var.dtype(), kF64);
  EXPECT_EQ(norm.num_batches_tracked.dtype(), kI64);
  const Tensor x = randn({2, 3, 4, 4}, {.dtype = kF64});
  sum(norm(x)).backward();
  EXPECT_EQ(weight.grad().dtype(), kF64);
}

TEST(ModuleTo, MetaTakesEverythingWithoutElements) {
  const World meta(World::Kind::kMeta);
  Mlp model;
  model.to(meta.allocator());
  const Tensor y = model(ones({2, 4}, meta.f32()));
  EXPECT_TRUE(y.is_meta());
  sum(y).backward();
  EXPECT_TRUE(model.parameters()[0].grad().is_meta());
}

TEST(ModuleZeroGrad, DropsThemOrFillsThem) {
  Mlp model;
  sum(model(ones({2, 4}))).backward();
  const Tensor weight = model.parameters()[0];
  const Tensor grad = weight.grad();
  model.zero_grad(/*set_to_none=*/false);
  EXPECT_TRUE(weight.grad().is_same(grad));
  EXPECT_EQ(max(abs(grad)).item<double>(), 0);
  model.zero_grad();
  EXPECT_FALSE(weight.grad().defined());
}

}  // namespace
}  // namespace headroom
