#include "headroom/memory/config.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <utility>

#include "headroom/base/bytes.h"
#include "headroom/base/checked.h"
#include "headroom/memory/internal/config_numbers.h"
#include "headroom/memory/internal/config_tokens.h"
#include "headroom/memory/internal/rounding.h"

namespace headroom::memory {
namespace {

using internal::ConfigEntry;
using internal::ConfigKey;
using internal::ConfigPair;
using internal::in_quotes;
using internal::NumberFault;

// Nothing, or why the text cannot be taken.
using Complaint = std::optional<std::string>;

constexpr std::uint64_t kMaxMebibytes = UINT64_MAX >> 20U;
constexpr std::uint64_t kMaxRegisterThreads = 128;

std::string number(std::uint64_t value) { return std::to_string(value); }

std::uint64_t from_mebibytes(std::uint64_t count) { return std::min(count, kMaxMebibytes) << 20U; }

// Bytes of a share of 2^30; saturates where a double would not fit.
std::uint64_t from_gibibytes(double count) {
  const double size_bytes = count * static_cast<double>(1_GiB);
  return size_bytes >= 0x1p64 ? UINT64_MAX : static_cast<std::uint64_t>(size_bytes);
}

// The smallest value max_split_size_mb and max_non_split_rounding_mb take.
std::uint64_t least_split_mebibytes(PyTorchVersion version, std::uint64_t large_segment_bytes) {
  if (version < kPyTorch210) return 21;
  return version < kPyTorch211 ? 20 : large_segment_bytes >> 20U;
}

// Gives entries their meaning: one member function per kind of value, one case per key. Each
// complaint names the key, quotes what was found and says what is allowed; in PyTorch's dialect it
// starts with PyTorch's words.
class Interpreter {
 public:
  Interpreter(const ParseOptions& options, ParsedConfig& out)
      : is_strict_(options.dialect == ConfigDialect::kStrict),
        version_(options.version),
        config_(out.config),
        warnings_(out.warnings) {}

  Complaint apply(const std::vector<ConfigEntry>& entries) {
    // Others are checked against the segment size, so its position must not matter.
    for (const ConfigEntry& entry : entries) {
      if (entry.info->key != ConfigKey::kLargeSegmentSize) continue;
      if (Complaint complaint = large_segment(entry)) return complaint;
    }
    for (const ConfigEntry& entry : entries) {
      if (Complaint complaint = apply(entry)) return complaint;
    }
    warn_of_idle_settings(entries);
    return std::nullopt;
  }

 private:
  Complaint apply(const ConfigEntry& entry) {
    switch (entry.info->key) {
      case ConfigKey::kBackend:
        return backend(entry);
      case ConfigKey::kLargeSegmentSize:
        return std::nullopt;  // taken first
      case ConfigKey::kMaxSplitSize:
        return split_size(entry, [&](std::uint64_t size) { config_.max_split_bytes = size; });
      case ConfigKey::kMaxNonSplitRounding:
        return split_size(entry,
                          [&](std::uint64_t size) { config_.max_non_split_rounding_bytes = size; });
      case ConfigKey::kRoundupPower2Divisions:
        return entry.is_list ? division_list(entry) : division_scalar(entry);
      case ConfigKey::kGarbageCollectionThreshold:
        return garbage_collection(entry);
      case ConfigKey::kExpandableSegments:
        return flag(entry, config_.expandable_segments);
      case ConfigKey::kExpandableReserve:
        return reserve(entry);
      case ConfigKey::kExpandableReserveByClass:
        return reserve_by_class(entry);
      case ConfigKey::kReleaseLock:
        return flag(entry, config_.release_lock_on_device_alloc);
      case ConfigKey::kGraphCaptureReuse:
        return flag(entry, config_.graph_capture_record_stream_reuse);
      case ConfigKey::kMemoryFraction:
        return fraction(entry);
      case ConfigKey::kThrowOnOutOfMemory:
        return flag(entry, config_.throw_on_device_out_of_memory);
      default:
        return apply_pinned(entry);
    }
  }

  Complaint apply_pinned(const ConfigEntry& entry) {
    PinnedConfig& pinned = config_.pinned;
    switch (entry.info->key) {
      case ConfigKey::kPinnedHostRegister:
        return flag(entry, pinned.use_host_register);
      case ConfigKey::kPinnedRegisterThreads:
        return register_threads(entry);
      case ConfigKey::kPinnedBackgroundThreads:
        return flag(entry, pinned.use_background_threads);
      case ConfigKey::kPinnedReserveSegment:
        return mebibytes(
            entry, 1, "Pinned reserve segment size has to be greater than 0", [&](auto size) {
              pinned.reserve_segment_bytes = size;
            });
      case ConfigKey::kPinnedMaxRound:
        return mebibytes(entry, 0, "", [&](auto size) { pinned.max_round_bytes = size; });
      case ConfigKey::kPinnedMaxCached:
        return mebibytes(entry, 0, "", [&](auto size) { pinned.max_cached_bytes = size; });
      default:
        return flag(entry, pinned.free_catch_all);
    }
  }

