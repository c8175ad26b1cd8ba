/* What a user of the C interface writes; tools/check_package.sh builds it against the package. */
#include <stdio.h>
#include <string.h>

#include <headroom/c/headroom.h>

int main(void) {
  headroom_allocator* cpu;
  if (headroom_open("cpu", &cpu) != HEADROOM_OK) {
    puts(headroom_last_error());
    return 1;
  }
  void* block = headroom_allocate(cpu, 1 << 20, 0);
  if (block == 0) {
    puts(headroom_last_error());
    return 1;
  }
  memset(block, 1, 1 << 20);
  headroom_stats stats = {.size = sizeof(stats)};
  if (headroom_get_stats(cpu, &stats) != HEADROOM_OK) return 1;
  printf("%llu bytes allocated\n", (unsigned long long)stats.allocated);
  return headroom_free(cpu, block) == HEADROOM_OK ? 0 : 1;
}
