#include "benchmarks/paged/generators.h"

#include <string>

namespace headroom::bench {

const std::vector<Generator>& generators() {
  static const std::vector<Generator> all = [] {
    std::vector<Generator> out;
    for (const auto group : {random_traffic(),
                             small_traffic(),
                             serving_traffic(),
                             training_traffic(),
                             phases_traffic(),
                             streams_traffic(),
                             models_traffic()}) {
      out.insert(out.end(), group.begin(), group.end());
    }
    return out;
  }();
  return all;
}

std::vector<Generator> generators_like(std::string_view text) {
  std::vector<Generator> out;
  for (const Generator& generator : generators()) {
    const std::string name = std::string(generator.group) + ": " + std::string(generator.name);
    if (name.find(text) != std::string::npos) out.push_back(generator);
  }
  return out;
}

Made generate(const Generator& generator, const TrafficOptions& options) {
  Traffic traffic(options);
  generator.write(traffic);
  return traffic.finish();
}

}  // namespace headroom::bench
