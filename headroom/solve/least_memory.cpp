#include "headroom/solve/least_memory.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace headroom::solve {
namespace {

// Signed: sending an input to the host gives bytes back.
using Bytes = std::int64_t;

// The least bytes for stages first..last besides what enters the first, by the same recursion over
// ranges as the costs (internal/range_table.h), without a budget: of equals the cheaper.
class LeastTable {
 public:
  explicit LeastTable(const Chain& chain) : chain_(chain), stages_(chain.stages.size()) {
    for (auto& cells : cells_) cells.resize((stages_ + 1) * (stages_ + 1));
    for (std::size_t first = stages_ + 1; first-- > 0;) {
      for (std::size_t last = first; last <= stages_; ++last) {
        cell(false, first, last) = find(false, first, last);
        cell(true, first, last) = find(true, first, last);
      }
    }
  }

  LeastMemory take() {
    LeastMemory out;
    out.peak_bytes = static_cast<std::uint64_t>(cell(true, 0, stages_).bytes + entering(0));
    write(true, 0, stages_, out.schedule);
    return out;
  }

 private:
  struct Cell {
    Bytes bytes = std::numeric_limits<Bytes>::max();
    double cost = 0;
    std::uint32_t option = 0;
    std::uint32_t split = 0;  // 0: saves by the option
    bool sends = false;
  };

  // `is_alone`: what enters the range is not inside of what the stage before has saved.
  Cell& cell(bool is_alone, std::size_t first, std::size_t last) {
    return cells_[is_alone ? 1 : 0][first * (stages_ + 1) + last];
  }
  [[nodiscard]] Bytes entering(std::size_t stage) const {
    return static_cast<Bytes>(chain_.entering_bytes(stage));
  }

  static void take_better(Cell& best, const Cell& other) {
    if (std::pair(other.bytes, other.cost) < std::pair(best.bytes, best.cost)) best = other;
  }

  Cell find(bool is_alone, std::size_t first, std::size_t last) {
    if (first == stages_) {
      return {.bytes = entering(stages_) + static_cast<Bytes>(chain_.loss_extra_bytes),
              .cost = chain_.loss_cost};
    }
    Cell best;
    for (std::size_t k = 0; k < chain_.stages[first].options.size(); ++k) {
      take_better(best, saving(first, last, k, false));
      if (is_alone && first < last && chain_.stages[first].input_trip_cost) {
        take_better(best, saving(first, last, k, true));
      }
    }
    const Bytes gradient = last == stages_ ? 0 : entering(last + 1);
    Bytes staying = 0;
    Bytes away = 0;
    double forward_cost = 0;
    for (std::size_t j = first + 1; j <= last; ++j) {
      const Stage& stage = chain_.stages[j - 1];
      const bool is_later = j - 1 > first;
      const Bytes step = gradient + entering(j) + static_cast<Bytes>(stage.forward_extra_bytes) +
                         (is_later ? entering(j - 1) : 0);
      staying = std::max(staying, step);
      away = std::max(away, is_later ? step - entering(first) : step);
      forward_cost += stage.forward_cost;
      const Cell& right = cell(true, j, last);
      const Cell& left = cell(is_alone, first, j - 1);
      Cell one{.bytes = std::max({staying, right.bytes + entering(j), left.bytes}),
               .cost = forward_cost + right.cost + left.cost,
               .split = static_cast<std::uint32_t>(j)};
      take_better(best, one);
      if (!is_alone || !chain_.stages[first].input_trip_cost) continue;
      one.bytes = std::max({away, right.bytes + entering(j) - entering(first), left.bytes});
      one.cost += *chain_.stages[first].input_trip_cost;
      one.sends = true;
      take_better(best, one);
    }
    return best;
  }

  Cell saving(std::size_t first, std::size_t last, std::size_t option, bool sends) {
    const SaveOption& how = chain_.stages[first].options[option];
    const auto saved = static_cast<Bytes>(how.saved_bytes);
    const Bytes gradient = last == stages_ ? 0 : entering(last + 1);
    const Bytes forward = gradient + saved + static_cast<Bytes>(how.forward_extra_bytes);
    const Bytes backward = entering(first + 1) + saved + entering(first) +
                           static_cast<Bytes>(how.backward_extra_bytes);
    Cell out{.bytes = std::max(forward, backward),
             .cost = how.forward_cost + how.backward_cost,
             .option = static_cast<std::uint32_t>(option),
             .sends = sends};
    if (first == last) return out;
    const Cell& rest = cell(false, first + 1, last);
    out.bytes = std::max(out.bytes, rest.bytes + saved - (sends ? entering(first) : 0));
    out.cost += rest.cost + (sends ? *chain_.stages[first].input_trip_cost : 0);
    return out;
  }

  void write(bool is_alone, std::size_t first, std::size_t last, Schedule& out) {
    const auto stage = static_cast<std::uint32_t>(first);
    if (first == stages_) {
      out.push_back({StepKind::kLoss, stage, 0});
      return;
    }
    const Cell best = cell(is_alone, first, last);
    if (best.split == 0) {
      out.push_back({StepKind::kForwardSave, stage, best.option});
      if (best.sends) out.push_back({StepKind::kSendInput, stage, 0});
      if (first < last) write(false, first + 1, last, out);
      if (best.sends) out.push_back({StepKind::kFetchInput, stage, 0});
      out.push_back({StepKind::kBackward, stage, 0});
      return;
    }
    out.push_back({StepKind::kForwardKeep, stage, 0});
    if (best.sends) out.push_back({StepKind::kSendInput, stage, 0});
    for (std::uint32_t i = stage + 1; i < best.split; ++i) {
      out.push_back({StepKind::kForward, i, 0});
    }
    write(true, best.split, last, out);
    if (best.sends) out.push_back({StepKind::kFetchInput, stage, 0});
    write(is_alone, first, best.split - 1, out);
  }

  const Chain& chain_;
  std::size_t stages_;
  std::vector<Cell> cells_[2];
};

}  // namespace

LeastMemory least_memory(const Chain& chain) {
  check_chain(chain);
  return LeastTable(chain).take();
}

}  // namespace headroom::solve
