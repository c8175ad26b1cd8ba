#include "tests/analysis/synthetic_training.h"

#include <algorithm>
#include <array>
#include <random>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "headroom/analysis/categories.h"
#include "headroom/base/bytes.h"

#include "tests/analysis/scripted_program.h"
#include "tests/analysis/stripped.h"

namespace headroom::analysis::testing {
namespace {

using memory::Category;

constexpr int kFirstLine = 100;

struct Layer {
  std::vector<std::uint64_t> parameters{};  // elements
  std::vector<std::uint64_t> buffers{};     // bytes
  std::uint64_t outputs = 0;                // elements an example
  std::uint64_t side_outputs = 0;           // bytes an example, kept too: means, masks
  bool is_kept = true;                      // its output, for the backward
};

class TrainingProgram {
 public:
  explicit TrainingProgram(const Habits& habits)
      : habits_(habits),
        random_(habits.seed),
        program_({.card_bytes = 512_GiB, .has_marks = false}) {
    make_layers();
  }

  trace::Trace run() {
    load();
    for (int i = 0; i < habits_.steps; ++i) step(i);
    finish();
    return program_.finish();
  }

 private:
  std::uint64_t pick(std::uint64_t low, std::uint64_t high) {
    return std::uniform_int_distribution<std::uint64_t>(low, high)(random_);
  }
  int take(Category category, std::uint64_t bytes) {
    return program_.alloc(std::max<std::uint64_t>(bytes, 1),
                          kFirstLine + static_cast<int>(category));
  }
  void keep(Category category, std::uint64_t bytes) { stays_.push_back(take(category, bytes)); }
  void drop(std::vector<int>& blocks) {
    program_.free(blocks);
    blocks.clear();
  }
  [[nodiscard]] std::uint64_t width() const {
    return habits_.precision == Precision::kMasterCopies ? 2 : 4;
  }
  [[nodiscard]] std::uint64_t activation_width() const {
    return habits_.precision == Precision::kFull ? 4 : 2;
  }
  [[nodiscard]] bool is_trained(std::size_t layer) const {
    return layer >= static_cast<std::size_t>(habits_.frozen_layers);
  }

  void make_layers() {
    std::uint64_t in = 32 * pick(2, 24);
    if (habits_.has_embedding)
      layers_.push_back({.parameters = {in * pick(2000, 9000)}, .outputs = in});
    while (layers_.size() < static_cast<std::size_t>(habits_.layers)) {
      const std::uint64_t out = pick(0, 2) == 0 ? in : 32 * pick(2, 24);
      layers_.push_back(
          {.parameters = {in * out, out}, .outputs = out, .is_kept = pick(0, 3) != 0});
      if (habits_.has_norms) {
        layers_.push_back({.parameters = {out, out},
                           .buffers = {out * 4, out * 4, 8},
                           .outputs = out,
                           .side_outputs = 8});
      }
      layers_.push_back({.outputs = out});
      in = out;
    }
    layers_.push_back({.parameters = {in * 10, 10}, .outputs = 10});
  }

  void load() {
    for (const Layer& layer : layers_) {
      for (const std::uint64_t n : layer.parameters) keep(Category::kParameter, n * width());
      for (const std::uint64_t n : layer.buffers) keep(Category::kParameter, n);
    }
    if (habits_.precision == Precision::kMasterCopies) make_copies(4);
    if (habits_.optimizer == Optimizer::kAdagrad) make_copies(4);
  }

  void make_copies(std::uint64_t bytes_each) {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      if (!is_trained(i)) continue;
      for (const std::uint64_t n : layers_[i].parameters) {
        keep(Category::kOptimizerState, n * bytes_each);
      }
    }
  }

  // --- A step
  // --------------------------------------------------------------------------------------

  void step(int number) {
    const bool is_last = number + 1 == habits_.steps;
    if (habits_.zero_grad == ZeroGrad::kBeforeForward) zero_grad();
    for (int micro = 0; micro < habits_.accumulate; ++micro) {
      batch_ = habits_.varies_batch ? pick(16, 512) : batch_ == 0 ? pick(16, 512) : batch_;
      const bool is_cut =
          is_last && micro + 1 == habits_.accumulate &&
          (habits_.end == End::kCutInForward || habits_.end == End::kFailedInForward);
      if (!forward(is_cut)) return;
      if (habits_.zero_grad == ZeroGrad::kBeforeBackward && micro == 0) zero_grad();
      backward();
    }
    update();
    if (habits_.zero_grad == ZeroGrad::kAfterStep) zero_grad();
    if (!habits_.keeps_batch) drop(held_);
    if (habits_.evaluates && number % 2 == 1) evaluate();
  }