  // --- Kinds of values ---

  Complaint flag(const ConfigEntry& entry, bool& out) {
    if (entry.value == "True" || entry.value == "False") {
      out = entry.value == "True";
      return std::nullopt;
    }
    if (is_strict_) return refuse(entry, entry.value, "True or False");
    if (internal::has_old_parser(version_)) {
      return pytorch("Expected a single True/False argument for " + std::string(entry.info->name),
                     entry);
    }
    return "Expected 'True' or 'False' at index " + number(entry.value_index) +
           " in ConfigTokenizer but got " + in_quotes(entry.value);
  }

  // Reads a whole number of `text`, which belongs to `entry`.
  Result<std::uint64_t, std::string> whole(const ConfigEntry& entry,
                                           std::string_view text,
                                           std::string_view allowed) {
    if (is_strict_) {
      if (const auto value = internal::read_whole(text)) return *value;
      return Unexpected(refuse(entry, text, allowed));
    }
    const bool is_old = internal::has_old_parser(version_);
    const auto read = is_old ? internal::read_like_stoi(text) : internal::read_like_stoull(text);
    if (read.fault != NumberFault::kNone) {
      return Unexpected(not_a_number(is_old ? "stoi" : "stoull", entry, text, read.fault));
    }
    if (read.has_trailing_junk || read.has_wrapped) warn_read_as(entry, text, number(read.value));
    return read.value;
  }

  Result<double, std::string> real(const ConfigEntry& entry, std::string_view allowed) {
    if (is_strict_) {
      if (const auto value = internal::read_real(entry.value)) return *value;
      return Unexpected(refuse(entry, entry.value, allowed));
    }
    const auto read = internal::read_like_stod(entry.value);
    if (read.fault != NumberFault::kNone) {
      return Unexpected(not_a_number("stod", entry, entry.value, read.fault));
    }
    if (read.has_trailing_junk) {
      warn_read_as(entry, entry.value, std::to_string(read.value));
    }
    return read.value;
  }

  // A size in MiB, at least `least`; `pytorch_words` is what PyTorch says below that.
  template <class Set>
  Complaint mebibytes(const ConfigEntry& entry,
                      std::uint64_t least,
                      const std::string& pytorch_words,
                      Set&& set) {
    const std::string allowed =
        "a whole number from " + number(least) + " to " + number(kMaxMebibytes) + " (MiB)";
    const auto count = whole(entry, entry.value, allowed);
    if (!count) return count.error();
    if (is_strict_ && (*count < least || *count > kMaxMebibytes)) {
      return refuse(entry, entry.value, allowed);
    }
    if (*count < least) return pytorch(pytorch_words, entry);
    set(from_mebibytes(*count));
    return std::nullopt;
  }

  // --- Keys with rules of their own ---

  Complaint backend(const ConfigEntry& entry) {
    if (entry.value == "native" || entry.value == "cudaMallocAsync") {
      config_.backend = entry.value;
      return std::nullopt;
    }
    if (is_strict_) return refuse(entry, entry.value, "native or cudaMallocAsync");
    return pytorch("Unknown allocator backend, options are native and cudaMallocAsync", entry);
  }

  Complaint large_segment(const ConfigEntry& entry) {
    return mebibytes(entry,
                     (kOwnSegmentBytes >> 20U) + 1,
                     "CachingAllocator option large_segment_size_mb must be > 10 MB",
                     [&](std::uint64_t size) { config_.large_segment_bytes = size; });
  }

  template <class Set>
  Complaint split_size(const ConfigEntry& entry, Set&& set) {
    const std::uint64_t least = least_split_mebibytes(version_, config_.large_segment_bytes);
    const std::string bound =
        version_ < kPyTorch210 ? "> " + number(least - 1) : ">= " + number(least);
    return mebibytes(
        entry,
        least,
        "CachingAllocator option " + std::string(entry.info->name) + " too small, must be " + bound,
        std::forward<Set>(set));
  }

  Complaint garbage_collection(const ConfigEntry& entry) {
    constexpr std::string_view kAllowed = "a number above 0 and below 1";
    const auto value = real(entry, kAllowed);
    if (!value) return value.error();
    if (*value > 0 && *value < 1) {
      config_.garbage_collection_threshold = *value;
      return std::nullopt;
    }
    if (is_strict_) return refuse(entry, entry.value, kAllowed);
    if (internal::has_old_parser(version_)) {
      return pytorch(*value < 1 ? "garbage_collect_threshold too small, set it 0.0~1.0"
                                : "garbage_collect_threshold too big, set it 0.0~1.0",
                     entry);
    }
    return pytorch("garbage_collect_threshold is invalid, set it in (0.0, 1.0)", entry);
  }

