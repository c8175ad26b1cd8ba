// Training programs people write, and what PyTorch 2.11 on an H200 reports after each of their
// steps: never more is allocated here.
//
// PyTorch's figures have the workspaces of its libraries in them, which have no part in a program's
// need: 32 MiB for cuBLAS and 1 MiB for cuBLASLt in each thread that multiplies. The forward's
// thread has both as of its first linear layer (33 MiB); the backward's thread has cuBLAS's (65 MiB
// in all) and, once it has recomputed a forward, cuBLASLt's (66 MiB): for good, so the larger nets,
// which ran in the same process after the first checkpointed one, have it without checkpoints too.
// What is left without them is, step by step, the sum of the tensors that the program then holds.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/cpu/cpu_device.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/nn.h"

namespace headroom::nn {
namespace {

constexpr std::uint64_t kNoWorkspace = 0;
constexpr std::uint64_t kForwardWorkspace = 33_MiB;
constexpr std::uint64_t kBackwardWorkspace = 65_MiB;
constexpr std::uint64_t kRecomputeWorkspace = 66_MiB;

// What PyTorch printed.
struct Figure {
  std::uint64_t allocated;
  std::uint64_t peak;
  std::uint64_t workspaces;
};

// The optimiser's list, its learning rate and its counts of steps, a block each. PyTorch keeps them
// on the host, unless a step is to be captured: then a block for each parameter.
constexpr std::uint64_t kStepNumbers = 3 * 512;

// Reads the allocator where the program prints.
class Gauge {
 public:
  Gauge(device::Device& device, std::vector<Figure> figures)
      : allocator_(device, {.version = memory::kPyTorch211}), figures_(std::move(figures)) {}

  [[nodiscard]] TensorOptions options() { return {.device = allocator_}; }
  void print() {
    ASSERT_LT(next_, figures_.size());
    const Figure& figure = figures_[next_++];
    SCOPED_TRACE("figure " + std::to_string(next_));
    const memory::Statistics stats = allocator_.statistics();
    EXPECT_LE(static_cast<std::uint64_t>(stats.allocated_bytes.all.current),
              figure.allocated - figure.workspaces + kStepNumbers);
    EXPECT_LE(static_cast<std::uint64_t>(stats.allocated_bytes.all.peak),
              figure.peak - figure.workspaces + kStepNumbers);
  }
  [[nodiscard]] bool has_printed_all() const { return next_ == figures_.size(); }

 private:
  memory::CachingAllocator allocator_;
  std::vector<Figure> figures_;
  std::size_t next_ = 0;
};

void run_tracking_net(Gauge& gauge) {
  Sequential model;
  model.emplace<Linear>(1024, 2048, true, gauge.options());
  model.emplace<ReLU>();
  model.emplace<Linear>(2048, 2048, true, gauge.options());
  model.emplace<ReLU>();
  model.emplace<Linear>(2048, 10, true, gauge.options());
  gauge.print();
  const Tensor x = randn({256, 1024}, gauge.options());
  gauge.print();
  const Tensor y = model(x);
  gauge.print();
  const Tensor loss = y.sum();
  loss.backward();
  gauge.print();
}

class SeedBlock : public Module {
 public:
  SeedBlock(std::int64_t width, const TensorOptions& options) {
    net_.emplace<Linear>(width, width, true, options);
    net_.emplace<ReLU>();
    net_.emplace<Linear>(width, width, true, options);
    net_.emplace<ReLU>();
    add("net", net_);
  }
  Tensor forward(const Tensor& x) override { return net_(x) + x; }

