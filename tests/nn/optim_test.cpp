// Optimisers: PyTorch's arithmetic by hand, what they allocate, and what is done to gradients.
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/nn.h"

#include "tests/autograd/world.h"

namespace headroom {
namespace {

using memory::Category;
using ::testing::HasSubstr;
using testing::message_of;
using testing::World;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor leaf_of(const World& world, const std::vector<double>& values, DType dtype = kF64) {
  const memory::CategoryScope category(Category::kParameter);
  const auto size = static_cast<std::int64_t>(values.size());
  return from(values, {size}, {.dtype = dtype, .device = world.allocator()}).requires_grad_();
}

void give_grad(const World& world, const Tensor& leaf, const std::vector<double>& values) {
  const auto size = static_cast<std::int64_t>(values.size());
  leaf.set_grad(from(values, {size}, {.dtype = leaf.dtype(), .device = world.allocator()}));
}

// --- Arithmetic
// -----------------------------------------------------------------------------------

struct SgdCase {
  const char* name;
  nn::SgdOptions options;
};

TEST(Sgd, EachOptionIsPyTorchs) {
  const World world;
  const std::vector<SgdCase> cases = {
      {"plain", {.lr = 0.1}},
      {"decay", {.lr = 0.1, .weight_decay = 0.3}},
      {"momentum", {.lr = 0.1, .momentum = 0.9}},
      {"dampening", {.lr = 0.1, .momentum = 0.9, .dampening = 0.5}},
      {"nesterov", {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.2, .nesterov = true}},
  };
  for (const SgdCase& one : cases) {
    const nn::SgdOptions& o = one.options;
    const Tensor w = leaf_of(world, {2, -1});
    nn::Sgd sgd({w}, o);
    std::vector<double> p = {2, -1};
    std::vector<double> buffer(2);
    for (int step = 1; step <= 3; ++step) {
      give_grad(world, w, {0.5 * step, -1});
      sgd.step();
      for (std::size_t i = 0; i < 2; ++i) {
        double d = (i == 0 ? 0.5 * step : -1) + o.weight_decay * p[i];
        buffer[i] = step == 1 ? d : o.momentum * buffer[i] + (1 - o.dampening) * d;
        if (o.momentum != 0) d = o.nesterov ? d + o.momentum * buffer[i] : buffer[i];
        p[i] -= o.lr * d;
        EXPECT_NEAR(w.to_doubles()[i], p[i], 1e-15) << one.name << " step " << step;
      }
    }
  }
}

TEST(Adam, DecayIsPartOfTheGradientInAdamAndNotInAdamW) {
  const World world;
  for (const bool is_decoupled : {false, true}) {
    const Tensor w = leaf_of(world, {2});
    const nn::AdamOptions o{.lr = 0.1, .weight_decay = 0.3};
    std::unique_ptr<nn::Optimizer> adam = std::make_unique<nn::Adam>(std::vector{w}, o);
    if (is_decoupled) adam = std::make_unique<nn::AdamW>(std::vector{w}, o);
    double p = 2;
    double m = 0;
    double v = 0;
    for (int step = 1; step <= 3; ++step) {
      give_grad(world, w, {0.5 * step});
      adam->step();
      if (is_decoupled) p *= 1 - 0.1 * 0.3;
      const double d = 0.5 * step + (is_decoupled ? 0 : 0.3 * p);
      m = m + (1 - 0.9) * (d - m);
      v = 0.999 * v + (1 - 0.999) * d * d;
      const double root = std::sqrt(v) / std::sqrt(1 - std::pow(0.999, step));
      p -= 0.1 / (1 - std::pow(0.9, step)) * m / (root + 1e-8);
      EXPECT_NEAR(w.item<double>(), p, 1e-14) << adam->name() << " step " << step;
    }
  }
}

// Sizes around blocks and pieces, types side by side in one list: as each alone.
TEST(Optimizer, AListIsAsEachAlone) {
  const World world;
  std::vector<Tensor> together;
  std::vector<Tensor> alone;
  manual_seed(5);
  for (const DType dtype : {kF32, kBF16, kF16, kF64}) {
    for (const std::int64_t size : {0, 1, 1023, 1025, 32768, 40000}) {
      const Tensor start = randn({size}, {.dtype = dtype, .device = world.allocator()});
      const Tensor grad = randn({size}, {.dtype = dtype, .device = world.allocator()});
      for (auto* list : {&together, &alone}) {
        list->push_back(start.clone().requires_grad_());
        list->back().set_grad(grad);
      }
    }
  }
  nn::Adam adam(together);
  adam.step();
  adam.step();
  for (std::size_t i = 0; i < alone.size(); ++i) {
    nn::Adam own({alone[i]});
    own.step();
    own.step();
    EXPECT_EQ(together[i].to_doubles(), alone[i].to_doubles()) << i;
  }
}

TEST(Optimizer, AParameterWithoutAGradientStaysAndItsStepsAreItsOwn) {
  const World world;
  const Tensor a = leaf_of(world, {1});
  const Tensor b = leaf_of(world, {1});
  nn::Adam adam({a, b}, {.lr = 0.1});
  give_grad(world, a, {1});
  adam.step();
  EXPECT_EQ(b.item<double>(), 1);
  EXPECT_EQ(adam.state_bytes(), 16U);
  give_grad(world, b, {1});
  a.set_grad({});
  adam.step();
  EXPECT_EQ(b.item<double>(), a.item<double>());  // both took their first step
}

TEST(Optimizer, WrongOptionsAreRefused) {
  const World world;
  const Tensor w = leaf_of(world, {1});
  const std::vector<std::pair<const char*, std::function<void()>>> cases = {
      {"sgd: lr must be at least 0, not -1", [&] { nn::Sgd({w}, {.lr = -1}); }},
      {"sgd: nesterov wants a momentum", [&] { nn::Sgd({w}, {.nesterov = true}); }},
      {"adam: beta1 must be at least 0 and below 1, not 1", [&] { nn::Adam({w}, {.beta1 = 1}); }},
      {"adamw: eps must be at least 0", [&] { nn::AdamW({w}, {.eps = -1}); }},
      {"adam: parameter 0 is not a leaf that needs a gradient", [&] { nn::Adam({w.detach()}); }},
      {"adam: parameter 1 is in the list already",
       [&] {
         nn::Adam({w, w});
       }},
      {"there is no optimiser 'adama'; there are sgd, momentum, adam and adamw",
       [&] { (void)nn::make_optimizer("adama", {w}); }},
  };
  for (const auto& [message, action] : cases) EXPECT_THAT(message_of(action), HasSubstr(message));
}

// --- Memory
// ---------------------------------------------------------------------------------------

class SmallNet : public nn::Module {
 public:
  explicit SmallNet(const World& world)
      : fc1(64, 128, true, world.f32()), fc2(128, 10, true, world.f32()) {
    add("fc1", fc1);
    add("fc2", fc2);
  }
  Tensor forward(const Tensor& x) override { return fc2(relu(fc1(x))); }
  nn::Linear fc1;
  nn::Linear fc2;
};

// The state comes with the first step, the parameters' size each, and beside it the list, a
// learning rate and the counts of steps; a step makes nothing else.
TEST(Optimizer, StateIsAllThatAStepAllocates) {
  const std::vector<std::pair<const char*, int>> cases = {
      {"sgd", 0}, {"momentum", 1}, {"adam", 2}, {"adamw", 2}};
  for (const auto& [name, copies] : cases) {
    const World world(World::Kind::kMeta);
    SmallNet net(world);
    const auto optimizer = nn::make_optimizer(name, net.parameters());
    net(randn({16, 64}, world.f32())).sum().backward();
    const std::int64_t before = world.allocated_bytes();
    world.allocator().reset_peak_statistics();
    optimizer->step();
    const std::int64_t state = world.category_bytes(Category::kOptimizerState);
    EXPECT_EQ(optimizer->state_bytes(),
              static_cast<std::uint64_t>(net.num_parameters() * 4 * copies));
    EXPECT_EQ(world.allocated_bytes() - before, state) << name;
    EXPECT_EQ(world.peak_bytes() - before, state) << name;
    const std::int64_t allocations = world.allocations();
    optimizer->step();
    EXPECT_EQ(world.allocations(), allocations) << name;
  }
}

TEST(Optimizer, StateCarriesTheNameOfItsLayer) {
  const World world(World::Kind::kMeta);
  SmallNet net(world);
  nn::Adam adam(net.parameters());
  net(randn({16, 64}, world.f32())).sum().backward();
  testing::EventLog log(world.allocator());
  adam.step();
  std::vector<std::string> paths;
  for (const memory::Event& event : log.events()) {
    if (event.category == Category::kOptimizerState) {
      paths.push_back(memory::annotation_path(event.annotation));
    }
  }
  EXPECT_THAT(paths, ::testing::Contains("optimizer_step/fc1").Times(4));
  EXPECT_THAT(paths, ::testing::Contains("optimizer_step/fc2").Times(4));
}

TEST(Optimizer, ZeroGradDropsOrFills) {
  const World world;
  const Tensor w = leaf_of(world, {1, 2});
  nn::Sgd sgd({w});
  give_grad(world, w, {3, 4});
  sgd.zero_grad(/*set_to_none=*/false);
  EXPECT_EQ(w.grad().to_doubles(), (std::vector<double>{0, 0}));
  sgd.zero_grad();
  EXPECT_FALSE(w.grad().defined());
}

// A model that moves or changes its type takes its state along.
TEST(Optimizer, StateFollowsTheType) {
  const World world;
  SmallNet net(world);
  nn::Adam adam(net.parameters());
  net(randn({4, 64}, world.f32())).sum().backward();
  adam.step();
  const std::uint64_t before = adam.state_bytes();
  net.to(kBF16);
  adam.step();
  EXPECT_EQ(adam.state_bytes(), before / 2);
}

TEST(Optimizer, AThousandStepsAreFlatToTheByte) {
  const World world;
  SmallNet net(world);
  nn::AdamW adam(net.parameters());
  const Tensor x = randn({4, 64}, world.f32());
  const Tensor target = zeros({4}, {.dtype = kI64, .device = world.allocator()});
  std::int64_t bytes = 0;
  std::int64_t peak = 0;
  for (int i = 0; i < 1000; ++i) {
    adam.zero_grad();
    cross_entropy(net(x), target).backward();
    nn::clip_grad_norm_(adam.parameters(), 1);
    adam.step();
    if (i == 1) {
      bytes = world.allocated_bytes();
      peak = world.peak_bytes();
    }
  }
  EXPECT_EQ(world.allocated_bytes(), bytes);
  EXPECT_EQ(world.peak_bytes(), peak);
}

// Four micro-batches of 8 for one of 32: the same gradients, a quarter of the activations.
TEST(Accumulation, IsALargeBatchWithTheMemoryOfASmallOne) {
  const World world;
  SmallNet net(world);
  const Tensor x = randn({32, 64}, world.f32());
  const Tensor target = arange(32, {.dtype = kI64, .device = world.allocator()}).clamp_(0, 9);
  const auto run = [&](std::int64_t parts) {
    net.zero_grad(false);
    world.allocator().reset_peak_statistics();
    const std::int64_t before = world.allocated_bytes();
    double loss = 0;
    for (std::int64_t i = 0; i < parts; ++i) {
      const std::int64_t size = 32 / parts;
      const Tensor part =
          cross_entropy(net(x.narrow(0, i * size, size)), target.narrow(0, i * size, size)) /
          static_cast<double>(parts);
      part.backward();
      loss += part.item<double>();
    }
    return std::pair(loss, world.peak_bytes() - before);
  };
  net(x).sum().backward();  // gradients are there from now on
  const auto [whole, whole_peak] = run(1);
  std::vector<std::vector<double>> want;
  for (const Tensor& p : net.parameters()) want.push_back(p.grad().to_doubles());
  const auto [sum, parts_peak] = run(4);
  EXPECT_NEAR(sum, whole, 1e-6 * whole);
  for (std::size_t k = 0; k < want.size(); ++k) {
    const std::vector<double> got = net.parameters()[k].grad().to_doubles();
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[k][i], 1e-6);
  }
  net.zero_grad(false);
  world.allocator().reset_peak_statistics();
  const std::int64_t before = world.allocated_bytes();
  cross_entropy(net(x.narrow(0, 0, 8)), target.narrow(0, 0, 8)).backward();
  // What one micro-batch takes, and the number that its loss is divided into.
  EXPECT_LE(parts_peak, world.peak_bytes() - before + 1024);
  EXPECT_LT(parts_peak, whole_peak);
}

// --- Gradients
// ------------------------------------------------------------------------------------

TEST(ClipGradNorm, ScalesToTheBoundAndReturnsTheNorm) {
  const World world;
  const Tensor a = leaf_of(world, {0, 0}, kF32);
  const Tensor b = leaf_of(world, {0});
  const Tensor none = leaf_of(world, {0});
  const std::vector<Tensor> all = {a, b, none};
  const auto set = [&] {
    give_grad(world, a, {3, 0});
    give_grad(world, b, {4});
  };
  set();
  EXPECT_DOUBLE_EQ(nn::clip_grad_norm_(all, 10).item<double>(), 5);
  EXPECT_EQ(a.grad().to_doubles()[0], 3);
  EXPECT_DOUBLE_EQ(nn::clip_grad_norm_(all, 1).item<double>(), 5);
  EXPECT_NEAR(a.grad().to_doubles()[0], 0.6, 1e-6);
  EXPECT_NEAR(b.grad().to_doubles()[0], 0.8, 1e-6);
  EXPECT_THAT(message_of([&] { nn::clip_grad_norm_(all, -1); }), HasSubstr("at least 0"));
  EXPECT_EQ(nn::clip_grad_norm_({}, 1).item<double>(), 0);
}

// A partial sum in f64 for every 32,768 elements, the list, and the norm with the factor.
TEST(ClipGradNorm, NeedsNothingTheSizeOfTheModel) {
  for (const auto kind : {World::Kind::kReal, World::Kind::kMeta}) {
    const World world(kind);
    const Tensor w = randn({1 << 20}, world.f32(/*requires_grad=*/true));
    w.set_grad(ones({1 << 20}, world.f32()));
    world.allocator().reset_peak_statistics();
    const std::int64_t before = world.allocated_bytes();
    const Tensor norm = nn::clip_grad_norm_({{w}}, 1);
    EXPECT_EQ(norm.is_meta() ? 1024 : norm.item<double>(), 1024);
    EXPECT_EQ(world.peak_bytes() - before, 3 * 512);
  }
}

TEST(GradScaler, SkipsAStepThatIsNotFiniteAndBacksOff) {
  const World world;
  const Tensor w = leaf_of(world, {1});
  nn::Sgd sgd({w}, {.lr = 1});
  nn::GradScaler scaler({.scale = 1024, .growth_interval = 2});
  scaler.scale((w * 0.25).sum()).backward();
  EXPECT_EQ(w.grad().item<double>(), 256);
  scaler.step(sgd);
  EXPECT_FALSE(scaler.was_skipped());
  scaler.update();
  EXPECT_EQ(w.item<double>(), 0.75);
  for (const double bad : {kInfinity, -kInfinity, std::nan("")}) {
    give_grad(world, w, {bad});
    const double before = scaler.current_scale();
    scaler.step(sgd);
    EXPECT_TRUE(scaler.was_skipped());
    scaler.update();
    EXPECT_EQ(scaler.current_scale(), before / 2);
    EXPECT_EQ(w.item<double>(), 0.75);
  }
  for (const double scale : {128., 256., 256., 512.}) {
    give_grad(world, w, {0});
    scaler.step(sgd);
    EXPECT_FALSE(scaler.was_skipped());
    scaler.update();
    EXPECT_EQ(scaler.current_scale(), scale);
  }
}

TEST(GradScaler, UnscalesOnceForClipping) {
  const World world;
  const Tensor w = leaf_of(world, {1});
  nn::Sgd sgd({w}, {.lr = 1});
  nn::GradScaler scaler({.scale = 8});
  scaler.scale((w * 0.25).sum()).backward();
  scaler.unscale_(sgd);
  EXPECT_EQ(nn::clip_grad_norm_(sgd.parameters(), 1).item<double>(), 0.25);
  EXPECT_THAT(message_of([&] { scaler.unscale_(sgd); }), HasSubstr("since the last step"));
  scaler.step(sgd);
  EXPECT_FALSE(scaler.was_skipped());
  EXPECT_EQ(w.item<double>(), 0.75);
}

// Clipping, unscaling and skipping are decided on the device.
TEST(GradScaler, NobodyWaitsAndTheListIsUploadedOnce) {
  const World world;
  SmallNet net(world);
  nn::AdamW adam(net.parameters());
  nn::GradScaler scaler({.scale = 8});
  const device::Device& device = world.allocator().device();
  const Tensor x = randn({4, 64}, world.f32());
  const auto count = [&](device::Call call) { return device.calls(call); };
  const auto step = [&] {
    adam.zero_grad(/*set_to_none=*/false);
    scaler.scale(net(x).sum()).backward();
    scaler.unscale_(adam);
    const Tensor norm = adam.clip_grad_norm_(0.5);
    scaler.step(adam);
    scaler.update();
    return norm;
  };
  step();
  const auto waits = count(device::Call::kSynchronizeStream);
  const auto copies = count(device::Call::kCopyToDevice);
  step();
  const Tensor norm = step();
  EXPECT_EQ(count(device::Call::kSynchronizeStream), waits);
  EXPECT_EQ(count(device::Call::kCopyToDevice), copies);
  EXPECT_EQ(count(device::Call::kCopyToHost), 0U);
  EXPECT_GT(norm.item<double>(), 0.5);
  double squares = 0;
  for (const Tensor& p : net.parameters()) {
    for (const double g : p.grad().to_doubles()) squares += g * g;
  }
  EXPECT_NEAR(std::sqrt(squares), 0.5, 1e-5);
}

// Of two optimisers, the one with good gradients steps; the scale backs off all the same.
TEST(GradScaler, SkipsOnlyTheOptimizerWhoseGradientsAreBad) {
  const World world;
  const Tensor good = leaf_of(world, {1});
  const Tensor bad = leaf_of(world, {1});
  nn::Sgd first({good}, {.lr = 1});
  nn::Adam second({bad}, {.lr = 1});
  nn::GradScaler scaler({.scale = 4});
  (void)scaler.scale(good.sum());
  give_grad(world, good, {2});
  give_grad(world, bad, {kInfinity});
  scaler.step(second);
  EXPECT_TRUE(scaler.was_skipped());
  scaler.step(first);
  EXPECT_FALSE(scaler.was_skipped());
  scaler.update();
  EXPECT_EQ(scaler.current_scale(), 2);
  EXPECT_EQ(good.item<double>(), 0.5);
  EXPECT_EQ(bad.item<double>(), 1);
  // The skipped step was none: the next is the first, by which Adam moves by its learning rate.
  give_grad(world, bad, {1});
  second.step();
  EXPECT_NEAR(bad.item<double>(), 0, 1e-6);
}

// A learning rate is written to the device when it changed; a list that changed is uploaded again.
TEST(Optimizer, FollowsItsLearningRateAndItsList) {
  const World world;
  const Tensor a = leaf_of(world, {1});
  const Tensor b = leaf_of(world, {1});
  nn::Sgd sgd({a, b}, {.lr = 0.5});
  give_grad(world, a, {1});
  sgd.step();
  EXPECT_EQ(a.item<double>(), 0.5);
  sgd.set_lr(0.25);
  give_grad(world, b, {1});
  sgd.step();
  EXPECT_EQ(a.item<double>(), 0.25);
  EXPECT_EQ(b.item<double>(), 0.75);
  a.set_grad({});
  sgd.set_lr(0.125);
  sgd.write_lr();
  sgd.step();
  EXPECT_EQ(a.item<double>(), 0.25);
  EXPECT_EQ(b.item<double>(), 0.625);
}

// --- Schedules
// ------------------------------------------------------------------------------------

TEST(Schedule, EachRule) {
  const auto values = [](const nn::Schedule& schedule) {
    std::vector<double> out;
    for (int i = 0; i < 7; ++i) out.push_back(std::round(schedule.at(i) * 1e6) / 1e6);
    return out;
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(values(nn::Schedule::constant(2)), ElementsAre(2, 2, 2, 2, 2, 2, 2));
  EXPECT_THAT(values(nn::Schedule::step(1, 3, 0.1)), ElementsAre(1, 1, 1, 0.1, 0.1, 0.1, 0.01));
  EXPECT_THAT(values(nn::Schedule::cosine(1, 4, 0.5)),
              ElementsAre(1, 0.926777, 0.75, 0.573223, 0.5, 0.5, 0.5));
  EXPECT_THAT(values(nn::Schedule::cosine(1, 2).with_warmup(4)),
              ElementsAre(0.25, 0.5, 0.75, 1, 1, 0.5, 0));
  EXPECT_THAT(message_of([] { (void)nn::Schedule::cosine(1, 0); }), HasSubstr("at least 1 step"));
}

}  // namespace
}  // namespace headroom
