#include "tests/cli/sample_devices.h"

#include "headroom/base/bytes.h"

namespace headroom::cli {
namespace {

using device::DeviceKind;
using device::MemoryLevel;

void set_speeds(std::vector<MemoryLevel>& levels, const std::vector<device::LevelSpeed>& speeds) {
  for (std::size_t i = 0; i < speeds.size(); ++i) {
    if (speeds[i].latency_ns > 0) levels[i].speed = speeds[i];
  }
}

}  // namespace

DeviceReport sample_h200(int index, bool is_measured) {
  DeviceReport out;
  out.properties = {.id = {DeviceKind::kCuda, index},
                    .name = "NVIDIA H200",
                    .total_bytes = 150'109'880'320,
                    .granularity_bytes = 2_MiB,
                    .max_reservation_bytes = 32_TiB,
                    .multiprocessors = 132,
                    .architecture = "sm_90",
                    .has_virtual_memory = true,
                    .hierarchy = {{.name = "registers",
                                   .size_bytes = 256_KiB,
                                   .instances = 132,
                                   .shared_by = "multiprocessor"},
                                  {.name = "shared memory",
                                   .size_bytes = 228_KiB,
                                   .instances = 132,
                                   .shared_by = "multiprocessor"},
                                  {.name = "L2",
                                   .size_bytes = 60_MiB,
                                   .instances = 1,
                                   .line_bytes = 128,
                                   .shared_by = "device"},
                                  {.name = "global memory",
                                   .size_bytes = 150'109'880'320,
                                   .instances = 1,
                                   .shared_by = "device"}}};
  out.processes = {{.pid = 4711, .used_bytes = 80_GiB, .name = "python3"},
                   {.pid = 815, .used_bytes = 2_GiB, .name = "Xorg\x1b[2J"},
                   {.pid = 9000, .used_bytes = 528_MiB, .name = "headroom", .is_self = true}};
  out.account =
      memory::with_device_lines({.device = out.properties.id},
                                {.free_bytes = 61'203'283'968, .total_bytes = 150'109'880'320},
                                *out.processes);
  out.is_measured = is_measured;
  if (is_measured) {
    set_speeds(out.properties.hierarchy, {{}, {31.2e12, 15.9}, {7.3e12, 142}, {4.36e12, 478}});
  }
  return out;
}

DeviceReport sample_laptop(bool is_measured) {
  DeviceReport out;
  out.properties = {.id = {DeviceKind::kCpu, 0},
                    .name = "13th Gen Intel(R) Core(TM) i7-1365U",
                    .total_bytes = 7'936_MiB,
                    .granularity_bytes = 2_MiB,
                    .max_reservation_bytes = 256_GiB,
                    .multiprocessors = 10,
                    .architecture = "x86-64",
                    .host_accessible = true,
                    .has_virtual_memory = true,
                    .hierarchy = {{.name = "L1d",
                                   .size_bytes = 48_KiB,
                                   .instances = 10,
                                   .line_bytes = 64,
                                   .shared_by = "core"},
                                  {.name = "L2",
                                   .size_bytes = 1280_KiB,
                                   .instances = 4,
                                   .line_bytes = 64,
                                   .shared_by = "core"},
                                  {.name = "L3",
                                   .size_bytes = 12_MiB,
                                   .instances = 1,
                                   .line_bytes = 64,
                                   .shared_by = "machine"},
                                  {.name = "main memory",
                                   .size_bytes = 15'872_MiB,
                                   .instances = 1,
                                   .shared_by = "machine"}}};
  out.processes = {{.pid = 9000, .used_bytes = 0, .name = "headroom", .is_self = true}};
  out.account = memory::with_device_lines({.device = out.properties.id},
                                          {.free_bytes = 7'936_MiB, .total_bytes = 7'936_MiB},
                                          *out.processes);
  out.is_measured = is_measured;
  if (is_measured) {
    set_speeds(out.properties.hierarchy,
               {{1.21e12, 1.1}, {512e9, 3.4}, {187e9, 17.5}, {41.3e9, 104}});
  }
  return out;
}

}  // namespace headroom::cli