  Complaint fraction(const ConfigEntry& entry) {
    constexpr std::string_view kAllowed = "a number from 0 to 1";
    const auto value = real(entry, kAllowed);
    if (!value) return value.error();
    if (*value >= 0 && *value <= 1) {
      config_.memory_fraction = *value;
      return std::nullopt;
    }
    if (is_strict_) return refuse(entry, entry.value, kAllowed);
    return pytorch("per_process_memory_fraction is invalid, set it in [0.0, 1.0]", entry);
  }

  Complaint register_threads(const ConfigEntry& entry) {
    constexpr std::string_view kAllowed = "a power of two from 1 to 128";
    const auto count = whole(entry, entry.value, kAllowed);
    if (!count) return count.error();
    if (is_power_of_two(*count) && *count <= kMaxRegisterThreads) {
      config_.pinned.register_threads = *count;
      return std::nullopt;
    }
    if (is_strict_) return refuse(entry, entry.value, kAllowed);
    return is_power_of_two(*count)
               ? "Number of register threads should be less than or equal to 128, got " +
                     number(*count)
               : "Number of register threads has to be power of 2, got " + number(*count);
  }

  Complaint division_scalar(const ConfigEntry& entry) {
    constexpr std::string_view kAllowed =
        "a power of two (1 is plain rounding), or a list such as [256:1,512:2,>:4]";
    const auto value = whole(entry, entry.value, kAllowed);
    if (!value) return value.error();
    if (is_power_of_two(*value)) {
      config_.roundup_power2_divisions.fill(*value);
      return std::nullopt;
    }
    if (is_strict_) return refuse(entry, entry.value, kAllowed);
    return pytorch("For roundups, the divisions has to be power of 2", entry);
  }

  // `[k1:v1,k2:v2,>:v]`, keys in MiB. The first numeric key also covers everything below it; what
  // lies between two keys stays 0.
  Complaint division_list(const ConfigEntry& entry) {
    auto& divisions = config_.roundup_power2_divisions;
    std::size_t last = 0;
    bool is_first = true;
    for (const ConfigPair& pair : entry.list) {
      const auto value = division_value(entry, pair);
      if (!value) return value.error();
      if (pair.key == ">") {
        if (is_strict_ && &pair != &entry.list.back()) {
          return refuse(entry, "> before the last item", "> only as the last item");
        }
        // Up to 2.9 the last key's own entry was overwritten.
        const std::size_t first = last + (version_ < kPyTorch210 ? 0 : 1);
        std::fill(divisions.begin() + static_cast<std::ptrdiff_t>(first), divisions.end(), *value);
        continue;
      }
      const auto index = division_index(entry, pair);
      if (!index) return index.error();
      if (is_strict_ && !is_first && *index <= last) {
        return refuse(entry, pair.key, "keys in ascending order, each once");
      }
      if (is_first) std::fill_n(divisions.begin(), *index, *value);
      is_first = false;
      divisions[*index] = *value;
      last = *index;
    }
    return std::nullopt;
  }

  Result<std::uint64_t, std::string> division_value(const ConfigEntry& entry,
                                                    const ConfigPair& pair) {
    constexpr std::string_view kAllowed = "0 or a power of two for each interval";
    auto value = whole(entry, pair.value, kAllowed);
    if (!value || *value == 0 || is_power_of_two(*value)) return value;
    if (is_strict_) return Unexpected(refuse(entry, pair.value, kAllowed));
    return Unexpected(found(
        "For roundups, the divisions has to be power of 2 or 0 to disable roundup", pair.value));
  }

  Result<std::size_t, std::string> division_index(const ConfigEntry& entry,
                                                  const ConfigPair& pair) {
    constexpr std::string_view kAllowed =
        "a power of two from 1 to 32768 (MiB), or > for the rest, as a key";
    constexpr std::size_t kLast = 15;
    const auto key = whole(entry, pair.key, kAllowed);
    if (!key) return Unexpected(key.error());
    if (!is_power_of_two(*key)) {
      if (is_strict_) return Unexpected(refuse(entry, pair.key, kAllowed));
      return Unexpected(found("For roundups, the intervals have to be power of 2", pair.key));
    }
    const auto index = static_cast<std::size_t>(std::countr_zero(*key));
    if (is_strict_ && index > kLast) return Unexpected(refuse(entry, pair.key, kAllowed));
    return std::min(index, kLast);
  }

