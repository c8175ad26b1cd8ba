// Reads PyTorch's out-of-memory text back, as people paste it: out of a log, with colours, broken
// into lines anywhere. The inverse of pytorch_message.h, for every release since 1.0.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/result.h"
#include "headroom/memory/account.h"

namespace headroom::memory {

// Each is a number of the text; unset where it has none. Sizes are printed with two decimals, so
// they are exact to 0.005 of their unit.
struct PyTorchMessage {
  std::uint64_t asked_bytes = 0;  // of the device: the segment, not the tensor
  bool is_rejection = false;      // throw_on_cudamalloc_oom refused it before anything was tried
  bool is_absurd = false;         // 1 EiB or more were asked for
  int device = 0;
  std::optional<std::uint64_t> total_bytes{};
  std::optional<std::uint64_t> free_bytes{};
  std::optional<std::uint64_t> this_process_bytes{};  // non-PyTorch memory included
  bool names_this_process = false;                    // though the number may be nonsense
  std::vector<device::ProcessMemory> other_processes{};
  std::optional<std::uint64_t> limit_bytes{};
  std::optional<std::uint64_t> allocated_bytes{};  // with what private pools have cached
  std::optional<std::uint64_t> private_pool_bytes{};
  std::optional<std::uint64_t> unallocated_bytes{};  // reserved, and nobody's
  bool is_expandable = false;                        // said by 2.15 and later, or set in the log
  std::size_t messages = 1;                          // in the text; this is the last one

  [[nodiscard]] std::uint64_t reserved_bytes() const noexcept {
    return allocated_bytes.value_or(0) + unallocated_bytes.value_or(0);
  }
};

// The error is one sentence.
[[nodiscard]] Result<PyTorchMessage, std::string> parse_pytorch_message(std::string_view text);

// The account in the numbers, in lines that add up to the card; or to what is known, where the text
// does not name the card. What was cached when it failed is counted as hard: PyTorch has given
// whole segments back before it fails.
[[nodiscard]] Account account_of(const PyTorchMessage& message);

}  // namespace headroom::memory
