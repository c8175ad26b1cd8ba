#include "headroom/device/types.h"

#include <array>
#include <charconv>

#include "headroom/base/bytes.h"

namespace headroom::device {
namespace {

struct KindName {
  DeviceKind kind;
  std::string_view name;
};
constexpr std::array<KindName, 3> kKinds{
    {{DeviceKind::kCpu, "cpu"}, {DeviceKind::kMeta, "meta"}, {DeviceKind::kCuda, "cuda"}}};

Unexpected<std::string> bad_device(std::string_view text) {
  std::string out = "'";
  return Unexpected(out.append(text).append("' names no device: write cpu, cpu:1, cuda:0 or meta"));
}

}  // namespace

std::string_view to_string(DeviceKind kind) noexcept {
  for (const KindName& entry : kKinds) {
    if (entry.kind == kind) return entry.name;
  }
  return "?";
}

std::string to_string(DeviceId id) {
  return std::string(to_string(id.kind)) + ":" + std::to_string(id.index);
}

Result<DeviceId, std::string> parse_device_id(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  int index = 0;
  if (colon != std::string_view::npos) {
    const std::string_view digits = text.substr(colon + 1);
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (error != std::errc{} || stop != digits.data() + digits.size() || index < 0) {
      return bad_device(text);
    }
  }
  for (const KindName& entry : kKinds) {
    if (entry.name == name) return DeviceId{entry.kind, index};
  }
  return bad_device(text);
}

std::string_view to_string(StatusCode code) noexcept {
  switch (code) {
    case StatusCode::kOutOfMemory:
      return "out of memory";
    case StatusCode::kOutOfAddressSpace:
      return "out of address space";
    case StatusCode::kTooManyMappings:
      return "too many mappings";
    case StatusCode::kOutOfHostMemory:
      return "out of host memory";
    case StatusCode::kInvalidArgument:
      return "invalid argument";
    case StatusCode::kUnknownHandle:
      return "unknown handle";
    case StatusCode::kNotSupported:
      return "not supported";
    case StatusCode::kForked:
      return "the process was forked";
    case StatusCode::kShutDown:
      return "the driver is shutting down";
    case StatusCode::kFailed:
      return "the device failed";
  }
  return "?";
}

std::string to_string(const DeviceStatus& status) {
  std::string out = status.call;
  if (!out.empty()) out += ": ";
  out += to_string(status.code);
  if (*status.detail != '\0') out.append(": ").append(status.detail);
  if (status.found != 0 || status.bound != 0) {
    out += " (" + format_count(status.found);
    if (status.bound != 0) out += " against " + format_count(status.bound);
    out += ")";
  }
  if (status.native_code != 0) out += " [error " + std::to_string(status.native_code) + "]";
  return out;
}

}  // namespace headroom::device
