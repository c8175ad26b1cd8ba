// Does it take the device's memory before it is needed?
//
// No: a segment is taken when a request needs one, and what is freed serves later requests. These
// are the first and third snippets of "Does PyTorch pre-allocate GPU memory?", with PyTorch's
// bytes: from PyTorch's allocator, since the default one takes pages of 4 MiB as they are needed.
#include <cstdio>

#include <headroom/memory.h>

using namespace headroom;

namespace {

void show(const char* what) {
  std::printf("%-22s allocated %10s   reserved %10s\n",
              what,
              format_count(memory_allocated()).c_str(),
              format_count(memory_reserved()).c_str());
}

constexpr std::uint64_t square(std::uint64_t n) { return n * n; }

void dynamic() {
  show("before");
  memory::Array<float> x(allocator(), square(1024));  // 4 MiB of a segment of 20 MiB
  show("x");
  const memory::Array<float> y(allocator(), square(1024));  // from the same segment
  show("y = x * 2");
  x.reset();  // free for the next request, but not given back
  show("x freed");
}

void manual() {
  memory::Array<float> x(allocator(), square(2048));
  memory::Array<float> y(allocator(), square(1024));
  // The snippet multiplies the two, which their shapes do not allow; so a y that fits:
  y = memory::Array<float>(allocator(), square(2048));
  const memory::Array<float> z(allocator(), square(2048));
  // What PyTorch's numbers have besides: the workspace of its matrix product.
  const memory::CategoryScope category(memory::Category::kWorkspace);
  const memory::Buffer workspace(allocator(), 32_MiB);
  show("z = matmul(x, y)");
  x.reset();
  y.reset();
  show("x and y freed");
}

}  // namespace

int main() {
  set_allocator_settings("backend:native");
  dynamic();
  empty_cache();
  manual();
}
