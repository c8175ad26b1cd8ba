// How do I keep a process from taking more than its share of the device?
//
// set_per_process_memory_fraction: past the share an allocation throws OutOfMemory, which says that
// it was the limit and what to raise it to. Here, 80 % of device 0, and a device that has addresses
// only, so that 80 GiB cost nothing.
#include <cstdio>
#include <vector>

#include <headroom/memory.h>

using namespace headroom;

int main() {
  device::registry().add(device::MetaDevice::create({.capacity_bytes = 80_GiB}));
  set_device("meta:0");
  set_per_process_memory_fraction(0.8, 0);

  std::vector<memory::Buffer> held;
  held.emplace_back(allocator(), 60_GiB);
  try {
    held.emplace_back(allocator(), 10_GiB);
  } catch (const memory::OutOfMemory& error) {
    std::fputs(error.what(), stdout);
  }

  set_per_process_memory_fraction(1.0);
  held.emplace_back(allocator(), 10_GiB);
  std::printf("\nwithout the limit: allocated %s\n", format_bytes(memory_allocated()).c_str());
  try {
    set_per_process_memory_fraction(1.5);
  } catch (const InvalidArgument& error) {
    std::printf("%s\n", error.what());
  }
}