  // A share of the device, or `<n>G`. PyTorch passes over what it cannot read.
  Complaint reserve(const ConfigEntry& entry) {
    std::string_view text = entry.value;
    const bool is_absolute = text.ends_with('G') || text.ends_with('g');
    if (is_absolute) text.remove_suffix(1);
    const auto value = internal::read_real(text);
    if (!value || *value <= 0) return bad_reserve(entry, entry.value);
    config_.expandable_reserve_fraction.reset();
    config_.expandable_reserve_bytes.reset();
    if (is_absolute) {
      config_.expandable_reserve_bytes = from_gibibytes(*value);
    } else {
      config_.expandable_reserve_fraction = *value;
    }
    return std::nullopt;
  }

  Complaint reserve_by_class(const ConfigEntry& entry) {
    for (const ConfigPair& pair : entry.list) {
      std::string_view text = pair.value;
      if (text.ends_with('G') || text.ends_with('g')) text.remove_suffix(1);
      const auto value = internal::read_real(text);
      if (value && *value > 0) continue;
      if (Complaint complaint = bad_reserve(entry, pair.value)) return complaint;
    }
    warn(std::string(entry.info->name) + " has no effect: streams have no classes here");
    return std::nullopt;
  }

  Complaint bad_reserve(const ConfigEntry& entry, std::string_view text) {
    constexpr std::string_view kAllowed =
        "a positive share of the device such as 0.5, or a size in GiB such as 40G";
    if (is_strict_) return refuse(entry, text, kAllowed);
    warn(refuse(entry, text, kAllowed) + "; PyTorch ignores it");
    return std::nullopt;
  }

  // --- What is said ---

  static std::string refuse(const ConfigEntry& entry,
                            std::string_view text,
                            std::string_view allowed) {
    return std::string(entry.info->name) + ": found " + in_quotes(text) + ", allowed is " +
           std::string(allowed);
  }

  static std::string found(const std::string& words, std::string_view text) {
    return words + " (found " + in_quotes(text) + ")";
  }
  static std::string pytorch(const std::string& words, const ConfigEntry& entry) {
    return found(words, entry.value);
  }

  static std::string not_a_number(const char* function,
                                  const ConfigEntry& entry,
                                  std::string_view text,
                                  NumberFault fault) {
    return std::string(function) + ": " + std::string(entry.info->name) + ": " + in_quotes(text) +
           (fault == NumberFault::kOutOfRange ? " is out of range" : " is not a number");
  }

  void warn(std::string message) { warnings_.push_back(std::move(message)); }

  void warn_read_as(const ConfigEntry& entry, std::string_view text, const std::string& value) {
    warn(std::string(entry.info->name) + ": PyTorch reads " + in_quotes(text) + " as " + value);
  }

  // Settings that are well formed, yet do nothing.
  void warn_of_idle_settings(const std::vector<ConfigEntry>& entries) {
    const auto names = [&](ConfigKey key) {
      return std::ranges::any_of(entries,
                                 [&](const auto& entry) { return entry.info->key == key; });
    };
    if (names(ConfigKey::kBackend) && config_.backend == "cudaMallocAsync" && entries.size() > 1) {
      warn("backend:cudaMallocAsync does not use the other settings; they are for native");
    }
    if (!is_strict_ && names(ConfigKey::kGarbageCollectionThreshold) &&
        config_.memory_fraction >= 1) {
      warn("garbage_collection_threshold has no effect without a memory fraction below 1");
    }
  }

  const bool is_strict_;
  const PyTorchVersion version_;
  AllocatorConfig& config_;
  std::vector<std::string>& warnings_;
};

}  // namespace

Result<ParsedConfig, std::string> parse_config(std::string_view text, const ParseOptions& options) {
  ParsedConfig out{.config = options.base};
  out.config.max_split_bytes = AllocatorConfig::kUnlimited;
  // Before 2.11 this one kept its value.
  if (options.version >= kPyTorch211) out.config.max_non_split_rounding_bytes.reset();
  out.config.roundup_power2_divisions.fill(0);
  out.config.garbage_collection_threshold = 0;
  out.config.text = text;

  const auto read = internal::read_config_entries(text, options, out.warnings);
  if (Complaint complaint = Interpreter(options, out).apply(read.entries)) {
    return Unexpected(std::move(*complaint));
  }
  if (!read.error.empty()) return Unexpected(read.error);
  return out;
}

std::uint64_t rounded_size(std::uint64_t requested_bytes, const AllocatorConfig& config) noexcept {
  return internal::round_size(requested_bytes, config);
}

std::uint64_t new_segment_size(std::uint64_t rounded_bytes,
                               const AllocatorConfig& config) noexcept {
  return internal::segment_size(rounded_bytes, config);
}

}  // namespace headroom::memory
