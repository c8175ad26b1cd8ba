// The syntax of allocator settings: text to entries, in both dialects. What the values mean is
// config.cpp's concern.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/memory/config.h"

namespace headroom::memory::internal {

// In PyTorch's order: the first that is set counts alone.
inline constexpr std::array<const char*, 3> kPyTorchVariables{
    "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"};

enum class ConfigKey : std::uint8_t {
  kBackend,
  kLargeSegmentSize,
  kMaxSplitSize,
  kMaxNonSplitRounding,
  kRoundupPower2Divisions,
  kGarbageCollectionThreshold,
  kExpandableSegments,
  kExpandableReserve,
  kExpandableReserveByClass,
  kReleaseLock,
  kGraphCaptureReuse,
  kMemoryFraction,
  kThrowOnOutOfMemory,
  kPinnedHostRegister,
  kPinnedRegisterThreads,
  kPinnedBackgroundThreads,
  kPinnedReserveSegment,
  kPinnedMaxRound,
  kPinnedMaxCached,
  kPinnedFreeCatchAll,
};

enum class ConfigShape : std::uint8_t { kScalar, kScalarOrList, kList };

struct ConfigKeyInfo {
  std::string_view name;
  ConfigKey key;
  PyTorchVersion since{0, 0};  // the first release that knows it
  ConfigShape shape = ConfigShape::kScalar;
};

struct ConfigPair {
  std::string key;
  std::string value;
};

// `key:value`, or `key:[k:v,...]` with `is_list`.
struct ConfigEntry {
  const ConfigKeyInfo* info = nullptr;
  bool is_list = false;
  std::string value{};
  std::size_t value_index = 0;  // of the value's token; PyTorch's messages name it
  std::vector<ConfigPair> list{};
};

// PyTorch up to 2.9 checked its separators and read numbers as int.
[[nodiscard]] constexpr bool has_old_parser(PyTorchVersion version) noexcept {
  return version < kPyTorch210;
}

// Text from outside, fit for a message: in quotes, short, what is not ASCII replaced.
[[nodiscard]] std::string in_quotes(std::string_view text);

// The entries that were read, up to the first error of syntax. Faults of the entries themselves
// come before that error, as they do in PyTorch, which reads and applies in one go.
struct ConfigEntries {
  std::vector<ConfigEntry> entries{};
  std::string error{};  // empty when all was read
};

[[nodiscard]] ConfigEntries read_config_entries(std::string_view text,
                                                const ParseOptions& options,
                                                std::vector<std::string>& warnings);

}  // namespace headroom::memory::internal
