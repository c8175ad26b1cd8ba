// Why is my second device empty, and the first out of memory?
//
// Each device has its own allocator and counters, and memory comes from the current device, which
// each thread sets for itself. The third snippet of "How can I allocate remaining GPU memory to my
// PyTorch code?", and what happens when its set_device is forgotten.
#include <cstdio>

#include <headroom/memory.h>

using namespace headroom;

namespace {

void show(const char* what) {
  std::printf("%-28s current %s", what, to_string(current_device()).c_str());
  for (int i = 0; i < device_count(); ++i) {
    std::printf("   meta:%d allocated %14s", i, format_count(memory_allocated(i)).c_str());
  }
  std::printf("\n");
}

}  // namespace

int main() {
  for (int i = 0; i < 2; ++i) {
    device::registry().add(device::MetaDevice::create({.index = i, .capacity_bytes = 12_GiB}));
  }
  set_device("meta:0");
  {
    set_device(1);
    const memory::Buffer second(allocator(), 10_GiB);
    show("10 GiB after set_device(1)");
  }
  empty_cache();  // of every device
  set_device(0);
  const memory::Buffer first(allocator(), 10_GiB);
  try {
    const memory::Buffer second(allocator(), 10_GiB);  // meant for device 1
  } catch (const memory::OutOfMemory& error) {
    show("set_device forgotten");
    const memory::Account& account = error.report().account;
    std::printf("out of memory on %s, which has %s free; meta:1 has %s\n",
                to_string(account.device).c_str(),
                format_bytes(account.free_bytes).c_str(),
                format_bytes(mem_get_info("meta:1").free_bytes).c_str());
  }
  const memory::Buffer second(allocator(1), 10_GiB);  // or say which, and set nothing
  show("allocator(1)");
  try {
    set_device(2);
  } catch (const InvalidArgument& error) {
    std::printf("set_device(2): %s\n", error.what());
  }
}
