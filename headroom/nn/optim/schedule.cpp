#include "headroom/nn/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>

#include "headroom/base/error.h"

namespace headroom::nn {
namespace {

void check_steps(const char* who, std::int64_t steps) {
  if (steps >= 1) return;
  throw InvalidArgument(std::string("Schedule: ") + who + " wants at least 1 step, not " +
                        std::to_string(steps));
}

}  // namespace

Schedule::Schedule(std::function<double(std::int64_t)> rule) : rule_(std::move(rule)) {}

Schedule Schedule::constant(double lr) {
  return Schedule([lr](std::int64_t) { return lr; });
}

Schedule Schedule::step(double lr, std::int64_t every, double gamma) {
  check_steps("step", every);
  return Schedule([=](std::int64_t step) {
    const std::int64_t drops = step / every;
    return lr * std::pow(gamma, static_cast<double>(drops));
  });
}

Schedule Schedule::cosine(double lr, std::int64_t steps, double floor) {
  check_steps("cosine", steps);
  return Schedule([=](std::int64_t step) {
    const double part = static_cast<double>(std::min(step, steps)) / static_cast<double>(steps);
    return floor + (lr - floor) * (1 + std::cos(std::numbers::pi * part)) / 2;
  });
}

Schedule Schedule::with_warmup(std::int64_t steps) const {
  check_steps("a warm-up", steps);
  return Schedule([after = *this, steps](std::int64_t step) {
    if (step >= steps) return after.at(step - steps);
    return after.at(0) * static_cast<double>(step + 1) / static_cast<double>(steps);
  });
}

}  // namespace headroom::nn
