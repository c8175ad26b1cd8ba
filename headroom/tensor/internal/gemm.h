// One matrix product of the library, of numbers that lie in rows.
#pragma once

#include <cblas.h>
#include <mutex>

#include "headroom/tensor/cpu/thread_pool.h"

namespace headroom::tensor::cpu {

// The library has threads of its own: as many as ours, set once. Before the first product.
inline void use_our_threads() {
  static const bool kDone = [] {
    openblas_set_num_threads(ThreadPool::shared().size());
    return true;
  }();
  (void)kDone;
}

// While one is alive the library uses no threads of its own: for kernels that call it from each of
// ours. What else calls it meanwhile, on another stream, is slower and no different.
class GemmWithoutThreads {
 public:
  GemmWithoutThreads() {
    use_our_threads();
    const std::lock_guard lock(mutex());
    if (users()++ == 0) openblas_set_num_threads(1);
  }
  ~GemmWithoutThreads() {
    const std::lock_guard lock(mutex());
    if (--users() == 0) openblas_set_num_threads(ThreadPool::shared().size());
  }
  GemmWithoutThreads(const GemmWithoutThreads&) = delete;
  GemmWithoutThreads& operator=(const GemmWithoutThreads&) = delete;

 private:
  static std::mutex& mutex() {
    static std::mutex instance;
    return instance;
  }
  static int& users() {
    static int instance = 0;
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
              g.ldc == 0 ? g.n : g.ldc);
}
inline void gemm(const Gemm& g, const double* a, const double* b, double beta, double* c) {
  cblas_dgemm(CblasRowMajor,
              g.ta,
              g.tb,
              g.m,
              g.n,
              g.k,
              g.alpha,
              a,
              g.lda,
              b,
              g.ldb,
              beta,
              c,
              g.ldc == 0 ? g.n : g.ldc);
}

}  // namespace headroom::tensor::cpu
