#include "headroom/memory/pytorch_message.h"

#include <array>
#include <cstdio>

#include "headroom/base/bytes.h"
#include "headroom/base/checked.h"

namespace headroom::memory {
namespace {

std::string processes_text(const Account& account) {
  std::string out;
  for (const device::ProcessMemory& process : account.processes) {
    out += process.is_self ? "Including non-PyTorch memory, this process"
                           : "Process " + std::to_string(process.pid);
    out += " has " + pytorch_size(process.used_bytes) + " memory in use. ";
  }
  return out;
}

std::string allocated_text(const Account& account, std::uint64_t private_cached) {
  const std::uint64_t allocated = saturating_add(account.live(), account.rounding_bytes);
  const std::uint64_t counted = saturating_add(allocated, private_cached);
  std::string out =
      "Of the allocated memory " + pytorch_size(counted) + " is allocated by PyTorch, ";
  if (private_cached > 0) {
    out += "with " + pytorch_size(private_cached) +
           " allocated in private pools (e.g., CUDA Graphs), ";
  }
  return out + "and " + pytorch_size(saturating_subtract(account.reserved(), counted)) +
         " is reserved by PyTorch but unallocated.";
}

// 2.10 named the variable PYTORCH_ALLOC_CONF; 2.11 went back and moved the page.
std::string advice(PyTorchVersion version) {
  const bool is_210 = version >= kPyTorch210 && version < kPyTorch211;
  return std::string(" If reserved but unallocated memory is large try setting ") +
         (is_210 ? "PYTORCH_ALLOC_CONF" : "PYTORCH_CUDA_ALLOC_CONF") +
         "=expandable_segments:True to avoid fragmentation.  See documentation for Memory "
         "Management  (" +
         (version < kPyTorch211
              ? "https://pytorch.org/docs/stable/notes/cuda.html#environment-variables"
              : "https://docs.pytorch.org/docs/stable/notes/cuda.html"
                "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf") +
         ")";
}

std::string reserve_hint(std::uint64_t reserve, std::uint64_t asked) {
  return " This allocation exceeds the expandable-segment reserve of " + pytorch_size(reserve) +
         " for this stream, and a single allocation cannot span expandable segments. Raise "
         "PYTORCH_CUDA_ALLOC_CONF expandable_segments_reserve or "
         "expandable_segments_reserve_by_class (or unset it) so that a segment is at least " +
         pytorch_size(asked) + ".";
}

constexpr const char* kAddressSpaceHint =
    " expandable_segments is enabled. If instead the process is running out of virtual address "
    "space (VSZ), expandable segments may be over-reserving VA (each segment reserves ~9/8 of "
    "device memory, times the number of streams); reduce it via PYTORCH_CUDA_ALLOC_CONF "
    "expandable_segments_reserve / expandable_segments_reserve_by_class.";

std::string hint(const Account& account, const PyTorchMessageOptions& options) {
  // Up to 2.13 the advice to turn it on was given even when it was on.
  if (!account.is_expandable || options.version < kPyTorch214) return advice(options.version);
  if (options.version < kPyTorch215) return "";
  const std::uint64_t full = saturating_add(account.total_bytes, account.total_bytes / 8);
  const std::uint64_t reserve = options.expandable_reserve_bytes.value_or(full);
  const std::uint64_t asked = account.segment_asked_bytes;
  if (asked <= account.total_bytes && reserve < asked) return reserve_hint(reserve, asked);
  return kAddressSpaceHint;
}

}  // namespace

std::string pytorch_size(std::uint64_t size_bytes) {
  if (size_bytes <= 1_KiB) return std::to_string(size_bytes) + " bytes";
  std::array<char, 48> text{};
  const auto size = static_cast<double>(size_bytes);
  if (size_bytes <= 1_MiB) {
    std::snprintf(text.data(), text.size(), "%.2f KiB", size / 0x1p10);
  } else if (size_bytes <= 1_GiB) {
    std::snprintf(text.data(), text.size(), "%.2f MiB", size / 0x1p20);
  } else {
    std::snprintf(text.data(), text.size(), "%.2f GiB", size / 0x1p30);
  }
  return text.data();
}

std::string pytorch_message(const Account& account, const PyTorchMessageOptions& options) {
  std::string out = "CUDA out of memory. Tried to allocate " +
                    pytorch_size(account.segment_asked_bytes) + ". GPU " +
                    std::to_string(account.device.index) + " has a total capacity of " +
                    pytorch_size(account.total_bytes) + " of which " +
                    pytorch_size(account.free_bytes) + " is free. " + processes_text(account);
  if (account.limit_bytes) out += pytorch_size(*account.limit_bytes) + " allowed; ";
  return out + allocated_text(account, options.private_cached_bytes) + hint(account, options);
}

std::string pytorch_rejection_message(std::uint64_t size_bytes) {
  return "CUDA out of memory. Allocation was preemptively rejected because it would exceed "
         "per_process_memory_fraction limit. Requested size: " +
         pytorch_size(size_bytes);
}

std::string pytorch_absurd_size_message() {
  return "CUDA out of memory. Tried to allocate more than 1EB memory.";
}

std::string pytorch_message(const OutOfMemoryReport& report) {
  switch (report.reason) {
    case FailureReason::kTooLarge:
      return pytorch_absurd_size_message();
    case FailureReason::kRejected:
      return pytorch_rejection_message(report.account.asked_bytes);
    default:
      return pytorch_message(report.account,
                             {.version = report.version,
                              .private_cached_bytes = report.cached_private_bytes,
                              .expandable_reserve_bytes = report.expandable_reserve_bytes});
  }
}

}  // namespace headroom::memory