  void load_batch() {
    std::vector<int> data{take(Category::kData, batch_ * layers_.front().outputs * 4),
                          take(Category::kData, batch_ * 8)};
    drop(held_);
    held_ = std::move(data);
  }

  void use_library(bool& is_used) {
    if (is_used || !habits_.has_workspaces) return;
    is_used = true;
    keep(Category::kWorkspace, 32_MiB);
  }

  std::vector<int> run_layer(const Layer& layer, bool keeps) {
    std::vector<int> kept;
    if (habits_.precision == Precision::kAutocast) {
      for (const std::uint64_t n : layer.parameters)
        kept.push_back(take(Category::kActivation, n * 2));
    }
    const std::uint64_t bytes = batch_ * layer.outputs * activation_width();
    const int output = take(Category::kActivation, bytes);
    if (layer.side_outputs != 0) {
      kept.push_back(take(Category::kActivation, batch_ * layer.side_outputs));
    }
    if (keeps && layer.is_kept) {
      kept.push_back(output);
    } else {
      passing_.push_back(output);
    }
    while (passing_.size() > 1) {
      program_.free(passing_.front());
      passing_.erase(passing_.begin());
    }
    if (!keeps) drop(kept);
    return kept;
  }

  // Whether it came to its end.
  bool forward(bool is_cut) {
    load_batch();
    kept_.assign(layers_.size(), {});
    const std::size_t stop = is_cut ? layers_.size() * 2 / 3 : layers_.size();
    for (std::size_t i = 0; i < stop; ++i) {
      use_library(has_forward_library_);
      const bool keeps = is_trained(i) && !habits_.recomputes;
      kept_[i] = run_layer(layers_[i], keeps);
      if (is_trained(i) && habits_.recomputes && i % 3 == 0) {
        kept_[i].push_back(
            take(Category::kActivation, batch_ * layers_[i].outputs * activation_width()));
      }
    }
    if (is_cut) return false;
    held_.push_back(take(Category::kActivation, 4));
    return true;
  }

  void backward() {
    std::vector<int> flow{take(Category::kGradient, 4)};
    drop(passing_);
    const auto pass_on = [&](std::uint64_t bytes) {
      const int next = take(Category::kGradient, bytes);
      drop(flow);
      flow.push_back(next);
    };
    pass_on(batch_ * layers_.back().outputs * activation_width());
    for (std::size_t i = layers_.size(); i-- > static_cast<std::size_t>(habits_.frozen_layers);) {
      if (habits_.recomputes && i % 3 == 2) recompute(i);
      use_library(has_backward_library_);
      std::vector<int> own;
      const bool needs_flow = i > static_cast<std::size_t>(habits_.frozen_layers);
      if (needs_flow)
        own.push_back(
            take(Category::kGradient, batch_ * layers_[i - 1].outputs * activation_width()));
      for (std::size_t k = 0; k < layers_[i].parameters.size(); ++k) add_gradient(i, k);
      drop(flow);
      flow = std::move(own);
      drop(kept_[i]);
    }
    drop(flow);
    for (auto& kept : kept_) drop(kept);
  }

  // The layers of a part, with their temporaries.
  void recompute(std::size_t last) {
    for (std::size_t i = last - 2; i <= last; ++i) {
      if (!is_trained(i)) continue;
      for (const int block : run_layer(layers_[i], true)) kept_[i].push_back(block);
    }
    drop(passing_);
  }

  void add_gradient(std::size_t layer, std::size_t number) {
    const std::uint64_t n = layers_[layer].parameters[number];
    std::vector<int> half;
    if (habits_.precision == Precision::kAutocast) half.push_back(take(Category::kGradient, n * 2));
    const int made = take(Category::kGradient, n * width());
    drop(half);
    int& slot = gradients_[layer * 8 + number];
    if (slot == 0) {
      slot = made + 1;
    } else {
      program_.free(made);
    }
  }

