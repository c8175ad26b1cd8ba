// How do I give the rest of the device's memory to my program?
//
// Two ways: a dummy tensor, as in "How can I allocate remaining GPU memory to my PyTorch code?",
// and reserve(), which needs no size and is given back on demand. On a device that has addresses
// only, so that 10 GiB cost nothing; the bytes are PyTorch's, from its own allocator.
#include <cstdio>

#include <headroom/memory.h>

using namespace headroom;

namespace {

void show(const char* what) {
  std::printf("%-36s allocated %14s   reserved %14s\n",
              what,
              format_count(memory_allocated()).c_str(),
              format_count(memory_reserved()).c_str());
}

// a @ b, and the workspace of PyTorch's matrix product.
struct Operations {
  memory::Array<float> a{allocator(), 1'000'000};
  memory::Array<float> b{allocator(), 1'000'000};
  memory::Array<float> c{allocator(), 1'000'000};
  memory::Buffer workspace{allocator(), 32_MiB};
};

void with_a_dummy() {
  memory::Buffer dummy(allocator(), 10_GiB);
  show("dummy tensor of 10 GiB");
  const Operations operations;  // beside it, not in it
  show("operations");
  dummy.reset();  // now its memory serves others
  show("dummy freed");
}

void with_reserve() {
  const auto taken = allocator().reserve();  // all there is; reserve(10_GiB) takes so much
  if (!taken) throw memory::OutOfMemory(taken.error().report);
  show("reserve()");
  const auto calls = allocator().statistics().num_device_alloc;
  const Operations operations;
  show("operations, out of what is reserved");
  std::printf("the device was asked %lld times more\n",
              static_cast<long long>(allocator().statistics().num_device_alloc - calls));
}

// The first snippet sets this "to a very large number": nothing here is larger, so nothing changes.
void with_settings() {
  set_allocator_settings("max_split_size_mb:512");
  const Operations operations;
  show("max_split_size_mb:512, operations");
  set_allocator_settings("");
}

}  // namespace

int main() {
  set_allocator_settings("backend:native");
  device::registry().add(device::MetaDevice::create({.capacity_bytes = 12_GiB}));
  set_device("meta:0");
  with_settings();
  empty_cache();
  with_a_dummy();
  empty_cache();
  with_reserve();
  empty_cache();
  show("empty_cache()");
}
