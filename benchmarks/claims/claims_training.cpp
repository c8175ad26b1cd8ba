// Claims about a training step: gradients, activations, checkpointing.
#include <functional>
#include <string>
#include <vector>

#include "headroom/autograd.h"
#include "headroom/nn/optim/optimizer.h"
#include "headroom/train/models.h"

#include "benchmarks/claims/claims_parts.h"

namespace headroom::cli {
namespace {

std::unique_ptr<train::Model> claim_deepnet(std::int64_t width,
                                            std::int64_t depth,
                                            ClaimCard& card) {
  return train::make_model({.name = "deepnet", .depth = depth, .width = width},
                           {.device = card.allocator()});
}

Tensor claim_batch(std::int64_t batch, std::int64_t width, ClaimCard& card) {
  return randn({batch, width}, {.device = card.allocator()});
}

// A function, so that what leads to the loss is gone before its backward.
Tensor mean_square(nn::Module& model, const Tensor& x) { return square(model(x)).mean(); }

Claim claim_gradients() {
  ClaimCard card;
  const auto model = claim_deepnet(512, 4, card);
  nn::Sgd optimizer(model->parameters(), {.lr = 1e-3});
  const Tensor x = claim_batch(128, 512, card);
  const nlohmann::json& recorded = pytorch_claims()["gradients"];
  Claim claim{.says = "After backward and step, gradients are freed",
              .source = "004",
              .verdict =
                  "False. step() frees nothing; zero_grad() does, because it drops them. "
                  "zero_grad(set_to_none=False) fills them with zeros instead, and they "
                  "stay.",
              .command = "build/examples/example_training_loop"};
  claim.rows.push_back(bytes_row("allocated before", card.allocated(), recorded["before"]));
  mean_square(*model, x).backward();
  optimizer.step();
  claim.rows.push_back(bytes_row("after step()", card.allocated(), recorded["after_step"]));
  optimizer.zero_grad(false);
  claim.rows.push_back(
      bytes_row("after zero_grad(set_to_none=False)", card.allocated(), recorded["zeroed"]));
  optimizer.zero_grad();
  claim.rows.push_back(bytes_row("after zero_grad()", card.allocated(), recorded["dropped"]));
  return claim;
}

std::uint64_t accumulated_peak(int micro_batches) {
  ClaimCard card;
  const auto model = claim_deepnet(512, 4, card);
  const Tensor x = claim_batch(128, 512, card);
  for (int step = 0; step < 2; ++step) {
    for (int i = 0; i < micro_batches; ++i) {
      (mean_square(*model, x) / micro_batches).backward();
    }
    model->zero_grad();
  }
  return card.peak();
}

Claim claim_accumulation() {
  const nlohmann::json& recorded = pytorch_claims()["accumulation"];
  const std::uint64_t one = accumulated_peak(1);
  const std::uint64_t four = accumulated_peak(4);
  return {.says = "Accumulating gradients over batches significantly increases the footprint",
          .source = "000",
          .verdict = fmt::format(
              "Misleading. Gradients are added to in place, so there is one set of them however "
              "many batches there are; what grows ({} here) is that they are already there while "
              "the next forward runs. The text's own net, Linear(10, 1), takes 1 KiB more for 4 "
              "batches than for one in PyTorch. Beside one batch of the same effective size, "
              "accumulation is what saves memory.",
              format_bytes(four - one)),
          .rows = {bytes_row("DeepNet(512, 4), peak with one batch of 128", one, recorded["1"]),
                   bytes_row("the same with four", four, recorded["4"])},
          .command = "build/examples/example_gradient_accumulation"};
}

std::uint64_t relu_peak(bool in_place) {
  ClaimCard card;
  const Tensor x = randn({1 << 20}, {.device = card.allocator(), .requires_grad = true});
  const Tensor doubled = in_place ? (x * 2).relu_() : relu(x * 2);
  return card.peak();
}

Claim claim_in_place() {
  const nlohmann::json& recorded = pytorch_claims()["in_place"];
  return {.says = "An in-place operation saves one allocation",
          .source = "003",
          .verdict = "True: one tensor of the operand's size.",
          .rows = {bytes_row("peak of relu(x * 2)", relu_peak(false), recorded["relu"]),
                   bytes_row("peak of relu_(x * 2)", relu_peak(true), recorded["relu_"])},
          .command = "build/examples/example_in_place"};
}

std::uint64_t forward_peak(bool records) {
  ClaimCard card;
  const auto model = claim_deepnet(512, 20, card);
  const Tensor x = claim_batch(4096, 512, card);
  const std::uint64_t before = card.allocated();
  card.reset_peak();
  if (records) {
    (void)(*model)(x);
  } else {
    const NoGradScope no_grad;
    (void)(*model)(x);
  }
  return card.peak() - before;
}

Claim claim_no_grad() {
  const nlohmann::json& recorded = pytorch_claims()["no_grad"];
  const std::uint64_t with = forward_peak(true);
  const std::uint64_t without = forward_peak(false);
  return {.says = "no_grad substantially reduces the memory of inference",
          .source = "002",
          .verdict = fmt::format("True: by {} for a net of 20 blocks, since nothing is kept for a "
                                 "backward. It does not save gradients, which a forward never "
                                 "makes.",
                                 percent(1 - share(without, with))),
          .rows = {bytes_row("DeepNet(512, 20), batch 4,096: forward", with, recorded["recorded"]),
                   bytes_row("the same under no_grad", without, recorded["no_grad"])},
          .command = "build/examples/example_no_grad"};
}

struct CheckpointRun {
  std::uint64_t kept = 0;
  std::uint64_t peak = 0;
};

CheckpointRun checkpointed_step(const nlohmann::json& size) {
  ClaimCard card;
  const std::int64_t width = size["dim"];
  const auto model = claim_deepnet(width, size["depth"], card);
  const Tensor x = claim_batch(size["batch"], width, card);
  const std::uint64_t before = card.allocated();
  Tensor y = x;
  for (nn::Module* block : model->blocks()) {
    const auto run = [block](const Tensor& in) { return (*block)(in); };
    y = size["checkpointed"].get<bool>() ? checkpoint(run, y) : run(y);
  }
  const std::uint64_t kept = card.allocated() - before;
  y.sum().backward();
  return {.kept = kept, .peak = card.peak()};
}

std::string size_name(const nlohmann::json& size) {
  return fmt::format("DeepNet({}, {}), batch {}",
                     size["dim"].get<int>(),
                     size["depth"].get<int>(),
                     format_count(size["batch"].get<std::uint64_t>()));
}

// The change by checkpointing, from the size without it to the same size with it.
std::string change_of(const nlohmann::json& without, const nlohmann::json& with, const char* what) {
  return fmt::format("{:+.0f} %",
                     100 * (with[what].get<double>() / without[what].get<double>() - 1));
}

Claim claim_checkpointing() {
  const nlohmann::json& sizes = pytorch_claims()["checkpointing"];
  Claim claim{
      .says = "Checkpointing saves 60 % of the activations for a third more compute",
      .source = "003",
      .verdict = fmt::format(
          "True where activations are most of the memory: of three tensors a block keeps "
          "one, PyTorch's peak changes by {} and {}, its time by {} and {}, for a step then "
          "runs four passes' worth instead of three. At the text's own size, "
          "DeepNet(512, 20) at batch 128, weights and gradients are the peak: it does not "
          "fall, and the time changes by {}. (The 1 MiB by which it rises in PyTorch is a "
          "cuBLASLt workspace, taken when the backward's thread recomputes.)",
          change_of(sizes[2], sizes[3], "peak"),
          change_of(sizes[4], sizes[5], "peak"),
          change_of(sizes[2], sizes[3], "step_ms"),
          change_of(sizes[4], sizes[5], "step_ms"),
          change_of(sizes[0], sizes[1], "step_ms")),
      .command = "build/examples/example_checkpointing"};
  for (const nlohmann::json& size : sizes) {
    const CheckpointRun run = checkpointed_step(size);
    const std::string name =
        size_name(size) + (size["checkpointed"].get<bool>() ? ", checkpointed" : "");
    claim.rows.push_back(
        bytes_row(name + ": kept by forward", run.kept, size["kept_after_forward"]));
    claim.rows.push_back(bytes_row(name + ": peak", run.peak, size["peak"]));
    claim.rows.push_back(
        {name + ": time of a step", "", fmt::format("{:.1f} ms", size["step_ms"].get<double>())});
  }
  return claim;
}

// The peak of a chain of `n` stages with activations of 1 MiB, in activations.
std::uint64_t chain_peak(int n, int segments) {
  ClaimCard card;
  const std::vector<std::function<Tensor(const Tensor&)>> stages(
      static_cast<std::size_t>(n), [](const Tensor& x) { return tanh(x); });
  const Tensor x = randn({1 << 18}, {.device = card.allocator(), .requires_grad = true});
  const Tensor y = segments > 0 ? checkpoint_sequential(stages, segments, x)
                                : checkpoint_sequential(stages, 1, x);
  y.sum().backward();
  return card.peak() / 1_MiB;
}

Claim claim_sqrt_bound() {
  Claim claim{.says =
                  "With checkpoints every sqrt(n) of n layers, memory falls from n to 2 sqrt(n) "
                  "activations",
              .source = "003",
              .verdict =
                  "True, to within the two gradients that a backward has in hand and the "
                  "input's own, which no formula counts.",
              .command = "build/examples/example_memory_management"};
  for (const int n : {16, 100, 400}) {
    claim.rows.push_back({fmt::format("n = {}: peak in activations, without", n),
                          format_count(chain_peak(n, 0)),
                          ""});
    claim.rows.push_back({fmt::format("n = {}: with {} segments; 2 sqrt(n) is {}",
                                      n,
                                      sqrt_segments(n),
                                      2 * sqrt_segments(n)),
                          format_count(chain_peak(n, sqrt_segments(n))),
                          ""});
  }
  return claim;
}

// Bytes that a step adds to what is allocated, where its loss is added to a sum.
std::uint64_t loss_growth(bool has_backward, bool detaches) {
  ClaimCard card;
  const auto model = claim_deepnet(512, 4, card);
  const Tensor x = claim_batch(128, 512, card);
  Tensor total = zeros({}, {.device = card.allocator()});
  std::uint64_t before = 0;
  for (int i = 0; i < 3; ++i) {
    if (i == 1) before = card.allocated();
    const Tensor loss = mean_square(*model, x);
    if (has_backward) loss.backward();
    model->zero_grad();
    total = total + (detaches ? loss.detach() : loss);
  }
  return (card.allocated() - before) / 2;
}

Claim claim_loss_sum() {
  return {
      .says = "`total += loss` keeps every step's graph, and memory grows without bound",
      .source = "003",
      .verdict =
          "True for the graph; for the memory it depends. backward() frees what the ops "
          "have saved, so that in a training loop only the nodes stay, on the host. In "
          "an evaluation, which has no backward, every activation stays. item() and "
          "detach() cure both.",
      .rows = {{"growth a step: DeepNet(512, 4), batch 128, with backward()",
                format_count(loss_growth(true, false)),
                ""},
               {"without backward()", format_count(loss_growth(false, false)), ""},
               {"without backward(), loss.detach()", format_count(loss_growth(false, true)), ""}},
      .command = "build/examples/example_loss_leak"};
}

}  // namespace

void add_training_claims(std::vector<Claim>& out) {
  out.push_back(claim_gradients());
  out.push_back(claim_accumulation());
  out.push_back(claim_in_place());
  out.push_back(claim_no_grad());
  out.push_back(claim_checkpointing());
  out.push_back(claim_sqrt_bound());
  out.push_back(claim_loss_sum());
}

}  // namespace headroom::cli
