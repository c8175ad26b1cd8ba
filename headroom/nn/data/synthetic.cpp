#include "headroom/nn/data/synthetic.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/tensor/philox.h"

namespace headroom::nn {
namespace {

// Streams of numbers of one seed that must not be the same.
enum class Drawn : std::uint64_t { kPattern = 1ULL << 62U, kToken = 2ULL << 62U, kExample = 0 };

std::uint32_t word(std::uint64_t seed, Drawn what, std::int64_t stream, std::int64_t at) {
  const auto counter = static_cast<std::uint64_t>(at / 4);
  const auto words = tensor::cpu::philox(
      seed, counter, static_cast<std::uint64_t>(what) + static_cast<std::uint64_t>(stream));
  return words[static_cast<std::size_t>(at % 4)];
}

// Numbers of one stream in order, four at a time.
class Draws {
 public:
  Draws(std::uint64_t seed, Drawn what, std::int64_t stream)
      : seed_(seed),
        stream_(static_cast<std::uint64_t>(what) + static_cast<std::uint64_t>(stream)) {}
  [[nodiscard]] std::uint32_t next() {
    if (at_ % 4 == 0) words_ = tensor::cpu::philox(seed_, at_ / 4, stream_);
    return words_[at_++ % 4];
  }
  // Uniform in [-1, 1).
  [[nodiscard]] float next_unit() { return static_cast<float>(next() >> 8U) * 0x1p-23F - 1.0F; }

 private:
  std::uint64_t seed_;
  std::uint64_t stream_;
  std::uint64_t at_ = 0;
  std::array<std::uint32_t, 4> words_{};
};

void check_counts(const char* who,
                  std::initializer_list<std::pair<const char*, std::int64_t>> counts) {
  for (const auto& [what, count] : counts) {
    if (count >= 1) continue;
    throw InvalidArgument(std::string(who) + ": at least 1 " + what + " is wanted, not " +
                          std::to_string(count));
  }
}

std::int64_t below(std::uint32_t drawn, std::int64_t bound) {
  return static_cast<std::int64_t>(
      static_cast<std::uint64_t>(drawn) * static_cast<std::uint64_t>(bound) >> 32U);
}

}  // namespace

SyntheticClasses::SyntheticClasses(std::int64_t size,
                                   const Shape& shape,
                                   std::int64_t classes,
                                   std::uint64_t seed)
    : size_(size),
      shape_(shape),
      numel_(ElementSpec{.shape = shape}.numel()),
      classes_(classes),
      seed_(seed) {
  check_counts("SyntheticClasses", {{"example", size}, {"element", numel_}, {"class", classes}});
}

ExampleSpec SyntheticClasses::spec() const {
  return {.input = {.dtype = DType::kF32, .shape = shape_}, .target = {.dtype = DType::kI64}};
}

std::vector<float> SyntheticClasses::pattern_of(std::int64_t label) const {
  Draws draws(seed_, Drawn::kPattern, label);
  std::vector<float> out(static_cast<std::size_t>(numel_));
  const bool is_image = shape_.size() == 3;
  const std::int64_t width = is_image ? shape_[2] : numel_;
  const std::int64_t cell =
      is_image ? std::max<std::int64_t>(1, std::min(shape_[1], width) / 14) : 1;
  for (std::int64_t k = 0; k < numel_; ++k) {
    const std::int64_t row = is_image ? k / width % shape_[1] : 0;
    const std::int64_t column = k % width;
    // A cell's number is drawn at its first place.
    const std::int64_t first = k - row % cell * width - column % cell;
    out[static_cast<std::size_t>(k)] =
        first == k ? draws.next_unit() : out[static_cast<std::size_t>(first)];
  }
  return out;
}

void SyntheticClasses::write(std::int64_t i, void* input, void* target) const {
  Draws noise(seed_, Drawn::kExample, i);
  const std::int64_t own = below(noise.next(), classes_);
  const std::vector<float> pattern = pattern_of(own);
  auto* const x = static_cast<float*>(input);
  for (std::int64_t k = 0; k < numel_; ++k) {
    x[k] = pattern[static_cast<std::size_t>(k)] + noise.next_unit();
  }
  *static_cast<std::int64_t*>(target) = own;
}

SyntheticRegression::SyntheticRegression(std::int64_t size,
                                         const Shape& in,
                                         const Shape& out,
                                         std::uint64_t seed)
    : size_(size), in_{.shape = in}, out_{.shape = out}, seed_(seed) {
  check_counts("SyntheticRegression",
               {{"example", size}, {"element", in_.numel()}, {"output", out_.numel()}});
}

ExampleSpec SyntheticRegression::spec() const { return {.input = in_, .target = out_}; }

void SyntheticRegression::write(std::int64_t i, void* input, void* target) const {
  Draws draws(seed_, Drawn::kExample, i);
  auto* const x = static_cast<float*>(input);
  auto* const y = static_cast<float*>(target);
  const std::int64_t width = in_.numel();
  for (std::int64_t k = 0; k < width; ++k) x[k] = draws.next_unit();
  for (std::int64_t k = 0; k < out_.numel(); ++k) {
    // A polynomial, so that every machine has the same bits.
    const float a = x[k % width];
    const float b = x[(7 * k + 3) % width];
    y[k] = 0.8F * a - 0.5F * a * a * a + 0.4F * b;
  }
}

SyntheticTokens::SyntheticTokens(std::int64_t size,
                                 std::int64_t length,
                                 std::int64_t vocabulary,
                                 std::uint64_t seed)
    : size_(size), length_(length), vocabulary_(vocabulary), seed_(seed) {
  check_counts("SyntheticTokens",
               {{"example", size}, {"token", length}, {"token of vocabulary", vocabulary}});
}

ExampleSpec SyntheticTokens::spec() const {
  const ElementSpec tokens{.dtype = DType::kI64, .shape = {length_}};
  return {.input = tokens, .target = tokens};
}

void SyntheticTokens::write(std::int64_t i, void* input, void* target) const {
  Draws draws(seed_, Drawn::kExample, i);
  auto* const in = static_cast<std::int64_t*>(input);
  auto* const next = static_cast<std::int64_t*>(target);
  std::int64_t token = below(draws.next(), vocabulary_);
  for (std::int64_t k = 0; k < length_; ++k) {
    in[k] = token;
    const bool is_any = below(draws.next(), 10) == 0;
    token = below(is_any ? draws.next() : word(seed_, Drawn::kToken, 0, token), vocabulary_);
    next[k] = token;
  }
}

}  // namespace headroom::nn
