// `headroom replay --json`: docs/format/replay.schema.json says what each field means.
#include <nlohmann/json.hpp>

#include "headroom/memory/config.h"
#include "headroom/replay/pool_floor.h"

#include "cli/output/json_values.h"
#include "cli/replay/replay.h"

namespace headroom::cli {
namespace {

using Json = nlohmann::ordered_json;
using replay::PolicyResult;
using replay::Program;
using replay::ReplayResult;

std::string release_number(memory::PyTorchVersion version) {
  return std::to_string(version.major) + "." + std::to_string(version.minor);
}

std::uint32_t event_of(const Program& program, std::size_t op) {
  return op < program.op_events.size() ? program.op_events[op] : 0;
}

Json failure_json(const replay::FailedAllocation& failure, const Program& program) {
  return {{"event", event_of(program, failure.op)},
          {"size_bytes", failure.size_bytes},
          {"stream", device::to_integer(failure.stream)},
          {"reserved", failure.reserved},
          {"was_recorded", failure.was_recorded}};
}

Json mismatch_json(const replay::Mismatch& mismatch) {
  return {{"event", mismatch.event},
          {"recorded", mismatch.recorded},
          {"ours", mismatch.ours},
          {"blocks", mismatch.free_blocks}};
}

Json timeline_json(const ReplayResult& result, const Program& program) {
  Json samples = Json::array();
  for (const replay::TimelineSample& sample : result.timeline) {
    samples.push_back({{"event", event_of(program, sample.op)},
                       {"live", sample.live},
                       {"allocated", sample.allocated},
                       {"active", sample.active},
                       {"reserved", sample.reserved}});
  }
  return samples;
}

void add_verification(Json& json, const PolicyResult& entry) {
  const auto& v = entry.verification;
  json["address_mismatches"] = v ? Json(v->address_mismatches) : Json(nullptr);
  json["segment_mismatches"] = v ? Json(v->segment_mismatches) : Json(nullptr);
  json["has_same_end"] = v ? Json(v->has_same_end) : Json(nullptr);
  json["is_version_proved"] = v ? Json(v->is_version_proved) : Json(nullptr);
  json["first_mismatch"] = v && v->first ? mismatch_json(*v->first) : Json(nullptr);
}

Json bound_json(const ReplayResult& result, const Program& program) {
  if (!result.bound) return nullptr;
  const memory::PagedBound& bound = result.bound->bound;
  return {{"event", event_of(program, result.bound->op)},
          {"reserved", bound.reserved_bytes},
          {"live_pages", bound.live_pages_bytes},
          {"slab_residue", bound.slab_residue_bytes},
          {"cushion", bound.cushion_bytes},
          {"unsettled", bound.unsettled_bytes},
          {"holds", bound.is_kept()}};
}

Json result_json(const PolicyResult& entry, const DeviceReplay& device) {
  const ReplayResult& result = entry.result;
  const Program& program = device.program;
  Json json;
  json["policy"] = entry.policy.name;
  json["device"] = device.device;
  json["rank"] = device.rank;
  json["is_model"] = entry.is_model;
  json["version"] = release_number(entry.version);
  json["card_bytes"] = entry.card_bytes;
  json["limit_bytes"] = value_json(entry.limit_bytes);
  json["events"] = result.events;
  json["allocs"] = result.allocs;
  json["peak_live"] = result.peak_live;
  json["peak_allocated"] = result.peak_allocated;
  json["peak_active"] = result.peak_active;
  json["peak_reserved"] = result.peak_reserved;
  json["peak_reserved_low"] = result.peak_reserved_low;
  json["peak_reserved_high"] = result.peak_reserved_high;
  json["peak_event"] = event_of(program, result.peak_op);
  json["device_allocs"] = result.calls.device_allocs;
  json["device_frees"] = result.calls.device_frees;
  json["handles_created"] = result.calls.handles_created;
  json["handles_mapped"] = result.calls.handles_mapped;
  json["handles_unmapped"] = result.calls.handles_unmapped;
  json["driver_us"] = result.calls.driver_us;
  json["driver_us_second_half"] = result.driver_us_second_half;
  add_verification(json, entry);
  json["fits"] = result.fits;
  json["ooms"] = result.ooms;
  json["retries"] = result.retries;
  json["recorded_ooms_served"] = result.recorded_ooms_served;
  json["first_failure"] =
      result.first_failure ? failure_json(*result.first_failure, program) : Json(nullptr);
  json["unknown_past_event"] =
      result.unknown_past_op ? Json(event_of(program, *result.unknown_past_op)) : Json(nullptr);
  json["bound"] = bound_json(result, program);
  json["smallest_limit"] = entry.smallest ? Json(entry.smallest->bytes) : Json(nullptr);
  json["smallest_limit_retries"] = entry.smallest ? Json(entry.smallest->retries) : Json(nullptr);
  json["seconds"] = result.seconds;
  json["timeline"] = timeline_json(result, program);
  return json;
}

Json recording_json(const DeviceReplay& device) {
  const Program& program = device.program;
  const analysis::Anomalies& odd = program.anomalies;
  return {{"name", device.name},
          {"device", device.device},
          {"rank", device.rank},
          {"settings", program.is_of_paged ? "backend:paged" : program.conf},
          {"version", release_number(program.version)},
          {"is_whole_history", program.is_whole()},
          {"recorded_ooms", program.failures},
          {"empty_caches", program.empty_caches},
          {"streams", program.streams.size()},
          {"private_pools", program.pools.size() - 1},
          {"pool_floor", replay::pool_floor_bytes(program)},
          {"duration_us", program.duration_us()},
          {"duration_us_second_half", program.duration_us(program.ops.size() / 2)},
          {"anomalies",
           {{"allocs_at_live_address", odd.allocs_at_live_address},
            {"frees_of_nothing", odd.frees_of_nothing},
            {"missing_at_end", odd.missing_at_end},
            {"contradictions", odd.contradictions}}}};
}

}  // namespace

std::string replay_json(const ReplayReport& report) {
  Json json;
  json["schema"] = 1;
  json["command"] = "replay";
  json["file"] = report.path;
  json["devices"] = Json::array();
  json["results"] = Json::array();
  for (const DeviceReplay& device : report.devices) {
    json["devices"].push_back(recording_json(device));
    for (const PolicyResult& entry : device.results) {
      json["results"].push_back(result_json(entry, device));
    }
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace headroom::cli
