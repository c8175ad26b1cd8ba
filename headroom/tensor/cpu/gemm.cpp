#include "headroom/tensor/cpu/internal/gemm.h"

#include <algorithm>

namespace headroom::tensor::cpu {
namespace {

// Multiply-adds of a part: as quick on one thread below. The library has other code for small
// products, whose sums may differ in the last bit, so a part is not to be one unless the whole is.
constexpr double kLeastWork = 1 << 20;
// The cost of a part beside its products, in multiply-adds for each of its rows and columns, which
// it copies into the library's order. Measured on halves of products: rows are what to cut, unless
// there are more than three times as many columns.
constexpr double kRowWork = 56;
constexpr double kColumnWork = 16;
// Sides are cut where the library's own tiles end.
constexpr int kStep = 16;

double work_of(const Gemm& g) { return static_cast<double>(g.m) * g.n * g.k; }

int side_of(int whole, int parts) {
  const int side = (whole + parts - 1) / parts;
  return std::min((side + kStep - 1) / kStep * kStep, whole);
}

}  // namespace

GemmParts::GemmParts(const Gemm& g, int threads)
    : rows(std::max(g.m, 1)), columns(std::max(g.n, 1)) {
  const int most = static_cast<int>(std::min<double>(threads, work_of(g) / kLeastWork));
  const auto cost = [](double m, double n) { return m * n + kRowWork * m + kColumnWork * n; };
  double least = cost(g.m, g.n);
  for (int i = 1; i <= most; ++i) {
    const int m = side_of(g.m, i);
    const int n = side_of(g.n, most / i);
    if (cost(m, n) >= least) continue;
    least = cost(m, n);
    rows = m;
    columns = n;
  }
  down = (g.m + rows - 1) / rows;
  across = (g.n + columns - 1) / columns;
}

std::int64_t gemm_grain(const Gemm& g, const GemmParts& parts) {
  const double each = work_of(g) / static_cast<double>(parts.count());
  return static_cast<std::int64_t>(std::max(1.0, kLeastWork / 4 / std::max(each, 1.0)));
}

GemmPart::GemmPart(const Gemm& g, const GemmParts& parts, std::int64_t index)
    : gemm(g),
      row(index / parts.across * parts.rows),
      column(index % parts.across * parts.columns) {
  gemm.m = static_cast<int>(std::min<std::int64_t>(parts.rows, g.m - row));
  gemm.n = static_cast<int>(std::min<std::int64_t>(parts.columns, g.n - column));
  gemm.ldc = g.leading();
  a = g.ta == CblasNoTrans || g.ta == CblasConjNoTrans ? row * g.lda : row;
  b = g.tb == CblasNoTrans || g.tb == CblasConjNoTrans ? column : column * g.ldb;
  c = row * gemm.ldc + column;
}

}  // namespace headroom::tensor::cpu
