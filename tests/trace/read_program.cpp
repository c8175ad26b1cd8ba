// Reads a recording and says what that took: the peak of this process's memory above what it had
// before, in bytes, and the error or the number of events. A program of its own, so that the peak
// is of nothing else.
#include <cstdio>
#include <sys/resource.h>

#include "headroom/trace/file.h"

namespace {

unsigned long long peak_bytes() {
  rusage used{};
  (void)getrusage(RUSAGE_SELF, &used);
  return static_cast<unsigned long long>(used.ru_maxrss) * 1024;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const unsigned long long before = peak_bytes();
  const auto read = headroom::trace::read_trace(argv[1]);
  std::printf("%llu\n", peak_bytes() - before);
  if (read) {
    std::printf("%zu events\n", read->trace.event_count());
  } else {
    std::printf("%s\n", to_string(read.error()).c_str());
  }
  return 0;
}
