// Every schedule of a short chain, searched for the cheapest within a budget: a shortest path over
// what is live. It knows the steps of headroom/solve/schedule.h and no recurrence.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <queue>
#include <unordered_map>

#include "headroom/solve/chain.h"

namespace headroom::solve::testing {

enum class Allowed {
  kPersistent,  // what was kept stays until its backward
  kAnything,
};

class ChainSearch {
 public:
  ChainSearch(const Chain& chain, std::uint64_t budget_bytes, Allowed allowed)
      : chain_(chain), budget_(budget_bytes), allowed_(allowed), stages_(chain.stages.size()) {}

  // Nothing where no schedule fits.
  std::optional<double> least_cost() {
    State start;
    start.places[0].alone = true;
    start.gradient = stages_ + 1;
    start.head = stages_ + 1;
    reach(start, 0);
    while (!queue_.empty()) {
      const auto [cost, state] = queue_.top();
      queue_.pop();
      if (cost > best_.at(state.key())) continue;
      if (state.gradient == 0) return cost;
      expand(state, cost);
    }
    return std::nullopt;
  }

 private:
  static constexpr std::size_t kMostStages = 11;

  struct Place {
    bool alone = false;
    bool host = false;
    std::uint32_t saved = 0;  // 1 + the option of the stage before, of at most three
  };
  struct State {
    std::array<Place, kMostStages + 1> places{};
    std::size_t gradient = 0;  // where it is; past the end before the loss
    std::size_t head = 0;      // what the last step computed, if that was a plain forward

    [[nodiscard]] std::uint64_t key() const {
      std::uint64_t out = gradient << 4U | head;
      for (const Place& place : places) {
        out = out << 4U | (place.alone ? 8U : 0U) | (place.host ? 4U : 0U) | place.saved;
      }
      return out;
    }
  };
  struct Reached {
    double cost;
    State state;
    bool operator<(const Reached& other) const { return cost > other.cost; }
  };

  [[nodiscard]] std::uint64_t live(const State& state) const {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i <= stages_; ++i) {
      if (state.places[i].alone) sum += chain_.entering_bytes(i);
      if (state.places[i].saved > 0) {
        sum += chain_.stages[i - 1].options[state.places[i].saved - 1].saved_bytes;
      }
    }
    return state.gradient <= stages_ ? sum + chain_.entering_bytes(state.gradient) : sum;
  }

  void reach(const State& state, double cost) {
    const auto [at, is_new] = best_.try_emplace(state.key(), cost);
    if (!is_new && at->second <= cost) return;
    at->second = cost;
    queue_.push({cost, state});
  }

  void step(const State& from, State to, double cost, std::uint64_t more, double step_cost) {
    if (live(from) + more <= budget_) reach(to, cost + step_cost);
  }

  [[nodiscard]] static bool can_read(const Place& place) { return place.alone || place.saved > 0; }

  void expand(const State& from, double cost) {
    for (std::size_t i = 0; i < stages_; ++i) {
      forward(from, cost, i);
      trips(from, cost, i);
    }
    if (from.gradient > stages_ && can_read(from.places[stages_])) {
      State to = from;
      to.gradient = stages_;
      to.places[stages_].alone = false;
      to.head = stages_ + 1;
      step(from,
           to,
           cost,
           chain_.entering_bytes(stages_) + chain_.loss_extra_bytes,
           chain_.loss_cost);
    }
    if (from.gradient >= 1 && from.gradient <= stages_) backward(from, cost, from.gradient - 1);
  }

  void forward(const State& from, double cost, std::size_t i) {
    const Stage& stage = chain_.stages[i];
    if (!can_read(from.places[i]) || can_read(from.places[i + 1])) return;
    if (i >= from.gradient) return;
    State keeps = from;
    keeps.places[i + 1].alone = true;
    keeps.head = i + 1;
    const std::uint64_t bytes = stage.output_bytes + stage.forward_extra_bytes;
    step(from, keeps, cost, bytes, stage.forward_cost);
    if (from.places[i].alone && (allowed_ == Allowed::kAnything || from.head == i)) {
      State drops = keeps;
      drops.places[i].alone = false;
      step(from, drops, cost, bytes, stage.forward_cost);
    }
    for (std::size_t k = 0; k < stage.options.size(); ++k) {
      const SaveOption& option = stage.options[k];
      State saves = from;
      saves.places[i + 1].saved = static_cast<std::uint32_t>(k + 1);
      saves.head = stages_ + 1;
      step(from, saves, cost, option.saved_bytes + option.forward_extra_bytes, option.forward_cost);
    }
  }

  void trips(const State& from, double cost, std::size_t i) {
    const auto trip = chain_.stages[i].input_trip_cost;
    if (!trip) return;
    State to = from;
    to.head = stages_ + 1;
    if (from.places[i].alone) {
      to.places[i] = {.alone = false, .host = true};
      step(from, to, cost, 0, 0);
    } else if (from.places[i].host) {
      to.places[i].alone = true;
      step(from, to, cost, chain_.entering_bytes(i), *trip);
    }
  }

  void backward(const State& from, double cost, std::size_t i) {
    if (from.places[i + 1].saved == 0 || !can_read(from.places[i])) return;
    const SaveOption& option = chain_.stages[i].options[from.places[i + 1].saved - 1];
    State to = from;
    to.places[i + 1] = {};
    to.places[i].alone = false;
    to.places[i].host = false;
    to.gradient = i;
    to.head = stages_ + 1;
    step(from,
         to,
         cost,
         chain_.entering_bytes(i) + option.backward_extra_bytes,
         option.backward_cost);
  }

  const Chain& chain_;
  std::uint64_t budget_;
  Allowed allowed_;
  std::size_t stages_;
  std::unordered_map<std::uint64_t, double> best_{};
  std::priority_queue<Reached> queue_{};
};

}  // namespace headroom::solve::testing
