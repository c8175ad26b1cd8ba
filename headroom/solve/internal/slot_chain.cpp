#include "headroom/solve/internal/slot_chain.h"

#include <algorithm>
#include <numeric>

namespace headroom::solve::internal {
namespace {

// A budget is cut off well before this; so are sizes that can never fit in it.
constexpr std::uint64_t kMostSlots = 1U << 24U;

// Rounds the sizes of one kind, in the order of the stages.
class Rounder {
 public:
  Rounder(std::uint64_t unit, Rounding rounding) : unit_(unit), rounding_(rounding) {}

  int operator()(std::uint64_t bytes) {
    std::uint64_t slots = bytes / unit_;
    if (rounding_ == Rounding::kSpread) {
      // What was cut off so far is carried along: the sum never strays by more than half a slot.
      carried_ += bytes % unit_;
      if (carried_ >= unit_ - unit_ / 2) {
        carried_ -= std::min(carried_, unit_);
        ++slots;
      }
    }
    return static_cast<int>(std::min(slots, kMostSlots));
  }

 private:
  std::uint64_t unit_;
  Rounding rounding_;
  std::uint64_t carried_ = 0;
};

}  // namespace

SlotChain count_slots(const Chain& chain,
                      std::uint64_t budget_bytes,
                      std::uint64_t unit,
                      Rounding rounding) {
  SlotChain out;
  out.slots = static_cast<int>(std::min(budget_bytes / unit, kMostSlots));
  out.loss_cost = chain.loss_cost;
  out.loss_extra = Rounder(unit, Rounding::kDown)(chain.loss_extra_bytes);
  Rounder entering(unit, rounding);
  out.entering.push_back(entering(chain.input_bytes));
  std::vector<Rounder> saved;  // by the number of the option: those are alike along the chain
  for (const Stage& stage : chain.stages) {
    out.entering.push_back(entering(stage.output_bytes));
    Rounder single(unit, Rounding::kDown);  // alive in one step, so nothing adds up
    SlotStage one{.forward_extra = single(stage.forward_extra_bytes),
                  .forward_cost = stage.forward_cost};
    if (stage.input_trip_cost) {
      one.trip_cost = *stage.input_trip_cost;
      out.has_trips = true;
    }
    for (std::size_t k = 0; k < stage.options.size(); ++k) {
      if (k == saved.size()) saved.emplace_back(unit, rounding);
      const SaveOption& option = stage.options[k];
      one.options.push_back({.saved = saved[k](option.saved_bytes),
                             .forward_extra = single(option.forward_extra_bytes),
                             .backward_extra = single(option.backward_extra_bytes),
                             .cost = option.forward_cost + option.backward_cost});
    }
    out.stages.push_back(std::move(one));
  }
  return out;
}

std::uint64_t common_unit(const Chain& chain) {
  std::uint64_t unit = std::gcd(chain.input_bytes, chain.loss_extra_bytes);
  for (const Stage& stage : chain.stages) {
    unit = std::gcd(unit, std::gcd(stage.output_bytes, stage.forward_extra_bytes));
    for (const SaveOption& option : stage.options) {
      unit = std::gcd(unit, option.saved_bytes);
      unit = std::gcd(unit, std::gcd(option.forward_extra_bytes, option.backward_extra_bytes));
    }
  }
  return std::max<std::uint64_t>(unit, 1);
}

}  // namespace headroom::solve::internal
