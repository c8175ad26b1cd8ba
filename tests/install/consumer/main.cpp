// What a user of the installed package writes; tests/install/run.cmake looks for the last line.
#include <cstdio>

#include "headroom/base/bytes.h"
#include "headroom/device/types.h"

int main() {
  const auto id = headroom::device::parse_device_id("meta:1");
  const auto size = headroom::parse_bytes("1.5GiB");
  if (!id || !size) return 1;
  std::printf(
      "%s %s\n", headroom::device::to_string(*id).c_str(), headroom::format_bytes(*size).c_str());
}
