#include "headroom/trace/settings.h"

#include <bit>
#include <string>

#include "headroom/trace/internal/settings.h"

namespace headroom::trace {
namespace {

std::optional<std::uint64_t> positive(const Value* value) {
  if (value == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<std::int64_t>(&value->data)) {
    return *number < 0 ? std::nullopt : std::optional(static_cast<std::uint64_t>(*number));
  }
  const auto* large = std::get_if<std::uint64_t>(&value->data);
  return large != nullptr ? std::optional(*large) : std::nullopt;
}

}  // namespace

memory::AllocatorConfig recorded_config(const Trace& trace) {
  memory::AllocatorConfig config;
  if (auto parsed = memory::parse_config(trace.settings_string(),
                                         {.dialect = memory::ConfigDialect::kPyTorch})) {
    config = std::move(parsed->config);
  }
  if (!trace.settings) return config;
  if (const auto split = positive(trace.settings->find("max_split_size"))) {
    config.max_split_bytes = *split;
  }
  if (const Value* expandable = trace.settings->find("expandable_segments")) {
    if (const bool* flag = std::get_if<bool>(&expandable->data)) config.expandable_segments = *flag;
  }
  if (const Value* divisions = trace.settings->find("roundup_power2_divisions")) {
    for (std::size_t i = 0; i < config.roundup_power2_divisions.size(); ++i) {
      const auto entry = positive(divisions->find(std::to_string(std::uint64_t{1} << i)));
      if (entry) config.roundup_power2_divisions[i] = *entry;
    }
  }
  return config;
}

RecordedDevice recorded_device(const Trace& trace, const DeviceTrace& device) {
  RecordedDevice out;
  const Value* devices = trace.settings ? trace.settings->find(internal::kDevicesKey) : nullptr;
  const Value* said = devices != nullptr ? devices->find(std::to_string(device.device)) : nullptr;
  if (said == nullptr) return out;
  // A file may say anything: what no recorder of ours writes is left out.
  const Value* name = said->find("name");
  const auto* text = name != nullptr ? std::get_if<std::string>(&name->data) : nullptr;
  if (text != nullptr && device::parse_device_id(*text)) out.name = *text;
  out.limit_bytes = positive(said->find("limit_bytes"));
  if (out.limit_bytes == 0U) out.limit_bytes.reset();
  const std::uint64_t page_bytes = positive(said->find("page_bytes")).value_or(0);
  if (std::has_single_bit(page_bytes) && page_bytes < device::kAbsurdSize) {
    out.page_bytes = page_bytes;
  }
  return out;
}

bool is_of_paged(const Trace& trace) {
  return trace.settings_string().starts_with("backend:paged");
}

}  // namespace headroom::trace
