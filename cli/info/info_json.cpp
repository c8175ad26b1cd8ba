// `headroom info --json`: docs/format/info.schema.json says what each field means.
#include <algorithm>
#include <numeric>
#include <string>

#include <nlohmann/json.hpp>

#include "cli/info/info.h"
#include "cli/input/trace_input.h"
#include "cli/output/json_values.h"
#include "cli/output/site_tree_json.h"

namespace headroom::cli {
namespace {

using analysis::CategorySums;
using analysis::DeviceSummary;
using analysis::Holder;
using analysis::PeakMoment;
using Json = nlohmann::ordered_json;

Json peak_json(const PeakMoment& peak) {
  return {{"bytes", peak.bytes}, {"after_events", peak.after_events}, {"after_us", peak.after_us}};
}

Json totals_json(const analysis::Totals& totals) {
  return {{"live", totals.live},
          {"allocated", totals.allocated},
          {"active", totals.active},
          {"reserved", totals.reserved}};
}

Json bin_json(const analysis::HistogramBin& bin) {
  return {{"from", bin.low}, {"below", bin.high}, {"blocks", bin.blocks}, {"bytes", bin.bytes}};
}

Json bins_json(const std::vector<analysis::HistogramBin>& bins) {
  Json json = Json::array();
  for (const analysis::HistogramBin& bin : bins) json.push_back(bin_json(bin));
  return json;
}

Json lifetimes_json(const analysis::LifetimeHistogram& histogram) {
  Json json;
  json["by_events"] = bins_json(histogram.by_events);
  json["by_time_us"] = bins_json(histogram.by_time_us);
  json["from_before"] = {{"blocks", histogram.initial.blocks}, {"bytes", histogram.initial.bytes}};
  json["to_the_end"] = {{"blocks", histogram.final.blocks}, {"bytes", histogram.final.bytes}};
  return json;
}

// The first `top`; the rest is the difference to the peak.
Json holders_json(const std::vector<Holder>& holders, std::size_t top, const char* label) {
  Json json = Json::array();
  for (std::size_t i = 0; i < std::min(top, holders.size()); ++i) {
    const analysis::Group& group = holders[i].group;
    json.push_back({{label, group.label},
                    {"bytes", group.bytes},
                    {"blocks", group.blocks},
                    {"largest_bytes", group.largest_bytes},
                    {"stack", holders[i].stack}});
  }
  return json;
}

Json category_sums_json(const CategorySums& sums) {
  analysis::CategoryBytes bytes{};
  for (std::size_t i = 0; i < sums.size(); ++i) {
    bytes[i] = std::accumulate(sums[i].begin(), sums[i].end(), std::uint64_t{0});
  }
  return categories_json(bytes);
}

// Only how something is known.
Json category_certainty_json(const CategorySums& sums) {
  Json json = Json::object();
  for (std::size_t i = 0; i < sums.size(); ++i) {
    Json by = Json::object();
    for (std::size_t k = 0; k < sums[i].size(); ++k) {
      if (sums[i][k] == 0) continue;
      by[std::string(to_string(static_cast<analysis::Certainty>(k)))] = sums[i][k];
    }
    if (by.empty()) continue;
    json[std::string(to_string(static_cast<memory::Category>(i)))] = by;
  }
  return json;
}

Json device_json(const DeviceSummary& info, std::size_t top) {
  Json json;
  json["name"] = info.name;
  json["device"] = info.device;
  json["rank"] = info.rank;
  json["is_host"] = info.is_host;
  json["events"] = info.events;
  json["allocs"] = info.allocs;
  json["frees"] = info.frees;
  json["frees_completed"] = info.frees_completed;
  json["ooms"] = info.ooms;
  json["segments"] = info.segments;
  json["segment_allocs"] = info.segment_allocs;
  json["segment_frees"] = info.segment_frees;
  json["dropped_events"] = info.dropped_events;
  json["first_time_us"] = info.first_time_us;
  json["duration_us"] = info.duration_us;
  json["is_whole_history"] = info.is_whole_history;
  json["has_final_state"] = info.has_final_state;
  json["has_stacks"] = info.has_stacks;
  json["start_blocks"] = info.start_blocks;
  json["start"] = totals_json(info.start);
  json["end"] = totals_json(info.end);
  json["peak_live"] = peak_json(info.peak_live);
  json["peak_allocated"] = peak_json(info.peak_allocated);
  json["peak_active"] = peak_json(info.peak_active);
  json["peak_reserved"] = peak_json(info.peak_reserved);
  json["reserved_at_peak"] = info.reserved_at_peak;
  json["blocks_at_peak"] = info.blocks_at_peak;
  json["sites"] = holders_json(info.sites, top, "site");
  json["site_tree"] = site_tree_json(info.site_tree, top);
  json["stacks"] = holders_json(info.stacks, top, "site");
  json["modules"] = holders_json(info.modules, top, "module");
  json["sizes_at_peak"] = holders_json(info.by_size, top, "size");
  json["categories"] = holders_json(info.categories, top, "category");
  json["categories_at_peak"] = category_sums_json(info.categories_at_peak);
  json["categories_known_by"] = category_certainty_json(info.categories_at_peak);
  json["block_categories_at_peak"] = categories_json(info.block_categories_at_peak);
  json["annotations"] = holders_json(info.annotations, top, "annotation");
  json["sizes"] = bins_json(info.sizes);
  json["lifetimes"] = lifetimes_json(info.lifetimes);
  json["anomalies"] = {{"allocs_at_live_address", info.anomalies.allocs_at_live_address},
                       {"frees_of_nothing", info.anomalies.frees_of_nothing},
                       {"missing_at_end", info.anomalies.missing_at_end},
                       {"contradictions", info.anomalies.contradictions}};
  return json;
}

}  // namespace

std::string info_json(const analysis::RecordingSummary& summary, const InfoRequest& request) {
  DeviceSummary all;  // sums, and the highest peaks
  for (const DeviceSummary& device : summary.devices) {
    all.events += device.events;
    all.allocs += device.allocs;
    all.frees += device.frees;
    all.segments += device.segments;
    if (device.peak_allocated.bytes > all.peak_allocated.bytes) {
      all.peak_allocated.bytes = device.peak_allocated.bytes;
      all.categories_at_peak = device.categories_at_peak;
      all.block_categories_at_peak = device.block_categories_at_peak;
    }
    all.peak_reserved.bytes = std::max(all.peak_reserved.bytes, device.peak_reserved.bytes);
  }
  Json json;
  json["schema"] = 1;
  json["command"] = "info";
  json["file"] = request.path;
  json["format"] = format_id(summary.format);
  json["is_packed"] = summary.is_packed;
  json["file_bytes"] = summary.file_bytes;
  json["note"] = summary.note;
  json["producer"] = summary.producer;
  json["settings"] = summary.settings;
  json["events"] = all.events;
  json["allocs"] = all.allocs;
  json["frees"] = all.frees;
  json["segments"] = all.segments;
  json["devices"] = summary.devices.size();
  json["annotations"] = summary.annotations;
  json["has_stacks"] = summary.has_stacks;
  json["peak_allocated"] = all.peak_allocated.bytes;
  json["peak_reserved"] = all.peak_reserved.bytes;
  json["categories_at_peak"] = category_sums_json(all.categories_at_peak);
  json["categories_known_by"] = category_certainty_json(all.categories_at_peak);
  json["block_categories_at_peak"] = categories_json(all.block_categories_at_peak);
  json["per_device"] = Json::array();
  for (const DeviceSummary& device : summary.devices) {
    json["per_device"].push_back(device_json(device, request.options.top));
  }
  // Files name functions and themselves as they like; what is not UTF-8 must not make it fail.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace headroom::cli
