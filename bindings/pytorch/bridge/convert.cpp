#include "bindings/pytorch/bridge/convert.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "headroom/memory/pytorch_message.h"

namespace headroom::bridge {
namespace {

using memory::Action;

constexpr std::array kActions{
    std::pair{Action::kAlloc, TraceAction::kAlloc},
    std::pair{Action::kFreeRequested, TraceAction::kFreeRequested},
    std::pair{Action::kFreeCompleted, TraceAction::kFreeCompleted},
    std::pair{Action::kSegmentAlloc, TraceAction::kSegmentAlloc},
    std::pair{Action::kSegmentFree, TraceAction::kSegmentFree},
    std::pair{Action::kSegmentMap, TraceAction::kSegmentMap},
    std::pair{Action::kSegmentUnmap, TraceAction::kSegmentUnmap},
    std::pair{Action::kSnapshot, TraceAction::kSnapshot},
    std::pair{Action::kOutOfMemory, TraceAction::kOutOfMemory},
};

Stat one(const memory::Stat& stat) noexcept {
  return {
      .current = stat.current, .peak = stat.peak, .allocated = stat.allocated, .freed = stat.freed};
}

StatArray each(const memory::StatArray& array) noexcept {
  return {.all = one(array.all),
          .small_pool = one(array.small_pool),
          .large_pool = one(array.large_pool)};
}

// The text of a JSON string.
std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      std::array<char, 8> code{};
      std::snprintf(code.data(), code.size(), "\\u%04x", static_cast<unsigned>(c));
      out += code.data();
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace

TraceAction to_bridge(Action action) noexcept {
  const auto found = std::ranges::find(kActions, action, [](const auto& p) { return p.first; });
  return found != kActions.end() ? found->second : TraceAction::kSnapshot;
}

memory::Actions actions_named(std::span<const std::string> names) noexcept {
  memory::Actions actions;
  for (const auto& [action, unused] : kActions) {
    if (std::ranges::find(names, memory::to_string(action)) != names.end()) {
      actions |= memory::Actions{action};
    }
  }
  return actions;
}

DeviceStats to_bridge(const memory::Statistics& s) noexcept {
  return {.allocation = each(s.allocation),
          .segment = each(s.segment),
          .active = each(s.active),
          .inactive_split = each(s.inactive_split),
          .allocated_bytes = each(s.allocated_bytes),
          .reserved_bytes = each(s.reserved_bytes),
          .active_bytes = each(s.active_bytes),
          .inactive_split_bytes = each(s.inactive_split_bytes),
          .requested_bytes = each(s.requested_bytes),
          .oversize_allocations = one(s.oversize_allocations),
          .oversize_segments = one(s.oversize_segments),
          .num_alloc_retries = s.num_alloc_retries,
          .num_ooms = s.num_ooms,
          .num_sync_all_streams = s.num_sync_all_streams,
          .num_device_alloc = s.num_device_alloc,
          .num_device_free = s.num_device_free,
          .num_oom_rejections = s.num_oom_rejections,
          .max_split_size = s.max_split_size};
}

Segment to_bridge(const memory::SegmentInfo& from, device::Device& device) {
  Segment to{.address = from.address,
             .size_bytes = from.size_bytes,
             .stream = native_of(device, from.stream),
             .is_large = !from.is_small,
             .is_expandable = from.is_expandable,
             .pool = to_bridge(from.pool),
             .context = from.tag};
  to.blocks.reserve(from.blocks.size());
  for (const memory::BlockInfo& block : from.blocks) {
    const bool is_allocated = block.state == memory::BlockState::kAllocated;
    const bool is_active = is_allocated || block.state == memory::BlockState::kPendingFree;
    to.blocks.push_back({.address = block.address,
                         .size_bytes = block.size_bytes,
                         .requested_bytes = block.requested_bytes,
                         .is_allocated = is_allocated,
                         .is_active = is_active,
                         .context = block.tag});
    if (is_allocated) to.allocated_bytes += block.size_bytes;
    if (is_active) {
      to.active_bytes += block.size_bytes;
      to.requested_bytes += block.requested_bytes;
    }
  }
  return to;
}

Failure to_bridge(const memory::AllocationFailure& failure) {
  if (failure.reason == memory::FailureReason::kDevice) {
    return {.is_out_of_memory = false, .text = "headroom: " + to_string(failure.status)};
  }
  if (failure.reason == memory::FailureReason::kTooLarge) {
    return {.text = memory::pytorch_absurd_size_message()};
  }
  if (failure.report == nullptr) return {.text = "CUDA out of memory."};
  const memory::OutOfMemoryReport& report = *failure.report;
  return {.text = "CUDA out of memory. Tried to allocate " +
                  memory::pytorch_size(report.account.asked_bytes) + ".\n" + report.text};
}

namespace {

// "name": number, each after a comma but the first.
std::string number_fields(
    std::initializer_list<std::pair<std::string_view, std::uint64_t>> fields) {
  std::string out;
  for (const auto& [name, value] : fields) {
    out += (out.empty() ? "" : ", ") + json_string(name) + ": " + std::to_string(value);
  }
  return out;
}

std::string categories_json(const memory::Account& account) {
  std::string out;
  for (std::size_t i = 0; i < account.live_bytes.size(); ++i) {
    if (account.live_bytes[i] == 0) continue;
    const auto name = memory::to_string(static_cast<memory::Category>(i));
    out += (out.empty() ? "" : ", ") + number_fields({{name, account.live_bytes[i]}});
  }
  return "{" + out + "}";
}

std::string sites_json(const memory::Account& account) {
  std::string out;
  for (const memory::SiteBytes& site : account.sites) {
    out += (out.empty() ? "{" : ", {") + std::string("\"site\": ") + json_string(site.site) + ", " +
           number_fields({{"bytes", site.size_bytes}, {"blocks", site.blocks}}) + "}";
  }
  return "[" + out + "]";
}

}  // namespace

std::string to_json(const memory::Account& account) {
  const std::string lines = number_fields({{"live_bytes", account.live()},
                                           {"rounding_bytes", account.rounding_bytes},
                                           {"pending_bytes", account.pending_bytes},
                                           {"cached_stream_bytes", account.cached_stream_bytes},
                                           {"cached_hard_bytes", account.cached_hard_bytes},
                                           {"cached_soft_bytes", account.cached_soft_bytes},
                                           {"outside_bytes", account.outside_bytes},
                                           {"other_processes_bytes", account.other_processes_bytes},
                                           {"free_bytes", account.free_bytes}});
  return "{\"schema\": 1, \"device\": " + json_string(to_string(account.device)) + ", " +
         number_fields({{"total_bytes", account.total_bytes}}) + ", \"lines\": {" + lines + "}, " +
         number_fields({{"reserved_bytes", account.reserved()}}) + ", \"limit_bytes\": " +
         (account.limit_bytes ? std::to_string(*account.limit_bytes) : "null") + ", " +
         number_fields({{"largest_cached_bytes", account.largest_cached_bytes},
                        {"sleeping_bytes", account.sleeping_bytes}}) +
         ", \"live_by_category\": " + categories_json(account) +
         ", \"sites\": " + sites_json(account) + "}";
}

}  // namespace headroom::bridge
