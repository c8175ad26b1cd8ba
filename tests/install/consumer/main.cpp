// What a user of the installed package writes; tests/install/run.cmake checks what it prints.
#include <cstdio>

#include "headroom/memory.h"

int main() {
  using namespace headroom;
  const auto device = device::MetaDevice::create({.index = 1, .capacity_bytes = 2_GiB});
  memory::CachingAllocator allocator(*device);
  const auto block = allocator.allocate(3_MiB);
  const auto info = device->memory_info();
  if (!info) return 1;
  const std::uint64_t reserved = info->total_bytes - info->free_bytes;
  std::printf("%s %s\n", device::to_string(device->id()).c_str(), format_bytes(reserved).c_str());
  allocator.free(block);
}
