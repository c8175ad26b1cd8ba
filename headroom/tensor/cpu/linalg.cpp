#include <algorithm>
#include <cmath>
#include <complex>
#include <type_traits>

#include "headroom/tensor/cpu/internal/thread_pool.h"
#include "headroom/tensor/internal/blocks.h"
#include "headroom/tensor/internal/cpu_kernels.h"

namespace headroom::tensor::cpu {
namespace {

// Sums are kept in double precision, so that f32 loses digits in storing alone.
template <class T>
using Precise = std::conditional_t<std::is_same_v<T, Complex64>, std::complex<double>, double>;

double times(double a, double b) { return a * b; }
std::complex<double> times(std::complex<double> a, std::complex<double> b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}
double conjugate(double a) { return a; }
std::complex<double> conjugate(std::complex<double> a) { return {a.real(), -a.imag()}; }
double real_part(double a) { return a; }
double real_part(std::complex<double> a) { return a.real(); }

// One n x n system, in place.
template <class T>
class Cholesky {
 public:
  Cholesky(T* matrix, std::int64_t n) : matrix_(matrix), n_(n) {}

  void factor() {
    for (std::int64_t j = 0; j < n_; ++j) {
      for (std::int64_t i = j; i < n_; ++i) {
        Precise<T> sum(at(i, j));
        for (std::int64_t k = 0; k < j; ++k) sum -= times(value(i, k), conjugate(value(j, k)));
        // The root of what is below 0 is not a number, and all that follows is not either.
        put(i, j, i == j ? Precise<T>(std::sqrt(real_part(sum))) : sum / real_part(value(j, j)));
      }
    }
  }

  // A column of the right side, `step` elements apart.
  void solve(T* x, std::int64_t step) const {
    for (std::int64_t i = 0; i < n_; ++i) {
      Precise<T> sum(x[i * step]);
      for (std::int64_t k = 0; k < i; ++k) sum -= times(value(i, k), Precise<T>(x[k * step]));
      x[i * step] = static_cast<T>(sum / real_part(value(i, i)));
    }
    for (std::int64_t i = n_ - 1; i >= 0; --i) {
      Precise<T> sum(x[i * step]);
      for (std::int64_t k = i + 1; k < n_; ++k) {
        sum -= times(conjugate(value(k, i)), Precise<T>(x[k * step]));
      }
      x[i * step] = static_cast<T>(sum / real_part(value(i, i)));
    }
  }

 private:
  [[nodiscard]] const T& at(std::int64_t i, std::int64_t j) const { return matrix_[i * n_ + j]; }
  [[nodiscard]] Precise<T> value(std::int64_t i, std::int64_t j) const {
    return Precise<T>(at(i, j));
  }
  void put(std::int64_t i, std::int64_t j, Precise<T> value) {
    matrix_[i * n_ + j] = static_cast<T>(value);
  }

  T* matrix_;
  std::int64_t n_;
};

template <class T>
void solve_as(const SolveArgs& args) {
  const std::int64_t work = args.n * args.n * (args.n / 3 + 1 + args.columns);
  parallel_for(args.batch,
               std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(work, 1)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) {
                   Cholesky<T> one(static_cast<T*>(args.factor) + i * args.n * args.n, args.n);
                   if (!args.is_factored) one.factor();
                   T* x = static_cast<T*>(args.out) + i * args.n * args.columns;
                   for (std::int64_t j = 0; j < args.columns; ++j) one.solve(x + j, args.columns);
                 }
               });
}

}  // namespace

void solve(const SolveArgs& args, const Launch&) {
  if (args.dtype == DType::kC64) return solve_as<Complex64>(args);
  args.dtype == DType::kF64 ? solve_as<double>(args) : solve_as<float>(args);
}

}  // namespace headroom::tensor::cpu
