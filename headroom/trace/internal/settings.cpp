#include "headroom/trace/internal/settings.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>

#include "headroom/memory/allocator.h"
#include "headroom/memory/allocator_choice.h"

namespace headroom::trace::internal {
namespace {

// PyTorch writes -1 where there is no bound.
Value bound(std::optional<std::uint64_t> bytes) {
  const bool is_set = bytes && *bytes != memory::AllocatorConfig::kUnlimited;
  return {is_set ? static_cast<std::int64_t>(*bytes) : std::int64_t{-1}};
}

Value count(std::uint64_t value) { return {static_cast<std::int64_t>(value)}; }

}  // namespace

Value settings_of(const memory::Allocator& allocator) {
  const memory::AllocatorChoice choice = allocator.settings();
  // Its own settings change no decision of PyTorch's, which is what readers of this ask about.
  if (choice.paged) {
    return {Value::Dict{{"PYTORCH_CUDA_ALLOC_CONF", Value{std::string("backend:paged")}}}};
  }
  const memory::AllocatorConfig& config = choice.config;
  Value::Dict divisions;
  for (std::size_t i = 0; i < config.roundup_power2_divisions.size(); ++i) {
    divisions.emplace_back(std::to_string(1U << i), count(config.roundup_power2_divisions[i]));
  }
  return {Value::Dict{
      {"PYTORCH_CUDA_ALLOC_CONF", Value{config.text}},
      {"max_split_size", bound(config.max_split_bytes)},
      {"garbage_collection_threshold", Value{config.garbage_collection_threshold}},
      {"expandable_segments", Value{config.expandable_segments}},
      {"pinned_num_register_threads", count(config.pinned.register_threads)},
      {"release_lock_on_cudamalloc", Value{config.release_lock_on_device_alloc}},
      {"pinned_use_cuda_host_register", Value{config.pinned.use_host_register}},
      {"graph_capture_record_stream_reuse", Value{config.graph_capture_record_stream_reuse}},
      {"max_round_threshold", bound(config.pinned.max_round_bytes)},
      {"max_cached_size", bound(config.pinned.max_cached_bytes)},
      {"roundup_power2_divisions", Value{std::move(divisions)}}}};
}

void add_device(Value& settings, int number, const memory::Allocator& allocator) {
  Value::Dict device{{"name", Value{device::to_string(allocator.device().id())}}};
  if (const auto limit = allocator.limit()) device.emplace_back("limit_bytes", count(*limit));
  if (const auto paged = allocator.settings().paged) {
    device.emplace_back("page_bytes", count(paged->page_bytes));
  }
  auto& fields = std::get<Value::Dict>(settings.data);
  auto devices =
      std::ranges::find(fields, std::string(kDevicesKey), &Value::Dict::value_type::first);
  if (devices == fields.end()) {
    fields.emplace_back(kDevicesKey, Value{Value::Dict{}});
    devices = std::prev(fields.end());
  }
  std::get<Value::Dict>(devices->second.data)
      .emplace_back(std::to_string(number), Value{std::move(device)});
}

}  // namespace headroom::trace::internal
