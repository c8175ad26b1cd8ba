#include <nlohmann/json.hpp>

#include "cli/devices/devices.h"
#include "cli/output/account_json.h"

namespace headroom::cli {
namespace {

using Json = nlohmann::ordered_json;

Json level_json(const device::MemoryLevel& level) {
  Json json;
  json["name"] = level.name;
  json["size_bytes"] = level.size_bytes;
  json["instances"] = level.instances;
  json["line_bytes"] = level.line_bytes;
  json["shared_by"] = level.shared_by;
  json["read_bytes_per_second"] = nullptr;
  json["latency_ns"] = nullptr;
  if (level.speed) {
    json["read_bytes_per_second"] = level.speed->read_bytes_per_second;
    json["latency_ns"] = level.speed->latency_ns;
  }
  return json;
}

Json process_json(const device::ProcessMemory& process) {
  Json json;
  json["pid"] = process.pid;
  json["name"] = process.name;
  json["used_bytes"] = process.used_bytes;
  json["is_self"] = process.is_self;
  return json;
}

Json device_json(const DeviceReport& report) {
  const device::Properties& properties = report.properties;
  Json json;
  json["id"] = to_string(properties.id);
  json["kind"] = to_string(properties.id.kind);
  json["name"] = properties.name;
  json["architecture"] = properties.architecture;
  json["multiprocessors"] = properties.multiprocessors;
  json["total_bytes"] = properties.total_bytes;
  json["used_bytes"] = nullptr;
  json["free_bytes"] = nullptr;
  json["account"] = nullptr;
  if (report.account) {
    json["total_bytes"] = report.account->total_bytes;
    json["used_bytes"] = report.account->used();
    json["free_bytes"] = report.account->free_bytes;
    json["account"] = account_json(*report.account);
  }
  json["granularity_bytes"] = properties.granularity_bytes;
  json["max_reservation_bytes"] = properties.max_reservation_bytes;
  json["host_accessible"] = properties.host_accessible;
  json["has_virtual_memory"] = properties.has_virtual_memory;
  json["hierarchy"] = Json::array();
  for (const device::MemoryLevel& level : properties.hierarchy) {
    json["hierarchy"].push_back(level_json(level));
  }
  json["processes"] = nullptr;
  if (report.processes) {
    json["processes"] = Json::array();
    for (const device::ProcessMemory& process : *report.processes) {
      json["processes"].push_back(process_json(process));
    }
  }
  json["problems"] = report.problems;
  return json;
}

}  // namespace

std::string devices_json(const DevicesReport& report) {
  Json json;
  json["schema"] = 1;
  json["command"] = "devices";
  json["devices"] = Json::array();
  for (const DeviceReport& device : report.devices) json["devices"].push_back(device_json(device));
  json["unavailable"] = Json::object();
  for (const auto& [kind, why] : report.unavailable) json["unavailable"][kind] = why;
  // A process may be called anything; what is not UTF-8 must not make the whole answer fail.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace headroom::cli