  void zero_grad() {
    if (!habits_.sets_to_none) return;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      for (std::size_t k = 0; k < layers_[i].parameters.size(); ++k) {
        int& slot = gradients_[i * 8 + k];
        if (slot != 0) program_.free(slot - 1);
        slot = 0;
      }
    }
  }

  // --- The optimiser
  // -------------------------------------------------------------------------------

  [[nodiscard]] int states_per_parameter() const {
    switch (habits_.optimizer) {
      case Optimizer::kMomentum:
        return 1;
      case Optimizer::kAdam:
        return 2;
      case Optimizer::kAmsgrad:
        return 3;
      default:
        return 0;
    }
  }

  void update() {
    if (habits_.clips_gradients) clip();
    for (std::size_t i = 0; i < layers_.size() && !has_state_; ++i) {
      if (!is_trained(i)) continue;
      for (const std::uint64_t n : layers_[i].parameters) make_state(n);
    }
    has_state_ = true;
    if (habits_.optimizer == Optimizer::kSgd || habits_.optimizer == Optimizer::kMomentum) return;
    std::vector<int> temporaries;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      if (!is_trained(i)) continue;
      for (const std::uint64_t n : layers_[i].parameters) {
        temporaries.push_back(take(Category::kActivation, n * 4));
        if (!habits_.has_foreach) drop(temporaries);
      }
    }
    drop(temporaries);
  }

  void make_state(std::uint64_t n) {
    if (habits_.has_step_counters) keep(Category::kOptimizerState, 4);
    for (int k = 0; k < states_per_parameter(); ++k) keep(Category::kOptimizerState, n * 4);
    if (habits_.optimizer == Optimizer::kAdafactor) {
      keep(Category::kOptimizerState, n / 32 * 4);
      keep(Category::kOptimizerState, 32 * 4);
    }
  }

  void clip() {
    std::vector<int> norms;
    for (const auto& [key, slot] : gradients_) {
      if (slot != 0) norms.push_back(take(Category::kActivation, 4));
    }
    const int all = take(Category::kActivation, 4 * norms.size());
    drop(norms);
    program_.free(all);
  }

  void evaluate() {
    std::vector<int> data{take(Category::kData, 64 * layers_.front().outputs * 4)};
    const std::uint64_t batch = std::exchange(batch_, 64);
    for (const Layer& layer : layers_) (void)run_layer(layer, false);
    batch_ = batch;
    drop(passing_);
    drop(data);
  }

  void finish() {
    if (habits_.end == End::kTornDown) {
      habits_.sets_to_none = true;
      zero_grad();
      drop(held_);
      drop(stays_);
    }
    if (habits_.end == End::kFailedInForward) {
      for (auto& kept : kept_) drop(kept);
      drop(passing_);
    }
  }

  Habits habits_;
  std::mt19937 random_;
  ScriptedProgram program_;
  std::vector<Layer> layers_;
  std::uint64_t batch_ = 0;
  std::vector<int> stays_;    // to the end
  std::vector<int> held_;     // the batch and the loss
  std::vector<int> passing_;  // the output that the next layer reads
  std::vector<std::vector<int>> kept_;
  std::unordered_map<std::size_t, int> gradients_;  // one more than the block's number
  bool has_state_ = false;
  bool has_forward_library_ = false;
  bool has_backward_library_ = false;
};

// The end of a history, as a ring keeps it.
trace::Trace without_front(trace::Trace trace, std::size_t events) {
  trace::Events kept;
  for (std::size_t i = events; i < trace.devices[0].events.size(); ++i) {
    kept.push_back(trace.devices[0].events[i]);
  }
  trace.devices[0].events = std::move(kept);
  return trace;
}

}  // namespace

