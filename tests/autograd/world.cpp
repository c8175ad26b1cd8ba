#include "tests/autograd/world.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/cpu/cpu_device.h"
#include "headroom/device/meta/meta_device.h"

namespace headroom::testing {
namespace {

std::unique_ptr<device::Device> make_device(World::Kind kind) {
  if (kind == World::Kind::kCpu) {
    return device::CpuDevice::create({.index = 9, .capacity_bytes = 1_GiB});
  }
  return device::MetaDevice::create(
      {.index = 9, .capacity_bytes = 1_GiB, .profile = device::cpu_profile()});
}

double value_at(const Function& function, const std::vector<Tensor>& inputs) {
  const NoGradScope no_grad;
  std::vector<Tensor> copies;  // the function may write to them
  for (const Tensor& input : inputs) copies.push_back(input.clone());
  return function(copies).sum().item<double>();
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
  std::vector<Tensor> inputs;
  std::uint64_t seed = 1;
  for (const Shape& shape : shapes) {
    const Tensor x = empty(shape, world.f64());
    double* const data = x.data<double>();
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
      data[i] = 0.3 + static_cast<double>(seed >> 40U) / static_cast<double>(1U << 24U);
    }
    inputs.push_back(x.requires_grad_());
  }
  function(inputs).sum().backward();
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    ASSERT_TRUE(inputs[k].grad().defined()) << "input " << k;
    const std::vector<double> grad = inputs[k].grad().to_doubles();
    double* const data = inputs[k].data<double>();
    for (std::size_t i = 0; i < grad.size(); ++i) {
      const double middle = data[i];
      data[i] = middle + kStep;
      const double above = value_at(function, inputs);
      data[i] = middle - kStep;
      const double below = value_at(function, inputs);
      data[i] = middle;
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
