// When does a tensor take memory, and when does it give it back?
//
// When an op makes it, and when its last user has gone: the end of a scope is `del`, at once and
// always. The first and third snippets of "Does PyTorch pre-allocate GPU memory?" (the third does
// not multiply, and says why) and the first of "How can PyTorch effectively manage GPU memory?".
// On a device that has addresses only, so that 4 GiB cost nothing, with PyTorch's allocator.
#include <cstdio>

#include <headroom/autograd.h>
#include <headroom/memory.h>

using namespace headroom;

namespace {

void show(const char* what) {
  std::printf("%-36s allocated %13s   reserved %13s\n",
              what,
              format_count(memory_allocated()).c_str(),
              format_count(memory_reserved()).c_str());
}

void dynamic_allocation() {
  Tensor x = randn({1024, 1024});  // memory is allocated here
  show("x = randn(1024, 1024)");
  const Tensor y = x * 2;
  show("y = x * 2");
  x = {};  // del x
  show("del x");
  const Tensor z = y + 1;  // in the memory that was x's
  show("z = y + 1");
}

void shapes_that_do_not_fit() {
  const Tensor x = randn({2048, 2048});
  const Tensor y = randn({1024, 1024});
  show("x, y");
  try {
    const Tensor z = matmul(x, y);
  } catch (const InvalidArgument& error) {
    std::printf("%s\n", error.what());
  }
  show("after the error");  // nothing was allocated for it
}

void explicit_deallocation() {
  {
    const Tensor x = randn({1024, 1024, 1024});
    const Tensor y = sin(x);
    show("x = randn(1024, 1024, 1024), y");
  }
  show("end of scope");
  empty_cache();
  show("empty_cache()");
}

}  // namespace

int main() {
  set_allocator_settings("backend:native");
  device::registry().add(device::MetaDevice::create({.capacity_bytes = 80_GiB}));
  set_device("meta:0");
  dynamic_allocation();
  show("end of scope");
  shapes_that_do_not_fit();
  explicit_deallocation();
}
