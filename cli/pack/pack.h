// `headroom pack`, in steps that tests can take one by one: pack, then draw what was found or write
// it as JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "headroom/solve/pack.h"

#include "cli/command.h"

namespace headroom::cli {

struct PackRequest {
  std::string path{};
  std::optional<std::uint64_t> capacity_bytes{};
  double seconds = 10;
  std::uint64_t seed = 0;
  std::string output{};
  bool force = false;
};

struct PackReport {
  PackRequest request{};
  std::size_t buffers = 0;
  solve::PackResult result{};

  [[nodiscard]] bool fits() const noexcept {
    return !request.capacity_bytes || result.height_bytes <= *request.capacity_bytes;
  }
  // No packing is within the capacity.
  [[nodiscard]] bool cannot_fit() const noexcept {
    return request.capacity_bytes && result.lower_bound_bytes > *request.capacity_bytes;
  }
  [[nodiscard]] bool is_written() const noexcept { return fits() && !request.output.empty(); }
};

[[nodiscard]] std::string draw_pack(const PackReport& report, const Context& context);

// Follows docs/format/pack.schema.json.
[[nodiscard]] std::string pack_json(const PackReport& report);

}  // namespace headroom::cli
