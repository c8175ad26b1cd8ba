#include "headroom/solve/simulate.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace headroom::solve {
namespace {

// What there is of the values between two stages: place i is what enters stage i.
struct Place {
  bool has_value = false;  // the value alone, not inside of what the stage before has saved
  bool is_on_host = false;
  bool has_gradient = false;
  std::optional<std::size_t> saved{};  // the option by which the stage before has saved
};

class Machine {
 public:
  explicit Machine(const Chain& chain)
      : chain_(chain), places_(chain.stages.size() + 1), live_bytes_(chain.input_bytes) {
    places_[0].has_value = true;
    result_.peak_bytes = live_bytes_;
  }

  // The reason why the step cannot be done; empty where it was.
  std::string run(const Step& step, std::size_t number) {
    number_ = number;
    const std::size_t stages = chain_.stages.size();
    const bool is_loss = step.kind == StepKind::kLoss;
    if (!is_loss && step.stage >= stages) return "there is no such stage";
    switch (step.kind) {
      case StepKind::kForward:
      case StepKind::kForwardKeep:
        return forward(step.stage, step.kind == StepKind::kForwardKeep);
      case StepKind::kForwardSave:
        return save(step.stage, step.option);
      case StepKind::kLoss:
        return loss();
      case StepKind::kBackward:
        return backward(step.stage);
      case StepKind::kSendInput:
        return send(step.stage);
      case StepKind::kFetchInput:
        return fetch(step.stage);
    }
    return "there is no such kind of step";
  }

  // What is missing at the end; empty where nothing is.
  [[nodiscard]] std::string unfinished() const {
    return places_[0].has_gradient ? "" : "it ends before the backward of stage 0";
  }

  [[nodiscard]] const Simulation& result() const noexcept { return result_; }

 private:
  [[nodiscard]] bool can_read(std::size_t place) const {
    return places_[place].has_value || places_[place].saved.has_value();
  }

  void use(std::uint64_t more_bytes, double cost) {
    result_.cost += cost;
    if (live_bytes_ + more_bytes <= result_.peak_bytes) return;
    result_.peak_bytes = live_bytes_ + more_bytes;
    result_.peak_step = number_;
  }

  void drop_value(std::size_t place) {
    if (places_[place].has_value) live_bytes_ -= chain_.entering_bytes(place);
    places_[place].has_value = false;
  }

  void drop_host_copy(std::size_t place) {
    if (places_[place].is_on_host) host_bytes_ -= chain_.entering_bytes(place);
    places_[place].is_on_host = false;
  }

  [[nodiscard]] std::string cannot_go_forward(std::size_t stage) const {
    if (!can_read(stage)) return "its input is not there";
    if (can_read(stage + 1)) return "its output is there already";
    return "";
  }

  std::string forward(std::size_t stage, bool keeps_input) {
    if (std::string why = cannot_go_forward(stage); !why.empty()) return why;
    const Stage& one = chain_.stages[stage];
    use(one.output_bytes + one.forward_extra_bytes, one.forward_cost);
    places_[stage + 1].has_value = true;
    live_bytes_ += one.output_bytes;
    if (!keeps_input) drop_value(stage);
    return "";
  }

  std::string save(std::size_t stage, std::size_t option) {
    const Stage& one = chain_.stages[stage];
    if (option >= one.options.size()) return "there is no such option";
    if (std::string why = cannot_go_forward(stage); !why.empty()) return why;
    const SaveOption& how = one.options[option];
    use(how.saved_bytes + how.forward_extra_bytes, how.forward_cost);
    places_[stage + 1].saved = option;
    live_bytes_ += how.saved_bytes;
    add_host_bytes(how.host_bytes);
    return "";
  }

  std::string loss() {
    const std::size_t end = chain_.stages.size();
    if (!can_read(end)) return "its input is not there";
    if (places_[end].has_gradient) return "it ran already";
    use(chain_.entering_bytes(end) + chain_.loss_extra_bytes, chain_.loss_cost);
    live_bytes_ += chain_.entering_bytes(end);
    places_[end].has_gradient = true;
    drop_value(end);
    return "";
  }

  std::string backward(std::size_t stage) {
    Place& out = places_[stage + 1];
    if (!out.saved) return "what it needs was not saved";
    if (!out.has_gradient) return "the gradient of its output is not there";
    if (!can_read(stage)) return "its input is not there";
    const SaveOption& how = chain_.stages[stage].options[*out.saved];
    const std::uint64_t gradient_bytes = chain_.entering_bytes(stage);
    use(gradient_bytes + how.backward_extra_bytes, how.backward_cost);
    live_bytes_ += gradient_bytes;
    places_[stage].has_gradient = true;
    live_bytes_ -= how.saved_bytes + chain_.entering_bytes(stage + 1);
    host_bytes_ -= how.host_bytes;
    out.saved.reset();
    out.has_gradient = false;
    drop_value(stage);
    drop_host_copy(stage);
    return "";
  }

  std::string send(std::size_t stage) {
    Place& place = places_[stage];
    if (!chain_.stages[stage].input_trip_cost) return "its input may not leave the device";
    if (!place.has_value) return "its input is not there by itself";
    if (!place.is_on_host) add_host_bytes(chain_.entering_bytes(stage));
    place.is_on_host = true;
    drop_value(stage);
    return "";
  }

  // The whole trip is paid here: a copy that is never fetched costs nothing that shows.
  std::string fetch(std::size_t stage) {
    Place& place = places_[stage];
    if (!place.is_on_host) return "its input is not on the host";
    if (place.has_value) return "its input is there already";
    use(chain_.entering_bytes(stage), *chain_.stages[stage].input_trip_cost);
    live_bytes_ += chain_.entering_bytes(stage);
    place.has_value = true;
    return "";
  }

  void add_host_bytes(std::uint64_t bytes) {
    host_bytes_ += bytes;
    result_.peak_host_bytes = std::max(result_.peak_host_bytes, host_bytes_);
  }

  const Chain& chain_;
  std::vector<Place> places_;
  std::uint64_t live_bytes_;
  std::uint64_t host_bytes_ = 0;
  std::size_t number_ = 0;
  Simulation result_{};
};

}  // namespace

Result<Simulation, ScheduleFault> simulate(const Chain& chain, const Schedule& schedule) {
  Machine machine(chain);
  for (std::size_t i = 0; i < schedule.size(); ++i) {
    const std::string why = machine.run(schedule[i], i);
    if (why.empty()) continue;
    return Unexpected(ScheduleFault{
        i, "step " + std::to_string(i) + " (" + to_string(schedule[i]) + "): " + why});
  }
  const std::string missing = machine.unfinished();
  if (!missing.empty()) return Unexpected(ScheduleFault{schedule.size(), missing});
  return machine.result();
}

}  // namespace headroom::solve
