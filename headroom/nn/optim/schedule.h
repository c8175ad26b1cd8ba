// Learning rates by the number of the step.
//
//   const nn::Schedule schedule = nn::Schedule::cosine(3e-4, 10'000, 3e-5).with_warmup(500);
//   optimizer.set_lr(schedule.at(step));
#pragma once

#include <cstdint>
#include <functional>

namespace headroom::nn {

class Schedule {
 public:
  [[nodiscard]] static Schedule constant(double lr);
  // Multiplies by `gamma` after every `every` steps. Throws InvalidArgument unless `every` is at
  // least 1.
  [[nodiscard]] static Schedule step(double lr, std::int64_t every, double gamma = 0.1);
  // Half a cosine from lr down to `floor` at `steps`, and that from then on.
  [[nodiscard]] static Schedule cosine(double lr, std::int64_t steps, double floor = 0);

  // The first steps rise in a line: step i has (i + 1) / steps of what this schedule starts with,
  // which follows as if it started then.
  [[nodiscard]] Schedule with_warmup(std::int64_t steps) const;

  // Steps count from 0.
  [[nodiscard]] double at(std::int64_t step) const { return rule_(step); }

 private:
  explicit Schedule(std::function<double(std::int64_t)> rule);
  std::function<double(std::int64_t)> rule_;
};

}  // namespace headroom::nn
