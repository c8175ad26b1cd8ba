#include "cli/devices/devices.h"

#include <algorithm>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/commands.h"

namespace headroom::cli {
namespace {

using device::Device;
using device::DeviceKind;
using device::StatusCode;
using Processes = std::vector<device::ProcessMemory>;

std::vector<Device*> chosen_devices(const device::Registry& registry,
                                    const std::vector<std::string>& names) {
  if (names.empty()) return registry.devices();
  std::vector<Device*> chosen;
  for (const std::string& name : names) {
    const auto id = device::parse_device_id(name);
    if (!id) throw UsageError(id.error());
    const auto found = registry.find(*id);
    if (!found) throw Error(found.error());
    if (std::ranges::find(chosen, *found) == chosen.end()) chosen.push_back(*found);
  }
  return chosen;
}

DeviceReport ask_device(Device& device) {
  DeviceReport report{.properties = device.properties()};
  const auto memory = device.memory_info();
  if (!memory) report.problems.push_back(to_string(memory.error()));
  if (auto processes = device.processes()) {
    report.processes = *std::move(processes);
  } else if (processes.error().code != StatusCode::kNotSupported) {
    report.problems.push_back(to_string(processes.error()));
  }
  if (memory) {
    report.account = memory::with_device_lines(
        {.device = device.id()}, *memory, report.processes.value_or(Processes{}));
  }
  return report;
}

void measure_device(Device& device, DeviceReport& report) {
  if (auto levels = device.measure()) {
    report.properties.hierarchy = *std::move(levels);
    report.is_measured = true;
  } else {
    report.problems.push_back(to_string(levels.error()));
  }
}

ExitCode run(const DevicesRequest& request, const Context& context) {
  const DevicesReport report = ask_devices(device::registry(), request, context);
  context.print(context.is_json ? devices_json(report) : draw_devices(report, context));
  return report.has_problems() ? ExitCode::kBadNews : ExitCode::kDone;
}

RunFunction add_devices(CLI::App& app) {
  auto request = std::make_shared<DevicesRequest>();
  app.add_option("device", request->names, "only these, such as cpu:0 or cuda:1 (default: all)")
      ->type_name("DEVICE")
      ->group(kOptionsGroup);
  app.add_flag("--measure",
               request->measure,
               "measure the bandwidth and latency of each level of memory; takes seconds")
      ->group(kOptionsGroup);
  return [request](const Context& context) { return run(*request, context); };
}

}  // namespace

bool DevicesReport::has_problems() const {
  return std::ranges::any_of(devices, [](const DeviceReport& d) { return !d.problems.empty(); });
}

DevicesReport ask_devices(const device::Registry& registry,
                          const DevicesRequest& request,
                          const Context& context) {
  const std::vector<Device*> devices = chosen_devices(registry, request.names);
  DevicesReport report;
  for (Device* device : devices) {
    report.devices.push_back(ask_device(*device));
    if (!request.measure) continue;
    context.progress(fmt::format("measuring {} ({} of {}) ...",
                                 to_string(device->id()),
                                 report.devices.size(),
                                 devices.size()));
    measure_device(*device, report.devices.back());
  }
  if (request.measure) context.progress("");
  // Only cuda: nobody misses a processor, and meta devices are made when they are needed.
  const std::string why = registry.why_none(DeviceKind::kCuda);
  if (request.names.empty() && !why.empty()) report.unavailable["cuda"] = why;
  return report;
}

Command devices_command() {
  return {.name = "devices",
          .group = "Look at this machine",
          .summary = "show the capacity, use, caches and speed of each device",
          .examples =
              "devices  the devices of this machine\n"
              "devices cuda:0 --measure  how fast each level of its memory is\n"
              "devices --json | jq '.devices[].free_bytes'  free memory, for programs",
          .add = add_devices};
}

}  // namespace headroom::cli
