// The kernels that measure a card, as PTX, which the driver compiles for whatever card there is.
//
//   link(base, lines)          links lines of 128 bytes to one cycle, in an order that looks random
//   chase(cursor, steps)       one thread follows the links from *cursor on, past the L1 cache
//   read(base, size, rounds, out)   all threads read [base, base + size) in order, past the L1
//                              cache; size is a multiple of 64 bytes times the number of threads
//   shared_chase(steps, out)   the same in 32 KiB of shared memory; steps is a multiple of 4
//   shared_read(rounds, out)   1,024 threads a block read 32 bytes of it each, a round
#pragma once

namespace headroom::device::internal {

extern const char* const kCudaKernels;

}  // namespace headroom::device::internal
