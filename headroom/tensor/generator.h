// Random numbers that are a function of (seed, offset): a recomputation that sets the state back
// draws the same, whatever ran in between.
//
//   manual_seed(7);
//   Generator& generator = default_generator(x.device());
//   const Generator::State before = generator.state();
//   Tensor a = rand({3});
//   generator.set_state(before);
//   Tensor b = rand({3});                 // equal to a
#pragma once

#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "headroom/device/device.h"

namespace headroom {

class Generator {
 public:
  struct State {
    std::uint64_t seed = 0;
    std::uint64_t offset = 0;  // counters used so far

    friend bool operator==(const State&, const State&) = default;
  };

  [[nodiscard]] State state() const;
  void set_state(State state);
  void seed(std::uint64_t value) { set_state({.seed = value}); }
  // Takes `counters` of them for one op: the state to draw from.
  [[nodiscard]] State take(std::uint64_t counters);

 private:
  mutable std::mutex mutex_;
  State state_{.seed = 67280421310721ULL};  // PyTorch's default seed
};

// The device's own; ops that draw use it. Lives as long as the process.
[[nodiscard]] Generator& default_generator(const device::Device& device);

// Of every device, those to come included.
void manual_seed(std::uint64_t seed);

// Where the generators of all devices are, to go back there: one that did not exist yet goes back
// to where it would have begun.
class GeneratorStates {
 public:
  [[nodiscard]] static GeneratorStates capture();
  void restore() const;

 private:
  Generator::State first_{};
  std::vector<std::pair<Generator*, Generator::State>> states_{};
};

}  // namespace headroom
