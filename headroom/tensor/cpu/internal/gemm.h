// One matrix product of the library, of numbers that lie in rows.
#pragma once

#include <cblas.h>
#include <cstdint>
#include <mutex>

#include "headroom/base/fork.h"
#include "headroom/tensor/cpu/internal/thread_pool.h"

namespace headroom::tensor::cpu {

// While one is alive the library uses no threads of its own, which would go on looking out for work
// for milliseconds after each product and take the cores from ours: for kernels that call it from
// each of ours. What else calls it meanwhile is slower and no different.
class GemmWithoutThreads {
 public:
  GemmWithoutThreads() {
    const std::lock_guard lock(mutex());
    if (users()++ > 0) return;
    before() = openblas_get_num_threads();
    openblas_set_num_threads(1);
  }
  ~GemmWithoutThreads() {
    const std::lock_guard lock(mutex());
    if (--users() == 0) openblas_set_num_threads(before());
  }
  GemmWithoutThreads(const GemmWithoutThreads&) = delete;
  GemmWithoutThreads& operator=(const GemmWithoutThreads&) = delete;

 private:
  static ForkSafeMutex& mutex() {
    static auto& instance = *new ForkSafeMutex(ForkSafeMutex::Rank::kTable);
    return instance;
  }
  static int& users() {
    static int instance = 0;
    return instance;
  }
  static int& before() {
    static int instance = 1;
    return instance;
  }
};

// c = alpha * a (m x k) * b (k x n) + beta * c. Leading sizes are elements between rows as stored.
struct Gemm {
  int m, n, k;
  int lda, ldb;
  CBLAS_TRANSPOSE ta = CblasNoTrans;
  CBLAS_TRANSPOSE tb = CblasNoTrans;
  int ldc = 0;  // 0 for n
  double alpha = 1;

  [[nodiscard]] int leading() const { return ldc == 0 ? n : ldc; }
};

inline void gemm(const Gemm& g, const float* a, const float* b, float beta, float* c) {
  cblas_sgemm(CblasRowMajor,
              g.ta,
              g.tb,
              g.m,
              g.n,
              g.k,
              static_cast<float>(g.alpha),
              a,
              g.lda,
              b,
              g.ldb,
              beta,
              c,
              g.leading());
}
inline void gemm(const Gemm& g, const double* a, const double* b, double beta, double* c) {
  cblas_dgemm(
      CblasRowMajor, g.ta, g.tb, g.m, g.n, g.k, g.alpha, a, g.lda, b, g.ldb, beta, c, g.leading());
}

// How a product is shared out: c in parts of at most `rows` x `columns`, each a product of its own
// by one thread. By the sizes and the number of threads, never by what they happen to do.
struct GemmParts {
  GemmParts(const Gemm& g, int threads);

  [[nodiscard]] std::int64_t count() const { return std::int64_t{down} * across; }

  int rows;
  int columns;
  int down = 1;
  int across = 1;
};

// Products worth waking a thread for.
[[nodiscard]] std::int64_t gemm_grain(const Gemm& g, const GemmParts& parts);

// One part: its product, and where its operands start.
struct GemmPart {
  GemmPart(const Gemm& g, const GemmParts& parts, std::int64_t index);

  Gemm gemm;
  std::int64_t row;
  std::int64_t column;
  std::int64_t a;  // elements from the operand's start
  std::int64_t b;
  std::int64_t c;
};

// gemm on all of our threads. Inside a GemmWithoutThreads.
template <class T>
void gemm_on_threads(const Gemm& g, const T* a, const T* b, T beta, T* c) {
  const GemmParts parts(g, ThreadPool::shared().size());
  parallel_for(parts.count(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const GemmPart part(g, parts, i);
      gemm(part.gemm, a + part.a, b + part.b, beta, c + part.c);
    }
  });
}

}  // namespace headroom::tensor::cpu
