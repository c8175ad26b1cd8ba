// What a user of the installed package writes; tests/install/run.cmake checks what it prints.
#include <cstdio>

#include "headroom/base/bytes.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/types.h"

int main() {
  using namespace headroom;
  const auto device = device::MetaDevice::create({.index = 1, .capacity_bytes = 2_GiB});
  const auto segment = device->allocate_segment(512_MiB);
  const auto info = device->memory_info();
  if (!segment || !info) return 1;
  std::printf("%s %s %s\n",
              device::to_string(device->id()).c_str(),
              format_bytes(info->free_bytes).c_str(),
              memory::to_string(memory::Category::kActivation).data());
}
