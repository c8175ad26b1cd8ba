// I deleted a large tensor. Why does the device still show the same use?
//
//   a. garbage was not collected yet             no: in C++ freeing is immediate
//   b. the caching allocator keeps the memory    yes
//   c. something still refers to the tensor      no: allocated would have stayed
//   d. the monitor lags behind                   no: it says what the device says
#include <cstdio>

#include <headroom/memory.h>

using namespace headroom;

namespace {

void show(const char* what) {
  std::printf("%-16s allocated %10s   reserved %10s   device used %10s\n",
              what,
              format_count(memory_allocated()).c_str(),
              format_count(memory_reserved()).c_str(),
              format_count(memory_account().used()).c_str());
}

}  // namespace

int main() {
  set_device("cpu");
  show("before");
  memory::Array<float> tensor(allocator(), 16'777'216);  // 64 MiB
  show("tensor");
  tensor.reset();
  show("tensor freed");
  std::printf("the answer is b: %s are cached\n", format_bytes(memory_account().cached()).c_str());
  empty_cache();
  show("empty_cache()");
}
