#include "cli/plan/plan_grid.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "headroom/base/bytes.h"

namespace headroom::cli {
namespace {

constexpr const char* kDepth = "depth";
constexpr const char* kSeq = "seq";
constexpr const char* kBatch = "batch";
constexpr const char* kPrecision = "precision";
constexpr const char* kOptimizer = "optimizer";
constexpr const char* kCheckpoint = "checkpoint";

// Around a value: halves below it and doubles above.
std::set<std::int64_t> around(std::int64_t value, int below, int above) {
  std::set<std::int64_t> out{value};
  for (int i = 1; i <= below; ++i) out.insert(std::max<std::int64_t>(value >> i, 1));
  for (int i = 1; i <= above && value <= std::numeric_limits<std::int64_t>::max() / 4; ++i) {
    value *= 2;
    out.insert(value);
  }
  return out;
}

PlanAxis axis(const char* name, const std::set<std::int64_t>& values, std::int64_t asked) {
  return {.name = name, .values = {values.begin(), values.end()}, .asked = asked};
}

bool is_of_words(const PlanAxis& axis) {
  return axis.name == kPrecision || axis.name == kOptimizer || axis.name == kCheckpoint;
}

bool is_adam(const std::string& optimizer) { return optimizer == "adam" || optimizer == "adamw"; }

}  // namespace

PlanGrid::PlanGrid(const train::Plan& plan) : asked_(plan.config) {
  const train::ModelInfo& info = train::find_model(asked_.model.name);
  adam_ = is_adam(asked_.optimizer)              ? asked_.optimizer
          : is_adam(std::string(info.optimizer)) ? std::string(info.optimizer)
                                                 : "adamw";
  const bool has_seq = info.seq > 0;  // one axis more; so fewer values of the others
  if (info.depth > 0) {
    const std::int64_t depth = asked_.model.depth.value_or(info.depth);
    axes_.push_back(axis(kDepth, around(depth, has_seq ? 1 : 2, 1), depth));
  }
  if (has_seq) {
    const std::int64_t seq = asked_.model.seq.value_or(info.seq);
    std::set<std::int64_t> values = around(std::max(seq, info.seq), 3, 0);
    values.insert(seq);
    axes_.push_back(axis(kSeq, values, seq));
  }
  std::set<std::int64_t> batches = around(asked_.batch, has_seq ? 2 : 3, has_seq ? 2 : 3);
  // Where micro-batches are asked for, a batch has at least one example for each.
  std::erase_if(batches, [&](std::int64_t b) { return b < asked_.accumulate; });
  axes_.push_back(axis(kBatch, batches, asked_.batch));
  const auto precision = static_cast<std::int64_t>(asked_.precision);
  axes_.push_back(axis(kPrecision,
                       {static_cast<std::int64_t>(train::Precision::kF32),
                        static_cast<std::int64_t>(train::Precision::kBF16),
                        precision},
                       precision));
  axes_.push_back(axis(kOptimizer,
                       {0, 1, 2},
                       is_adam(asked_.optimizer)        ? 2
                       : asked_.optimizer == "momentum" ? 1
                                                        : 0));
  axes_.push_back(axis(kCheckpoint, {0, 1, 2}, static_cast<std::int64_t>(asked_.checkpoint)));
  // A plan is run twice, the second time to prove its peak. A page of memory takes less time than
  // an event, but there may be far more of them.
  events_work_ = 2.0 * plan.steps * static_cast<double>(plan.timeline.size());
  pages_work_ = static_cast<double>(plan.peak_reserved) / static_cast<double>(8_MiB);
  while (work() > kMostWork && (drop_heaviest(false) || drop_heaviest(true))) {
  }
}

std::size_t PlanGrid::size() const noexcept {
  std::size_t out = 1;
  for (const PlanAxis& one : axes_) out *= one.values.size();
  return out;
}

train::StepConfig PlanGrid::config_at(std::size_t index) const {
  train::StepConfig out = asked_;
  for (auto one = axes_.rbegin(); one != axes_.rend(); ++one) {
    const std::int64_t value = one->values[index % one->values.size()];
    index /= one->values.size();
    if (one->name == kDepth) out.model.depth = value;
    if (one->name == kSeq) out.model.seq = value;
    if (one->name == kBatch) out.batch = value;
    if (one->name == kPrecision) out.precision = static_cast<train::Precision>(value);
    if (one->name == kOptimizer) out.optimizer = word(*one, value);
    if (one->name == kCheckpoint) out.checkpoint = static_cast<train::CheckpointMode>(value);
  }
  return out;
}

std::string PlanGrid::word(const PlanAxis& axis, std::int64_t value) const {
  if (axis.name == kPrecision) {
    return std::string(to_string(static_cast<train::Precision>(value)));
  }
  if (axis.name == kCheckpoint) {
    return std::string(to_string(static_cast<train::CheckpointMode>(value)));
  }
  if (axis.name == kOptimizer) return value == 0 ? "sgd" : value == 1 ? "momentum" : adam_;
  return std::to_string(value);
}

double PlanGrid::work() const { return work_without(nullptr, 0); }

// Events grow with the depth, pages with the sequence and the batch too.
double PlanGrid::work_without(const PlanAxis* left_out, std::int64_t value) const {
  double events = events_work_;
  double pages = pages_work_;
  for (const PlanAxis& one : axes_) {
    double count = 0;
    double sum = 0;
    for (const std::int64_t each : one.values) {
      if (&one == left_out && each == value) continue;
      count += 1;
      sum += static_cast<double>(each) / static_cast<double>(std::max<std::int64_t>(one.asked, 1));
    }
    events *= one.name == kDepth ? sum : count;
    pages *= is_of_words(one) ? count : sum;
  }
  return events + pages;
}

// The value whose plans take longest on average; where all take as long, one of the axis that has
// most. False where only what was asked for is left of these axes.
bool PlanGrid::drop_heaviest(bool of_words) {
  PlanAxis* heaviest = nullptr;
  std::int64_t dropped = 0;
  std::pair<double, std::size_t> most{};
  for (PlanAxis& one : axes_) {
    if (is_of_words(one) != of_words) continue;
    const double plans = static_cast<double>(size()) / static_cast<double>(one.values.size());
    for (const std::int64_t value : one.values) {
      if (value == one.asked) continue;
      const double each = std::round((work() - work_without(&one, value)) / plans);
      const std::pair weight{each, one.values.size()};
      if (heaviest != nullptr && weight <= most) continue;
      heaviest = &one;
      dropped = value;
      most = weight;
    }
  }
  if (heaviest == nullptr) return false;
  std::erase(heaviest->values, dropped);
  return true;
}

}  // namespace headroom::cli
