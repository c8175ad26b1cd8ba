// The allocator's settings: PyTorch's whole PYTORCH_CUDA_ALLOC_CONF grammar, and ours.
//
//   auto parsed = parse_config("max_split_size_mb:128,expandable_segments:True", {});
//   if (!parsed) complain(parsed.error());
//   allocator.configure(parsed->config);
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/result.h"
#include "headroom/memory/types.h"

namespace headroom::memory {

// Where PyTorch's releases decide differently (docs/design/). A release we do not list behaves as
// the newest listed one before it.
struct PyTorchVersion {
  int major = 2;
  int minor = 13;

  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 misreads a defaulted comparison
  friend auto operator<=>(const PyTorchVersion&, const PyTorchVersion&) = default;
};

inline constexpr PyTorchVersion kPyTorch29{2, 9};
inline constexpr PyTorchVersion kPyTorch210{2, 10};
inline constexpr PyTorchVersion kPyTorch211{2, 11};
inline constexpr PyTorchVersion kPyTorch212{2, 12};
inline constexpr PyTorchVersion kPyTorch213{2, 13};
inline constexpr PyTorchVersion kPyTorch214{2, 14};
inline constexpr PyTorchVersion kPyTorch215{2, 15};

// Reads `2.11`, `2.11.0`, `2.11.0+cu130`.
[[nodiscard]] Result<PyTorchVersion, std::string> parse_pytorch_version(std::string_view text);

// Keys of PyTorch's allocator of pinned memory. Headroom has no such allocator and keeps them to
// write settings again as they were read: as text (config_text.cpp), and into recordings.
struct PinnedConfig {
  bool use_host_register = false;
  std::uint64_t register_threads = 1;
  bool use_background_threads = false;
  std::uint64_t reserve_segment_bytes = 0;
  std::optional<std::uint64_t> max_round_bytes{};
  std::optional<std::uint64_t> max_cached_bytes{};
  bool free_catch_all = false;
};

struct AllocatorConfig {
  static constexpr std::uint64_t kUnlimited = UINT64_MAX;

  // Blocks at or above this are never split, and serve only requests at or above it.
  std::uint64_t max_split_bytes = kUnlimited;
  // By how much such a block may exceed the request it serves. Unset: one large segment.
  std::optional<std::uint64_t> max_non_split_rounding_bytes{};
  std::uint64_t large_segment_bytes = kLargeSegmentBytes;
  // Divisions per power of two, for sizes below 2 MiB (entry 0), in [2^k, 2^(k+1)) MiB (entry k),
  // from 32 GiB (entry 15). 0 and 1 mean plain rounding to 512.
  std::array<std::uint64_t, 16> roundup_power2_divisions{};
  // Collect cached segments when more than this share of the limit is reserved; 0 is never. Has
  // no effect without a limit.
  double garbage_collection_threshold = 0;
  bool expandable_segments = false;
  // Address space of an expandable segment; unset is 9/8 of the device. A share or bytes.
  std::optional<double> expandable_reserve_fraction{};
  std::optional<std::uint64_t> expandable_reserve_bytes{};
  // The limit an allocator starts with, as a share of the device.
  double memory_fraction = 1.0;
  // Reject, without trying anything, what would pass memory_fraction.
  bool throw_on_device_out_of_memory = false;
  bool release_lock_on_device_alloc = false;
  bool graph_capture_record_stream_reuse = false;
  std::string backend = "native";
  PinnedConfig pinned{};
  // The text these settings were last read from; what a snapshot reports.
  std::string text{};

  [[nodiscard]] std::uint64_t max_non_split_rounding() const noexcept {
    return max_non_split_rounding_bytes.value_or(large_segment_bytes);
  }
};

enum class ConfigDialect : std::uint8_t {
  // HEADROOM_ALLOC_CONF and command lines: anything odd is an error that names it.
  kStrict,
  // PYTORCH_*_ALLOC_CONF: what PyTorch accepts is accepted, what it refuses is refused, and what
  // it would silently ignore is a warning.
  kPyTorch,
};

struct ParsedConfig {
  AllocatorConfig config{};
  std::vector<std::string> warnings{};
};

struct ParseOptions {
  ConfigDialect dialect = ConfigDialect::kStrict;
  PyTorchVersion version{};
  // The config that the text changes. As in PyTorch, every reading first resets max_split_size,
  // max_non_split_rounding (from 2.11 on), roundup_power2_divisions and
  // garbage_collection_threshold; settings that it does not name keep their values.
  AllocatorConfig base{};
};

[[nodiscard]] Result<ParsedConfig, std::string> parse_config(std::string_view text,
                                                             const ParseOptions& options = {});

// The settings that differ from the defaults, as text that parse_config reads back (strictly, and
// by a version that has the keys). Sizes are whole MiB there, as the grammar has no other; `text`
// is not looked at.
[[nodiscard]] std::string to_string(const AllocatorConfig& config);

// The size that PyTorch rounds a request to before it looks for a block.
[[nodiscard]] std::uint64_t rounded_size(std::uint64_t requested_bytes,
                                         const AllocatorConfig& config) noexcept;
// The segment it would take from the device for a request of that rounded size.
[[nodiscard]] std::uint64_t new_segment_size(std::uint64_t rounded_bytes,
                                             const AllocatorConfig& config) noexcept;

// The first of HEADROOM_ALLOC_CONF (strict), PYTORCH_CUDA_ALLOC_CONF, PYTORCH_HIP_ALLOC_CONF and
// PYTORCH_ALLOC_CONF that is set, alone; up to 2.9 PyTorch reads only the second. The error and the
// warnings name the variable.
[[nodiscard]] Result<ParsedConfig, std::string> config_from_environment(
    PyTorchVersion version = {});

}  // namespace headroom::memory
