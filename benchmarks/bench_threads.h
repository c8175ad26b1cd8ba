// Threads of what is measured side by side.
#pragma once

namespace headroom::cli {

// As many as ops on the cpu have. Throws InvalidArgument where HEADROOM_THREADS is no number.
[[nodiscard]] int bench_threads();

// OpenBLAS's own threads look out for work for some 25 ms after a call and take a core from
// whatever is measured next: this waits until they sleep.
void let_threads_rest();

}  // namespace headroom::cli
