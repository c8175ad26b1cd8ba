// Claims about whole models: what is activations, what mixed precision halves, how large they are.
#include <functional>
#include <string>
#include <vector>

#include "headroom/autograd.h"
#include "headroom/nn/containers.h"
#include "headroom/nn/layers/attention.h"
#include "headroom/nn/optim/optimizer.h"
#include "headroom/train/models.h"

#include "benchmarks/claims/claims_parts.h"

namespace headroom::cli {
namespace {

// A model with its inputs and its loss, on a card.
struct ModelCase {
  std::unique_ptr<nn::Module> model;
  std::function<Tensor()> loss;
};

ModelCase resnet_case(const char* name, std::int64_t batch, ClaimCard& card) {
  auto model = train::make_model({.name = name}, {.device = card.allocator()});
  const Tensor x = randn({batch, 3, 224, 224}, {.device = card.allocator()});
  const Tensor y = randint(0, 1000, {batch}, {.dtype = DType::kI64, .device = card.allocator()});
  nn::Module& net = *model;
  return {std::move(model), [&net, x, y] { return cross_entropy(net(x), y); }};
}

ModelCase squares_case(std::unique_ptr<nn::Module> model, const Tensor& x) {
  nn::Module& net = *model;
  return {std::move(model), [&net, x] { return square(net(x).to(DType::kF32)).mean(); }};
}

ModelCase transformer_case(ClaimCard& card) {
  const TensorOptions options{.device = card.allocator()};
  auto model = std::make_unique<nn::Sequential>();
  for (int i = 0; i < 12; ++i) {
    model->emplace<nn::TransformerBlock>(768, 12, nn::AttentionConfig{}, options);
  }
  return squares_case(std::move(model), randn({8, 512, 768}, options));
}

ModelCase deepnet_case(std::int64_t batch, ClaimCard& card) {
  const TensorOptions options{.device = card.allocator()};
  return squares_case(train::make_model({.name = "deepnet", .depth = 20, .width = 512}, options),
                      randn({batch, 512}, options));
}

// The models of record_claims.py, by its names.
ModelCase case_named(const std::string& name, ClaimCard& card) {
  if (name.starts_with("resnet50")) return resnet_case("resnet50", 32, card);
  if (name.starts_with("12 transformer")) return transformer_case(card);
  return deepnet_case(name.ends_with("16384") ? 16384 : 128, card);
}

struct ModelRun {
  std::uint64_t weights = 0;
  std::uint64_t kept = 0;
  std::uint64_t peak = 0;
};

// The second of two steps of SGD with momentum.
ModelRun run_case(const nlohmann::json& recorded) {
  ClaimCard card;
  const ModelCase subject = case_named(recorded["model"], card);
  nn::Sgd optimizer(subject.model->parameters(), {.lr = 1e-4, .momentum = 0.9});
  ModelRun run;
  for (const Tensor& parameter : subject.model->parameters()) run.weights += parameter.size_bytes();
  for (int i = 0; i < 2; ++i) {
    card.reset_peak();
    const std::uint64_t before = card.allocated();
    Tensor loss;
    {
      const AutocastScope autocast(DType::kBF16, recorded["precision"] == "bf16");
      loss = subject.loss();
    }
    run.kept = card.allocated() - before;
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    run.peak = card.peak();
  }
  return run;
}

struct MeasuredModel {
  nlohmann::json recorded;
  ModelRun run;
};

std::vector<MeasuredModel> measure_models() {
  std::vector<MeasuredModel> out;
  for (const nlohmann::json& recorded : pytorch_claims()["models"]) {
    out.push_back({recorded, run_case(recorded)});
  }
  return out;
}

const MeasuredModel& find_case(const std::vector<MeasuredModel>& models,
                               std::string_view name,
                               std::string_view precision) {
  for (const MeasuredModel& model : models) {
    if (model.recorded["model"].get<std::string>().starts_with(name) &&
        model.recorded["precision"] == precision) {
      return model;
    }
  }
  throw Error("claims/pytorch.json has no " + std::string(name));
}

Claim claim_resnet(const std::vector<MeasuredModel>& models) {
  const MeasuredModel& model = find_case(models, "resnet50", "f32");
  return {
      .says = "ResNet-50 at batch 32: activations use about 6 GB, parameters about 100 MB",
      .source = "003",
      .verdict = fmt::format(
          "Half of it. Parameters are right; a forward keeps {:.2f} GB here and {:.2f} GB in "
          "PyTorch, and the whole peak, with gradients and momentum, is {:.2f} and {:.2f} GB.",
          static_cast<double>(model.run.kept) / 1e9,
          model.recorded["kept_after_forward"].get<double>() / 1e9,
          static_cast<double>(model.run.peak) / 1e9,
          model.recorded["peak"].get<double>() / 1e9),
      .rows = {bytes_row("parameters", model.run.weights, model.recorded["weights"]),
               bytes_row("kept by forward", model.run.kept, model.recorded["kept_after_forward"]),
               bytes_row("peak of a step", model.run.peak, model.recorded["peak"])},
      .command = "headroom plan resnet50 --batch 32 --optimizer momentum"};
}

Claim claim_mixed(const std::vector<MeasuredModel>& models) {
  Claim claim{.says = "Mixed precision halves the activations",
              .source = "003",
              .verdict =
                  "Nearly, where activations are most of it: 53 to 60 % stay, since what "
                  "losses and norms keep is f32 still. At a small batch it costs memory: "
                  "the weights' copies, 2 bytes for each, stay as long as the graph.",
              .command = "build/examples/example_mixed_precision"};
  for (const MeasuredModel& model : models) {
    claim.rows.push_back(bytes_row(fmt::format("{}: kept by forward, {}",
                                               model.recorded["model"].get<std::string>(),
                                               model.recorded["precision"].get<std::string>()),
                                   model.run.kept,
                                   model.recorded["kept_after_forward"]));
  }
  return claim;
}

Claim claim_ratio(const std::vector<MeasuredModel>& models) {
  Claim claim{.says = "Activations use 10 to 100 times more memory than the weights",
              .source = "003",
              .verdict = "It depends on the batch: the one grows with it, the other does not.",
              .command = "headroom plan resnet50 --batch 32"};
  for (const MeasuredModel& model : models) {
    if (model.recorded["precision"] != "f32") continue;
    claim.rows.push_back(
        {fmt::format("{}: times the weights", model.recorded["model"].get<std::string>()),
         fmt::format("{:.1f}", share(model.run.kept, model.run.weights)),
         fmt::format("{:.1f}",
                     model.recorded["kept_after_forward"].get<double>() /
                         model.recorded["weights"].get<double>())});
  }
  return claim;
}

Claim claim_formula() {
  constexpr std::int64_t kBatch = 16384;
  constexpr std::int64_t kWidth = 512;
  constexpr std::int64_t kDepth = 20;
  ClaimCard card;
  const ModelCase subject = deepnet_case(kBatch, card);
  nn::Adam optimizer(subject.model->parameters());
  for (int i = 0; i < 2; ++i) {
    card.reset_peak();
    subject.loss().backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  // A block keeps three tensors: its input, and what its two ReLUs gave.
  const auto fixed = 16 * static_cast<std::uint64_t>(subject.model->num_parameters());
  const std::uint64_t activations = std::uint64_t{kBatch} * kDepth * 3 * kWidth * 4;
  const double error = share(fixed + activations, card.peak()) - 1;
  return {.says = "Peak memory with Adam in FP32 is 16 P + B L a",
          .source = "003",
          .verdict = fmt::format(
              "A good estimate once a is known: {:+.1f} % for DeepNet(512, 20) at batch 16,384. It "
              "leaves out the input, what a backward has in hand, and that most gradients are not "
              "there yet when the activations are; `plan` runs the step itself and is exact.",
              100 * error),
          .rows = {{"16 P", format_count(fixed), ""},
                   {"B L a, with three tensors a block", format_count(activations), ""},
                   {"their sum", format_count(fixed + activations), ""},
                   {"peak measured", format_count(card.peak()), ""}},
          .command = "headroom plan deepnet --depth 20 --width 512 --batch 16384 --optimizer adam"};
}

Claim claim_empty_cache() {
  ClaimCard card;
  const ModelCase subject = resnet_case("resnet18", 32, card);
  const auto calls_of_a_step = [&](bool empties) {
    std::int64_t before = 0;
    for (int i = 0; i < 3; ++i) {
      before = card.allocator().statistics().num_device_alloc;
      subject.loss().backward();
      subject.model->zero_grad();
      if (empties) (void)card.allocator().empty_cache();
    }
    return static_cast<std::uint64_t>(card.allocator().statistics().num_device_alloc - before);
  };
  const std::uint64_t without = calls_of_a_step(false);
  const std::uint64_t with = calls_of_a_step(true);
  const nlohmann::json& recorded = pytorch_claims()["empty_cache"];
  return {
      .says = "empty_cache() in every batch helps to manage the available memory",
      .source = "002",
      .verdict = fmt::format(
          "It doubles the time of a step ({:.1f} to {:.1f} ms in PyTorch), for the next batch "
          "asks the device for the same memory again: {} segments a step here, against {}. The "
          "peak does not change.",
          recorded["step_ms"].get<double>(),
          recorded["emptying_ms"].get<double>(),
          with,
          without),
      .rows = {{"resnet18, batch 32: segments asked of the device, a step",
                format_count(without),
                ""},
               {"the same with empty_cache()", format_count(with), ""},
               {"time of a step", "", fmt::format("{:.1f} ms", recorded["step_ms"].get<double>())},
               {"the same with empty_cache()",
                "",
                fmt::format("{:.1f} ms", recorded["emptying_ms"].get<double>())}},
      .command = "build/examples/example_data_loading --times"};
}

Claim claim_gpt3() {
  ClaimCard card;
  // Heads cost no parameters.
  const TensorOptions options{.dtype = DType::kF16, .device = card.allocator()};
  std::uint64_t parameters = 0;
  {
    const nn::TransformerBlock block(12288, 96, {}, options);
    constexpr std::uint64_t kVocabulary = 50257, kPositions = 2048, kWidth = 12288, kBlocks = 96;
    parameters = kBlocks * static_cast<std::uint64_t>(block.num_parameters()) +
                 (kVocabulary + kPositions + 2) * kWidth;
  }
  return {.says = "GPT-3 requires 350 GB for its parameters in FP16",
          .source = "003",
          .verdict = fmt::format("True: {} parameters of 2 bytes are {:.0f} GB.",
                                 format_count(parameters),
                                 static_cast<double>(2 * parameters) / 1e9),
          .rows = {{"96 blocks of 12,288, tied vocabulary of 50,257, 2,048 positions",
                    format_count(2 * parameters),
                    ""}}};
}

Claim claim_mimo() {
  ClaimCard card;
  const auto bytes = [&](std::int64_t batch) {
    return empty({batch, 64, 16, 1000}, {.dtype = DType::kC64, .device = card.allocator()})
        .size_bytes();
  };
  return {.says = "A massive-MIMO channel (64 x 16 x 1,000, complex64) takes 1 GB at batch 128",
          .source = "003",
          .verdict = "True.",
          .rows = {{"a sample", format_count(bytes(1)), ""},
                   {"a batch of 128", format_count(bytes(128)), ""}},
          .command = "build/examples/example_massive_mimo"};
}

}  // namespace

void add_model_claims(std::vector<Claim>& out) {
  const std::vector<MeasuredModel> models = measure_models();
  out.push_back(claim_resnet(models));
  out.push_back(claim_mixed(models));
  out.push_back(claim_ratio(models));
  out.push_back(claim_formula());
  out.push_back(claim_empty_cache());
  out.push_back(claim_gpt3());
  out.push_back(claim_mimo());
}

}  // namespace headroom::cli
