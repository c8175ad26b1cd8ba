// Values of sleep and wake: memory that is not needed for a while goes back to the device, and its
// addresses stay.
//
//   { AnnotationScope scope("weights"); weights = allocator.allocate(14_GiB); }
//   allocator.sleep("weights", SleepContents::kKeptOnHost);   // 14 GiB are the device's again
//   ...
//   allocator.wake("weights");                                // at the same address, as it was
#pragma once

#include <cstddef>
#include <cstdint>

namespace headroom::memory {

// What becomes of the bytes of blocks that sleep.
enum class SleepContents : std::uint8_t {
  kDiscarded,   // they are undefined after waking
  kKeptOnHost,  // they are copied to host memory, pinned where there is some, and back
};

// What Allocator::sleep or Allocator::wake did.
struct SleepChange {
  std::size_t blocks = 0;          // that sleep now, or are awake again
  std::uint64_t block_bytes = 0;   // of these
  std::uint64_t device_bytes = 0;  // given back to the device, or taken from it
};

}  // namespace headroom::memory
