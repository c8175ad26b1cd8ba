// The generators of `bench paged`: small functions that write the requests of a program.
//
//   for (const Generator& generator : generators()) {
//     const Made made = generate(generator, {.seed = 7});
//     replay::replay(made.program, options);
//   }
//
// The same seed gives the same program on every machine.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "benchmarks/paged/traffic.h"

namespace headroom::bench {

struct Generator {
  std::string_view group;    // "serving"
  std::string_view name;     // "kv_rows"; unique
  std::string_view summary;  // what happens, in one line
  void (*write)(Traffic& traffic);
  bool keeps = false;  // something is still live at its end
};

[[nodiscard]] const std::vector<Generator>& generators();
// Those with the text in "group: name"; all for an empty text.
[[nodiscard]] std::vector<Generator> generators_like(std::string_view text);

[[nodiscard]] Made generate(const Generator& generator, const TrafficOptions& options = {});

// By group, each in a file of its own.
[[nodiscard]] std::span<const Generator> random_traffic();
[[nodiscard]] std::span<const Generator> small_traffic();
[[nodiscard]] std::span<const Generator> serving_traffic();
[[nodiscard]] std::span<const Generator> training_traffic();
[[nodiscard]] std::span<const Generator> phases_traffic();
[[nodiscard]] std::span<const Generator> streams_traffic();
[[nodiscard]] std::span<const Generator> models_traffic();

}  // namespace headroom::bench