 private:
  Sequential net_;
};

void run_deep_net(
    Gauge& gauge, std::int64_t width, int depth, std::int64_t batch, bool recomputes) {
  ModuleList blocks;
  for (int i = 0; i < depth; ++i) blocks.emplace<SeedBlock>(width, gauge.options());
  const Tensor x = randn({batch, width}, gauge.options());
  Tensor y = x;
  for (const auto& block : blocks) {
    const auto run = [&block](const Tensor& in) { return (*block)(in); };
    y = recomputes ? checkpoint(run, y) : run(y);
  }
  y.sum().backward();
  gauge.print();
}

void run_simple_nn(Gauge& gauge) {
  Linear fc1(100, 50, true, gauge.options());
  Linear fc2(50, 10, true, gauge.options());
  std::vector<Tensor> parameters = fc1.parameters();
  for (const Tensor& parameter : fc2.parameters()) parameters.push_back(parameter);
  Adam optimizer(parameters, {.lr = 0.001});
  // As the program writes it: in one expression, what fc1 gave would live as long as the whole.
  const auto model = [&](Tensor x) {
    x = fc1(x);
    x = relu(x);
    return fc2(x);
  };
  TensorOptions classes = gauge.options();
  classes.dtype = DType::kI64;
  const Tensor data = randn({64, 100}, gauge.options());
  const Tensor target = randint(0, 10, {64}, classes);
  gauge.print();
  const Tensor output = model(data);
  const Tensor loss = cross_entropy(output, target);
  gauge.print();
  loss.backward();
  optimizer.step();
  optimizer.zero_grad();
  gauge.print();
  const Tensor data2 = randn({64, 100}, gauge.options());
  const Tensor output2 = model(data2);
  const Tensor loss2 = cross_entropy(output2, target);
  loss2.backward();
  optimizer.step();
  optimizer.zero_grad();
  gauge.print();
  gauge.print();  // after empty_cache(), which frees no tensor
}

struct TrainingProgram {
  const char* name;
  bool is_large;  // more than a gigabyte: on meta alone
  std::function<void(Gauge&)> run;
  std::vector<Figure> figures;
};

std::function<void(Gauge&)> deep_net(std::int64_t width,
                                     int depth,
                                     std::int64_t batch,
                                     bool again) {
  return [=](Gauge& gauge) { run_deep_net(gauge, width, depth, batch, again); };
}

const std::vector<TrainingProgram>& training_programs() {
  static const std::vector<TrainingProgram> kTrainingPrograms{
      {"Linear 1024, 2048, 2048, 10 at batch 256",
       false,
       run_tracking_net,
       {{25264640, 25264640, kNoWorkspace},
        {26313216, 26313216, kNoWorkspace},
        {65120768, 67207680, kForwardWorkspace},
        {119746048, 121843712, kBackwardWorkspace}}},
      {"DeepNet(512, 20), batch 128",
       false,
       deep_net(512, 20, 128, false),
       {{152731648, 152994816, kBackwardWorkspace}}},
      {"DeepNet(512, 20), batch 128, checkpointed",
       false,
       deep_net(512, 20, 128, true),
       {{153780224, 154043392, kRecomputeWorkspace}}},
      {"DeepNet(512, 20), batch 16384",
       true,
       deep_net(512, 20, 16384, false),
       {{220364800, 2259766784, kRecomputeWorkspace}}},
      {"DeepNet(512, 20), batch 16384, checkpointed",
       true,
       deep_net(512, 20, 16384, true),
       {{220364800, 986799616, kRecomputeWorkspace}}},
      {"DeepNet(1024, 64), batch 8192",
       true,
       deep_net(1024, 64, 8192, false),
       {{1211105280, 7187469824, kRecomputeWorkspace}}},
      {"DeepNet(1024, 64), batch 8192, checkpointed",
       true,
       deep_net(1024, 64, 8192, true),
       {{1211105280, 2968008192, kRecomputeWorkspace}}},
      {"SimpleNN with Adam",
       false,
       run_simple_nn,
       {{49664, 49664, kNoWorkspace},
        {34671616, 34678272, kForwardWorkspace},
        {68257280, 68304384, kBackwardWorkspace},
        {68285952, 68333056, kBackwardWorkspace},
        {68285952, 68333056, kBackwardWorkspace}}}};
  return kTrainingPrograms;
}

void expect_no_more_than_pytorch(device::Device& device, const TrainingProgram& program) {
  SCOPED_TRACE(program.name);
  Gauge gauge(device, program.figures);
  program.run(gauge);
  EXPECT_TRUE(gauge.has_printed_all());
}

TEST(SeedTraining, AllocatesNoMoreThanPyTorchOnMeta) {
  const auto card = device::MetaDevice::create({.capacity_bytes = 150'109'880'320});
  for (const TrainingProgram& program : training_programs()) {
    expect_no_more_than_pytorch(*card, program);
  }
}

TEST(SeedTraining, AllocatesNoMoreThanPyTorchOnTheProcessor) {
  const auto card = device::CpuDevice::create({.capacity_bytes = 1_GiB});
  for (const TrainingProgram& program : training_programs()) {
    if (!program.is_large) expect_no_more_than_pytorch(*card, program);
  }
}

}  // namespace
}  // namespace headroom::nn
