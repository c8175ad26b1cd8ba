// A model of the costs of a driver's calls: the cpu device can wait that long, replay adds them up.
#pragma once

#include <cstdint>

namespace headroom::device {

// A call costs `base_ns` plus `per_byte_ns` for each byte it concerns. Handles are priced one by
// one, because that is how the driver works: 31 us for access to one, whether 2 MiB or 1 GiB.
struct CallCost {
  double base_ns = 0;
  double per_byte_ns = 0;

  [[nodiscard]] constexpr double price_ns(std::uint64_t size_bytes) const noexcept {
    return base_ns + per_byte_ns * static_cast<double>(size_bytes);
  }
};

struct CallCosts {
  CallCost allocate_segment{};
  CallCost free_segment{};
  CallCost create_pages{};
  CallCost release_pages{};
  CallCost map_pages{};    // with access, per handle
  CallCost unmap_pages{};  // per handle

  [[nodiscard]] constexpr bool is_free() const noexcept {
    return allocate_segment.base_ns + free_segment.base_ns + create_pages.base_ns +
               release_pages.base_ns + map_pages.base_ns + unmap_pages.base_ns ==
           0;
  }
};

// Fitted to measurements on one NVIDIA H200 with driver 580: a malloc and free pair takes 106 us
// at 512 B and 991 us at 1 GiB; the virtual-memory calls cost per handle (docs/design/).
[[nodiscard]] constexpr CallCosts h200_call_costs() noexcept {
  return {.allocate_segment = {.base_ns = 53'000, .per_byte_ns = 4.1e-4},
          .free_segment = {.base_ns = 53'000, .per_byte_ns = 4.1e-4},
          .create_pages = {.base_ns = 12'500, .per_byte_ns = 1.0e-5},
          .release_pages = {.base_ns = 14'000, .per_byte_ns = 4.9e-4},
          .map_pages = {.base_ns = 32'000, .per_byte_ns = 4.0e-5},
          .unmap_pages = {.base_ns = 20'500, .per_byte_ns = 8.0e-6}};
}

}  // namespace headroom::device