Habits random_habits(unsigned seed) {
  std::mt19937 random(seed * 2654435761U + 17);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  const auto flip = [&](int one_in) { return pick(1, one_in) == 1; };
  Habits habits{.seed = seed, .layers = pick(3, 40), .steps = pick(2, 9)};
  habits.accumulate = flip(4) ? pick(2, 4) : 1;
  habits.optimizer = static_cast<Optimizer>(pick(0, 5));
  habits.zero_grad = static_cast<ZeroGrad>(pick(0, 2));
  habits.precision = static_cast<Precision>(std::max(0, pick(-2, 2)));
  habits.end = static_cast<End>(std::max(0, pick(-2, 3)));
  habits.sets_to_none = !flip(5);
  habits.has_foreach = !flip(3);
  habits.has_step_counters = flip(3);
  habits.has_norms = !flip(3);
  habits.has_embedding = flip(3);
  habits.has_workspaces = !flip(3);
  habits.clips_gradients = flip(3);
  habits.evaluates = flip(4);
  habits.varies_batch = flip(3);
  habits.keeps_batch = flip(3);
  habits.recomputes = flip(6);
  if (flip(5)) habits.frozen_layers = pick(1, habits.layers - 1);
  if (flip(5)) habits.cut_front = pick(40, 70) / 100.0;
  return habits;
}

std::string to_string(const Habits& h) {
  return fmt::format(
      "seed {} layers {} steps {} accumulate {} frozen {} optimizer {} zero_grad {} precision {} "
      "end {} "
      "none {} foreach {} counters {} norms {} embedding {} workspaces {} clips {} evaluates {} "
      "varies {} "
      "keeps {} recomputes {} cut {}",
      h.seed,
      h.layers,
      h.steps,
      h.accumulate,
      h.frozen_layers,
      static_cast<int>(h.optimizer),
      static_cast<int>(h.zero_grad),
      static_cast<int>(h.precision),
      static_cast<int>(h.end),
      h.sets_to_none,
      h.has_foreach,
      h.has_step_counters,
      h.has_norms,
      h.has_embedding,
      h.has_workspaces,
      h.clips_gradients,
      h.evaluates,
      h.varies_batch,
      h.keeps_batch,
      h.recomputes,
      h.cut_front);
}

trace::Trace run_training(const Habits& habits) { return TrainingProgram(habits).run(); }

memory::Category category_of_line(const trace::Trace& trace, trace::StackId stack) {
  const auto frames = trace.stacks.frame_ids(stack);
  if (frames.empty()) return Category::kUnknown;
  return static_cast<Category>(trace.stacks.frame(frames.back()).line - kFirstLine);
}

Score score_of(const Habits& habits) {
  const trace::Trace full = run_training(habits);
  const TraceIndex truth(full, full.devices[0]);
  const auto cut = static_cast<std::uint32_t>(habits.cut_front * truth.end_position());
  const trace::Trace bare = without_front(stripped(full), cut);
  const TraceIndex index(bare, bare.devices[0]);
  const Categories categories(index);
  const std::uint32_t peak = index.peaks().allocated.position;
  std::unordered_map<DeviceAddress, Category> at_peak;
  for (const std::uint32_t id : truth.allocated_at(peak + cut)) {
    const Lifetime& block = truth.lifetimes()[id];
    at_peak[block.address] = category_of_line(full, block.stack);
  }
  Score score;
  std::array<std::uint64_t, memory::kCategoryCount> is{};
  std::array<std::uint64_t, memory::kCategoryCount> said{};
  std::array<std::uint64_t, memory::kCategoryCount> sure{};
  for (const std::uint32_t id : index.allocated_at(peak)) {
    const Lifetime& block = index.lifetimes()[id];
    const auto category = static_cast<std::size_t>(categories.category_of(id));
    is[static_cast<std::size_t>(at_peak[block.address])] += block.requested_bytes;
    said[category] += block.requested_bytes;
    if (categories.certainty_of(id) > Certainty::kGuess) sure[category] += block.requested_bytes;
    score.bytes += block.requested_bytes;
  }
  for (std::size_t i = 0; i < is.size(); ++i) {
    score.right += std::min(is[i], said[i]);
    score.sure_and_wrong += sure[i] - std::min(is[i], sure[i]);
  }
  score.parameters = is[static_cast<std::size_t>(Category::kParameter)];
  score.said_parameters = said[static_cast<std::size_t>(Category::kParameter)];
  score.states = is[static_cast<std::size_t>(Category::kOptimizerState)];
  score.said_states = said[static_cast<std::size_t>(Category::kOptimizerState)];
  return score;
}

}  // namespace headroom::analysis::testing
