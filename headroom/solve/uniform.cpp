#include "headroom/solve/uniform.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "headroom/base/check.h"
#include "headroom/solve/simulate.h"

namespace headroom::solve {
namespace {

class Writer {
 public:
  explicit Writer(const Chain& chain) : chain_(chain) {}

  // Forward over [first, last) with the input of `first` kept and nothing else.
  void skip(std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      add(i == first ? StepKind::kForwardKeep : StepKind::kForward, i);
    }
  }

  void forward_saving(std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      const auto option = static_cast<std::uint32_t>(quickest_option(chain_.stages[i]));
      out_.push_back({StepKind::kForwardSave, static_cast<std::uint32_t>(i), option});
    }
    if (last == chain_.stages.size()) add(StepKind::kLoss, last);
  }

  void backward(std::size_t first, std::size_t last) {
    for (std::size_t i = last; i > first; --i) add(StepKind::kBackward, i - 1);
  }

  // Stages [first, last) by Revolve.
  void revolve(std::size_t first, std::size_t last, std::size_t checkpoints) {
    while (last - first > 1 && checkpoints > 1) {
      const std::size_t middle = first + best_advance(last - first, checkpoints);
      skip(first, middle);
      revolve(middle, last, checkpoints - 1);
      last = middle;
    }
    while (last > first) {  // one checkpoint: each backward starts again from it
      skip(first, last - 1);
      forward_saving(last - 1, last);
      backward(last - 1, last);
      --last;
    }
  }

  Schedule take() { return std::move(out_); }

 private:
  void add(StepKind kind, std::size_t stage) {
    out_.push_back({kind, static_cast<std::uint32_t>(stage), 0});
  }

  // Where to put the next checkpoint: the advance that leaves the fewest forward steps.
  static std::size_t best_advance(std::size_t stages, std::size_t checkpoints) {
    std::size_t best = 1;
    std::uint64_t least = UINT64_MAX;
    for (std::size_t j = 1; j < stages; ++j) {
      const std::uint64_t steps =
          j + revolve_forwards(stages - j, checkpoints - 1) + revolve_forwards(j, checkpoints);
      if (steps < least) {
        least = steps;
        best = j;
      }
    }
    return best;
  }

  const Chain& chain_;
  Schedule out_{};
};

template <class Make>
std::optional<UniformPlan> cheapest(const Chain& chain, std::uint64_t budget_bytes, Make make) {
  std::optional<UniformPlan> best;
  for (std::size_t number = 1; number <= chain.stages.size(); ++number) {
    Schedule schedule = make(number);
    const auto run = simulate(chain, schedule);
    HEADROOM_CHECK(run.has_value(), "a schedule of equal stages that cannot run");
    if (run->peak_bytes > budget_bytes || (best && best->cost <= run->cost)) continue;
    best = UniformPlan{std::move(schedule), run->peak_bytes, run->cost};
  }
  return best;
}

}  // namespace

Schedule equal_segments(const Chain& chain, std::size_t segments) {
  const std::size_t stages = chain.stages.size();
  segments = std::clamp<std::size_t>(segments, 1, stages);
  const auto start = [&](std::size_t segment) { return segment * stages / segments; };
  Writer writer(chain);
  for (std::size_t k = 0; k + 1 < segments; ++k) writer.skip(start(k), start(k + 1));
  for (std::size_t k = segments; k > 0; --k) {
    writer.forward_saving(start(k - 1), start(k));
    writer.backward(start(k - 1), start(k));
  }
  return writer.take();
}

Schedule sqrt_schedule(const Chain& chain) {
  const double root = std::sqrt(static_cast<double>(chain.stages.size()));
  return equal_segments(chain, static_cast<std::size_t>(std::lround(root)));
}

std::uint64_t revolve_forwards(std::uint64_t stages, std::uint64_t checkpoints) {
  if (stages <= 1) return 0;
  if (checkpoints == 0) return UINT64_MAX / 4;  // impossible, and still to be added to
  // reach = C(s+r, s), before = C(s+r, r-1) * (s+1) / r... kept as the two binomials themselves.
  std::uint64_t runs = 1;
  std::uint64_t reach = checkpoints + 1;  // C(s+1, s)
  std::uint64_t fewer = 1;                // C(s+1, 0)
  while (reach < stages) {
    ++runs;
    // C(s+r, r-1) = C(s+r-1, r-2) + C(s+r-1, r-1), and the second is the reach before.
    fewer += reach;
    reach = reach * (checkpoints + runs) / runs;
  }
  return runs * stages - fewer;
}

Schedule revolve(const Chain& chain, std::size_t checkpoints) {
  Writer writer(chain);
  writer.revolve(0, chain.stages.size(), std::max<std::size_t>(checkpoints, 1));
  return writer.take();
}

std::optional<UniformPlan> best_equal_segments(const Chain& chain, std::uint64_t budget_bytes) {
  return cheapest(
      chain, budget_bytes, [&](std::size_t number) { return equal_segments(chain, number); });
}

std::optional<UniformPlan> best_revolve(const Chain& chain, std::uint64_t budget_bytes) {
  return cheapest(chain, budget_bytes, [&](std::size_t number) { return revolve(chain, number); });
}

}  // namespace headroom::solve
