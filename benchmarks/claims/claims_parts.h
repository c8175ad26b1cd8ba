// Shared by the parts of `bench claims`: a device without memory to measure on, PyTorch's side,
// and how numbers are written.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "headroom/base/bytes.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/caching/caching_allocator.h"

#include "benchmarks/claims/claims.h"

namespace headroom::cli {

// A card as large as that of the recording, under PyTorch's settings.
class ClaimCard {
 public:
  explicit ClaimCard(const std::string& settings = "", std::uint64_t capacity_bytes = 8_TiB);

  [[nodiscard]] memory::Allocator& allocator() { return allocator_; }
  [[nodiscard]] std::uint64_t allocated() const;
  [[nodiscard]] std::uint64_t reserved() const;
  [[nodiscard]] std::uint64_t peak() const;
  void reset_peak() { allocator_.reset_peak_statistics(); }

 private:
  std::unique_ptr<device::MetaDevice> card_;
  memory::CachingAllocator allocator_;
};

// docs/guide/claims/pytorch.json.
[[nodiscard]] const nlohmann::json& pytorch_claims();

[[nodiscard]] inline std::uint64_t bytes_of(const nlohmann::json& value) {
  return value.get<std::uint64_t>();
}
[[nodiscard]] inline ClaimRow bytes_row(std::string what,
                                        std::uint64_t here,
                                        const nlohmann::json& pytorch) {
  return {std::move(what), format_count(here), format_count(bytes_of(pytorch))};
}
// 0.33 is `33 %`.
[[nodiscard]] inline std::string percent(double fraction) {
  return fmt::format("{:.0f} %", 100 * fraction);
}
[[nodiscard]] inline double share(std::uint64_t part, std::uint64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

// Each adds its claims.
void add_allocator_claims(std::vector<Claim>& out, const Context& context);
void add_training_claims(std::vector<Claim>& out);
void add_model_claims(std::vector<Claim>& out);

}  // namespace headroom::cli
