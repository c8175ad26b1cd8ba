// PyTorch's own out-of-memory text, character for character, for tools and people that know it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "headroom/memory/account.h"
#include "headroom/memory/config.h"
#include "headroom/memory/out_of_memory.h"

namespace headroom::memory {

// Facts in PyTorch's text beyond the account.
struct PyTorchMessageOptions {
  PyTorchVersion version{};
  // Free blocks of private pools; PyTorch reports them as allocated there.
  std::uint64_t private_cached_bytes = 0;
  // The address space of an expandable segment; unset is the usual 9/8 of the device.
  std::optional<std::uint64_t> expandable_reserve_bytes{};
};

// `N bytes`, `x.xx KiB`, `x.xx MiB` or `x.xx GiB`; a boundary belongs to the lower unit.
[[nodiscard]] std::string pytorch_size(std::uint64_t size_bytes);

// "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of ...". The size in
// it is the segment's, as PyTorch has it: a request of 1 byte reports 2.00 MiB.
[[nodiscard]] std::string pytorch_message(const Account& account,
                                          const PyTorchMessageOptions& options = {});

// PyTorch's message for the same failure, for tools that parse it.
[[nodiscard]] std::string pytorch_message(const OutOfMemoryReport& report);

// For a request that throw_on_cudamalloc_oom refused; `size_bytes` as the caller asked.
[[nodiscard]] std::string pytorch_rejection_message(std::uint64_t size_bytes);

// For a request of 1 EiB or more.
[[nodiscard]] std::string pytorch_absurd_size_message();

}  // namespace headroom::memory
