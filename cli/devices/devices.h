// `headroom devices`, in three steps that tests can take one by one: ask the devices, then draw
// the answers or write them as JSON.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headroom/device/registry.h"
#include "headroom/device/types.h"
#include "headroom/memory/account.h"

#include "cli/command.h"

namespace headroom::cli {

// The answers of one device. A question that it could not answer is left open and named in
// `problems`.
struct DeviceReport {
  device::Properties properties{};           // the hierarchy has speeds once it is measured
  std::optional<memory::Account> account{};  // lists `processes` too, where they are known
  // Unset: the device cannot know (which is no problem).
  std::optional<std::vector<device::ProcessMemory>> processes{};
  bool is_measured = false;
  std::vector<std::string> problems{};
};

struct DevicesReport {
  std::vector<DeviceReport> devices{};
  // Kinds of which there is no device, and why: {"cuda", "no NVIDIA driver ..."}.
  std::map<std::string, std::string> unavailable{};

  [[nodiscard]] bool has_problems() const;
};

struct DevicesRequest {
  std::vector<std::string> names{};  // none: all there are
  bool measure = false;
};

// Throws UsageError for a name that is no device's, Error for a device that does not exist.
[[nodiscard]] DevicesReport ask_devices(const device::Registry& registry,
                                        const DevicesRequest& request,
                                        const Context& context);

[[nodiscard]] std::string draw_devices(const DevicesReport& report, const Context& context);

// Follows docs/format/devices.schema.json.
[[nodiscard]] std::string devices_json(const DevicesReport& report);

}  // namespace headroom::cli
