#include "headroom/train/examples.h"

#include <algorithm>
#include <cmath>

namespace headroom::train {
namespace {

// A number for a place: splitmix64's finaliser, so that no state has to be carried along.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31U);
}

// About normal: the sum of four uniform numbers, of variance 1.
float noise(std::uint64_t bits) {
  const auto part = [bits](unsigned i) { return static_cast<float>((bits >> (16 * i)) & 0xffffU); };
  return ((part(0) + part(1) + part(2) + part(3)) / 65536.0F - 2.0F) * 1.7320508F;
}

class SyntheticExamples : public Examples {
 public:
  SyntheticExamples(const ExampleShape& shape, std::uint64_t seed)
      : shape_(shape), seed_(mixed(seed)) {}

  [[nodiscard]] std::int64_t numbers(std::uint64_t example,
                                     std::span<float> input,
                                     std::span<float> target) const override {
    const std::uint64_t own = mixed(seed_ ^ mixed(example));
    for (std::size_t i = 0; i < input.size(); ++i) input[i] = noise(mixed(own + i));
    if (shape_.task == ExampleShape::Task::kNumbers) {
      std::ranges::transform(input, target.begin(), [](float x) { return std::abs(x); });
      return 0;
    }
    const auto label = static_cast<std::int64_t>(own % static_cast<std::uint64_t>(classes()));
    for (std::size_t i = 0; i < input.size(); ++i) input[i] += pattern(label, i);
    return label;
  }

  // An affine walk through the first tokens, from a start of its own.
  void tokens(std::uint64_t example, std::span<std::int64_t> out) const override {
    const auto count = std::min<std::int64_t>(shape_.classes, 64);
    auto token = static_cast<std::int64_t>(mixed(seed_ ^ mixed(example)) %
                                           static_cast<std::uint64_t>(count));
    for (std::int64_t& place : out) {
      place = token;
      token = (5 * token + 7) % count;
    }
  }

 private:
  // More would take longer to tell apart than anybody watches.
  [[nodiscard]] std::int64_t classes() const { return std::min<std::int64_t>(shape_.classes, 10); }
  // Of images the same over cells of 16 x 16, which a convolution can see.
  [[nodiscard]] float pattern(std::int64_t label, std::size_t place) const {
    if (shape_.input.size() == 3) {
      const auto width = static_cast<std::size_t>(shape_.input[2]);
      place = place / width / 16 * width + place % width / 16;
    }
    return (mixed(static_cast<std::uint64_t>(label) * 1'000'003U + place) & 1U) != 0 ? 0.5F : -0.5F;
  }

  ExampleShape shape_;
  std::uint64_t seed_;
};

}  // namespace

std::unique_ptr<Examples> synthetic_examples(const ExampleShape& shape, std::uint64_t seed) {
  return std::make_unique<SyntheticExamples>(shape, seed);
}

}  // namespace headroom::train
