// Settings from the environment, as text, and the version they are for.
#include <array>
#include <charconv>
#include <cstdlib>

#include "headroom/base/env.h"
#include "headroom/memory/config.h"
#include "headroom/memory/internal/config_tokens.h"

namespace headroom::memory {
namespace {

using internal::kPyTorchVariables;

constexpr const char* kOwnVariable = "HEADROOM_ALLOC_CONF";

Result<ParsedConfig, std::string> parse_variable(const char* name,
                                                 std::string_view text,
                                                 ConfigDialect dialect,
                                                 PyTorchVersion version) {
  auto parsed = parse_config(text, {.dialect = dialect, .version = version});
  const std::string prefix = std::string(name) + ": ";
  if (!parsed) return Unexpected(prefix + parsed.error());
  for (std::string& warning : parsed->warnings) warning.insert(0, prefix);
  return parsed;
}

// --- Writing -------------------------------------------------------------------------------------

// The shortest digits that read back as the same number.
std::string number(double value) {
  std::array<char, 64> text{};
  const auto result = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), result.ptr};
}

std::string mebibytes(std::uint64_t size_bytes) { return std::to_string(size_bytes >> 20U); }

class Writer {
 public:
  void put(std::string_view key, const std::string& value) {
    if (!text_.empty()) text_ += ',';
    text_.append(key).append(":").append(value);
  }
  void put_flag(std::string_view key, bool value) {
    if (value) put(key, "True");
  }
  [[nodiscard]] std::string text() && { return std::move(text_); }

 private:
  std::string text_;
};

using Divisions = std::array<std::uint64_t, 16>;

// One number when all entries agree. Otherwise a list: its first key covers all below it, and
// entries without a key are 0. `>` is left out, since 2.9 reads it differently.
std::string write_divisions(const Divisions& divisions) {
  std::size_t first = 0;
  while (first + 1 < divisions.size() && divisions[first + 1] == divisions[0]) ++first;
  if (first + 1 == divisions.size()) return std::to_string(divisions[0]);
  std::string out = "[";
  for (std::size_t index = first; index < divisions.size(); ++index) {
    if (index != first && divisions[index] == 0) continue;
    if (index != first) out += ',';
    out += std::to_string(std::uint64_t{1} << index) + ":" + std::to_string(divisions[index]);
  }
  return out + "]";
}

void write_pinned(const PinnedConfig& pinned, Writer& out) {
  out.put_flag("pinned_use_cuda_host_register", pinned.use_host_register);
  if (pinned.register_threads != 1) {
    out.put("pinned_num_register_threads", std::to_string(pinned.register_threads));
  }
  out.put_flag("pinned_use_background_threads", pinned.use_background_threads);
  if (pinned.reserve_segment_bytes != 0) {
    out.put("pinned_reserve_segment_size_mb", mebibytes(pinned.reserve_segment_bytes));
  }
  if (pinned.max_round_bytes) {
    out.put("pinned_max_round_threshold_mb", mebibytes(*pinned.max_round_bytes));
  }
  if (pinned.max_cached_bytes) {
    out.put("pinned_max_cached_size_mb", mebibytes(*pinned.max_cached_bytes));
  }
  out.put_flag("pinned_free_catch_all", pinned.free_catch_all);
}

void write_expandable(const AllocatorConfig& config, Writer& out) {
  out.put_flag("expandable_segments", config.expandable_segments);
  if (config.expandable_reserve_bytes) {
    const double gibibytes = static_cast<double>(*config.expandable_reserve_bytes) / 0x1p30;
    out.put("expandable_segments_reserve", number(gibibytes) + "G");
  } else if (config.expandable_reserve_fraction) {
    out.put("expandable_segments_reserve", number(*config.expandable_reserve_fraction));
  }
}

void write_sizes(const AllocatorConfig& config, Writer& out) {
  if (config.large_segment_bytes != kLargeSegmentBytes) {
    out.put("large_segment_size_mb", mebibytes(config.large_segment_bytes));
  }
  if (config.max_split_bytes != AllocatorConfig::kUnlimited) {
    out.put("max_split_size_mb", mebibytes(config.max_split_bytes));
  }
  if (config.max_non_split_rounding_bytes) {
    out.put("max_non_split_rounding_mb", mebibytes(*config.max_non_split_rounding_bytes));
  }
  if (config.roundup_power2_divisions != Divisions{}) {
    out.put("roundup_power2_divisions", write_divisions(config.roundup_power2_divisions));
  }
}

}  // namespace

std::string to_string(const AllocatorConfig& config) {
  Writer out;
  if (config.backend != "native") out.put("backend", config.backend);
  write_sizes(config, out);
  if (config.garbage_collection_threshold > 0) {
    out.put("garbage_collection_threshold", number(config.garbage_collection_threshold));
  }
  if (config.memory_fraction != 1) {
    out.put("per_process_memory_fraction", number(config.memory_fraction));
  }
  write_expandable(config, out);
  out.put_flag("throw_on_cudamalloc_oom", config.throw_on_device_out_of_memory);
  out.put_flag("release_lock_on_cudamalloc", config.release_lock_on_device_alloc);
  out.put_flag("graph_capture_record_stream_reuse", config.graph_capture_record_stream_reuse);
  write_pinned(config.pinned, out);
  return std::move(out).text();
}

Result<ParsedConfig, std::string> config_from_environment(PyTorchVersion version) {
  if (const auto own = env_string(kOwnVariable)) {
    return parse_variable(kOwnVariable, *own, ConfigDialect::kStrict, version);
  }
  const bool reads_only_first = internal::has_old_parser(version);
  Result<ParsedConfig, std::string> result = ParsedConfig{};
  const char* chosen = nullptr;
  for (const char* name : kPyTorchVariables) {
    // Set but empty still hides the ones after it, as it does in PyTorch.
    const char* text = std::getenv(name);
    if (text == nullptr) continue;
    if (chosen == nullptr && (!reads_only_first || name == kPyTorchVariables[0])) {
      chosen = name;
      result = parse_variable(name, text, ConfigDialect::kPyTorch, version);
    } else if (result) {
      result->warnings.push_back(std::string(name) + " is ignored: " +
                                 (chosen != nullptr
                                      ? std::string("PyTorch reads only ") + chosen
                                      : "up to 2.9 PyTorch reads only PYTORCH_CUDA_ALLOC_CONF"));
    }
  }
  return result;
}

Result<PyTorchVersion, std::string> parse_pytorch_version(std::string_view text) {
  PyTorchVersion version;
  const char* end = text.data() + text.size();
  const auto complain = [&] {
    return Unexpected(internal::in_quotes(text) +
                      " is not a PyTorch version; write for example 2.11 or 2.11.0+cu130");
  };
  // from_chars takes a sign; a version has none.
  if (text.starts_with('-')) return complain();
  const auto major = std::from_chars(text.data(), end, version.major);
  if (major.ec != std::errc{} || major.ptr == end || *major.ptr != '.') return complain();
  if (major.ptr + 1 == end || major.ptr[1] == '-') return complain();
  const auto minor = std::from_chars(major.ptr + 1, end, version.minor);
  if (minor.ec != std::errc{}) return complain();
  constexpr std::string_view kMayFollow = ".+abr";  // 2.11.0, 2.11+cu130, 2.15a0, 2.15rc1
  if (minor.ptr != end && kMayFollow.find(*minor.ptr) == std::string_view::npos) return complain();
  return version;
}

}  // namespace headroom::memory
