// The settings of a PagedAllocator.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "headroom/base/bytes.h"

namespace headroom::memory {

// After `after` without an allocation that needed the device, keep at most `keep_bytes` cached.
struct IdlePolicy {
  std::chrono::milliseconds after{5000};
  std::uint64_t keep_bytes = 2_GiB;

  friend bool operator==(const IdlePolicy&, const IdlePolicy&) = default;
};

// Pages are rounded up to the device's granularity, large ones to whole small ones.
struct PagedOptions {
  std::uint64_t page_bytes = 4_MiB;         // physical handles behind blocks, halves of it too, ...
  std::uint64_t large_page_bytes = 32_MiB;  // ... and behind blocks of at least
  std::uint64_t large_from_bytes = 128_MiB;
  // New pages are created freely while reserved is at most the peak of live bytes, times one plus
  // the fraction, plus the bytes; past that, free pages are moved first.
  double cushion_fraction = 0.022;
  // Where moving takes a sixteenth of the time, the fraction grows, up to this; not under a limit.
  // Without a value, 0.15 on a GPU (and a meta device that stands for one), where programs wait for
  // the driver; on the cpu it stays as it is, and what is reserved depends on the requests alone.
  std::optional<double> widest_cushion_fraction{};
  std::uint64_t cushion_bytes = 4_MiB;
  bool uses_magazines = true;  // the per-thread caches of small blocks
  std::optional<IdlePolicy> idle{};

  friend bool operator==(const PagedOptions&, const PagedOptions&) = default;
};

}  // namespace headroom::memory
