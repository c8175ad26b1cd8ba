/* How do I use the allocator from C?
 *
 * The snippet of docs/guide/memory.md, as a whole program. The device is `cpu`; on a GPU it is
 * `cuda:0`, and the stream a cudaStream_t.
 */
#include <stdint.h>
#include <stdio.h>

#include <headroom/c/headroom.h>

static int run(const char* device) {
  headroom_allocator* memory;
  if (headroom_open(device, &memory) != HEADROOM_OK) {
    fprintf(stderr, "%s\n", headroom_last_error());
    return 1;
  }
  headroom_set_limit(memory, (uint64_t)64 << 20);
  void* block = headroom_allocate(memory, 1 << 20, NULL); /* on the default stream */
  if (block == NULL) fprintf(stderr, "%s\n", headroom_last_error());
  headroom_free(memory, block);

  headroom_stats stats = {.size = sizeof(headroom_stats)};
  headroom_get_stats(memory, &stats);
  printf("peak allocated %llu bytes\n", (unsigned long long)stats.allocated_peak);
  return 0;
}

int main(void) { return run("cpu"); }
