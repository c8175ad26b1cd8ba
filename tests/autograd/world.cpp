#include "tests/autograd/world.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"

#include "tests/support/test_device.h"

namespace headroom::testing {
namespace {

std::unique_ptr<device::Device> make_device(World::Kind kind) {
  if (kind == World::Kind::kReal) return make_test_device(9, 1_GiB);
  return make_test_meta(9, 1_GiB);
}

using Values = std::vector<std::vector<double>>;  // of each input

double value_at(const Function& function,
                const Values& values,
                const std::vector<Shape>& shapes,
                const World& world) {
  const NoGradScope no_grad;
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    inputs.push_back(from(values[i], shapes[i], world.f64()));
  }
  return function(inputs).sum().item<double>();
}

}  // namespace

World::World(Kind kind)
    : device_(make_device(kind)),
      allocator_(std::make_unique<memory::CachingAllocator>(*device_)) {}

void EventLog::record(const memory::Event& event) noexcept {
  const auto found = std::find(addresses_.begin(), addresses_.end(), event.address);
  const auto number = found - addresses_.begin();
  if (found == addresses_.end()) addresses_.push_back(event.address);
  events_.push_back(event);
  lines_.push_back(std::string(to_string(event.action)) + " " +
                   std::string(to_string(event.category)) + " " + std::to_string(event.size_bytes) +
                   " at " + std::to_string(number) + " for " +
                   memory::annotation_path(event.annotation));
}

void expect_gradients(const Function& function,
                      const std::vector<Shape>& shapes,
                      double tolerance) {
  constexpr double kStep = 1e-5;
  const World world;
  Values values;
  std::vector<Tensor> inputs;
  std::uint64_t seed = 1;
  for (const Shape& shape : shapes) {
    std::vector<double>& own = values.emplace_back();
    own.resize(static_cast<std::size_t>(checked_numel("test", shape)));
    for (double& value : own) {
      seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
      value = 0.3 + static_cast<double>(seed >> 40U) / static_cast<double>(1U << 24U);
    }
    inputs.push_back(from(own, shape, world.f64(true)));
  }
  function(inputs).sum().backward();
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    ASSERT_TRUE(inputs[k].grad().defined()) << "input " << k;
    const std::vector<double> grad = inputs[k].grad().to_doubles();
    for (std::size_t i = 0; i < grad.size(); ++i) {
      double& at = values[k][i];
      const double middle = at;
      at = middle + kStep;
      const double above = value_at(function, values, shapes, world);
      at = middle - kStep;
      const double below = value_at(function, values, shapes, world);
      at = middle;
      ASSERT_NEAR(grad[i], (above - below) / (2 * kStep), tolerance * (1 + std::abs(grad[i])))
          << "input " << k << " element " << i;
    }
  }
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace headroom::testing
