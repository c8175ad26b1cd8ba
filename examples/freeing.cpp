// What frees memory, and who gets it?
//
// The end of a scope, reset() and assigning over free at once: allocated falls, reserved does not,
// for the cache keeps the memory. empty_cache() gives it back to the device. The first snippet of
// "How can PyTorch effectively manage GPU memory?", whose bytes are PyTorch's, and the other ways.
// On a device that has addresses only, so that 8 GiB cost nothing.
#include <cstdio>
#include <utility>

#include <headroom/memory.h>

using namespace headroom;

namespace {

void show(const char* what) {
  std::printf("%-36s allocated %13s   reserved %13s\n",
              what,
              format_count(memory_allocated()).c_str(),
              format_count(memory_reserved()).c_str());
}

constexpr std::uint64_t kCube = std::uint64_t{1024} * 1024 * 1024;

}  // namespace

int main() {
  device::registry().add(device::MetaDevice::create({.capacity_bytes = 80_GiB}));
  set_device("meta:0");
  {
    memory::Array<float> x(allocator(), kCube);
    memory::Array<float> y(allocator(), kCube);
    show("x, y = x.sin()");
    x.reset();
    show("x.reset()");
    x = std::move(y);  // hands over; nothing is freed or copied
    show("x = std::move(y)");
    y = memory::Array<float>(allocator(), kCube);  // in the memory that was x's
    show("y = another");
    x = std::move(y);  // frees what x had
    show("x = std::move(y), over the old x");
  }
  show("end of scope");
  empty_cache();
  show("empty_cache()");

  const memory::Array<float> held(allocator(), kCube);
  empty_cache();
  show("empty_cache() while x is held");  // what somebody holds stays
}
