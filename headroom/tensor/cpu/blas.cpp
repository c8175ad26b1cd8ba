#include <algorithm>
#include <vector>

#include "headroom/tensor/cpu/internal/gemm.h"
#include "headroom/tensor/internal/blocks.h"
#include "headroom/tensor/internal/cpu_kernels.h"

namespace headroom::tensor::cpu {
// Beside the others of its name, which one in the unnamed namespace would hide.
static void gemm(
    const Gemm& g, const Complex64* a, const Complex64* b, Complex64 beta, Complex64* c) {
  const Complex64 one(1);
  cblas_cgemm(
      CblasRowMajor, g.ta, g.tb, g.m, g.n, g.k, &one, a, g.lda, b, g.ldb, &beta, c, g.leading());
}

namespace {

CBLAS_TRANSPOSE flag(const MatrixOperand& x) {
  if (x.is_conjugated) return x.is_transposed ? CblasConjTrans : CblasConjNoTrans;
  return x.is_transposed ? CblasTrans : CblasNoTrans;
}

Gemm shape_of(const MatmulArgs& args) {
  return {static_cast<int>(args.m),
          static_cast<int>(args.n),
          static_cast<int>(args.k),
          static_cast<int>(args.a.leading),
          static_cast<int>(args.b.leading),
          flag(args.a),
          flag(args.b)};
}

// Where product `at` of a batch has its operands.
struct BatchOffsets {
  BatchOffsets(const MatmulArgs& args, std::int64_t at) : c(at * args.m * args.n) {
    for (int i = args.batch.size() - 1; i >= 0; --i) {
      const std::int64_t here = at % args.batch[i];
      at /= args.batch[i];
      a += here * args.a.batch_strides[static_cast<std::size_t>(i)];
      b += here * args.b.batch_strides[static_cast<std::size_t>(i)];
    }
  }

  std::int64_t a = 0;
  std::int64_t b = 0;
  std::int64_t c;
};

// Where the product goes before an activation.
void* result_of(const MatmulArgs& args) {
  const bool is_kept = args.kept != nullptr && !args.is_backward;
  return is_kept ? args.kept : args.out;
}

// How many rows of `elements` elements are worth waking a thread for.
std::int64_t row_grain(std::int64_t elements) {
  return std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(elements, 1));
}

std::int64_t batch_size(const MatmulArgs& args) {
  std::int64_t count = 1;
  for (const std::int64_t size : args.batch) count *= size;
  return count;
}

// Every row of a part starts as the bias, or as 0 where there is nothing to add up.
template <class T>
void fill_part(const GemmPart& part, const T* bias, std::int64_t leading, T* out) {
  for (int i = 0; i < part.gemm.m; ++i) {
    T* row = out + i * leading;
    if (bias != nullptr) {
      std::copy_n(bias + part.column, part.gemm.n, row);
    } else {
      std::fill_n(row, part.gemm.n, T{0});
    }
  }
}

// Parts of all products of the batch are shared out among the threads.
template <class T>
void multiply(const MatmulArgs& args) {
  const GemmWithoutThreads own_threads;
  const Gemm shape = shape_of(args);
  const std::int64_t count = batch_size(args);
  const int threads = ThreadPool::shared().size();
  const GemmParts parts(shape, count >= threads ? 1 : threads);
  const auto* bias = static_cast<const T*>(args.bias);
  parallel_for(count * parts.count(), gemm_grain(shape, parts), [&](auto begin, auto end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const GemmPart part(shape, parts, i % parts.count());
      const BatchOffsets at(args, i / parts.count());
      T* out = static_cast<T*>(result_of(args)) + at.c + part.c;
      if (!args.adds && (bias != nullptr || args.k == 0)) fill_part(part, bias, args.n, out);
      if (args.k == 0) continue;
      gemm(part.gemm,
           static_cast<const T*>(args.a.data) + at.a + part.a,
           static_cast<const T*>(args.b.data) + at.b + part.b,
           bias != nullptr || args.adds ? T{1} : T{0},
           out);
    }
  });
}

// A matrix to f32, row by row (column by column when it is transposed).
void widen(const MatrixOperand& x,
           const void* data,
           DType dtype,
           std::int64_t rows,
           std::int64_t columns,
           float* to) {
  const std::int64_t outer = x.is_transposed ? columns : rows;
  const std::int64_t inner = x.is_transposed ? rows : columns;
  parallel_for(outer, row_grain(inner), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto* from = static_cast<const std::uint16_t*>(data) + i * x.leading;
      load_run(from, dtype, 1, inner, to + i * inner);
    }
  });
}

void multiply_16(const MatmulArgs& args, const Launch& launch) {
  const GemmWithoutThreads own_threads;
  Gemm shape = shape_of(args);
  shape.lda = static_cast<int>(std::max<std::int64_t>(args.a.is_transposed ? args.m : args.k, 1));
  shape.ldb = static_cast<int>(std::max<std::int64_t>(args.b.is_transposed ? args.k : args.n, 1));
  auto* wide_a = static_cast<float*>(launch.workspace.data);
  float* wide_b = wide_a + args.m * args.k;
  float* wide_c = wide_b + args.k * args.n;
  for (std::int64_t i = 0; i < batch_size(args); ++i) {
    const BatchOffsets at(args, i);
    widen(args.a,
          static_cast<const std::uint16_t*>(args.a.data) + at.a,
          args.dtype,
          args.m,
          args.k,
          wide_a);
    widen(args.b,
          static_cast<const std::uint16_t*>(args.b.data) + at.b,
          args.dtype,
          args.k,
          args.n,
          wide_b);
    const auto for_rows = [&args](const auto& body) {
      parallel_for(args.m, row_grain(args.n), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) body(row);
      });
    };
    auto* out = static_cast<std::uint16_t*>(result_of(args)) + at.c;
    for_rows([&](std::int64_t row) {
      float* to = wide_c + row * args.n;
      if (args.adds) {
        load_run(out + row * args.n, args.dtype, 1, args.n, to);
      } else if (args.bias != nullptr) {
        load_run(args.bias, args.dtype, 1, args.n, to);
      } else {
        std::fill_n(to, args.n, 0.0F);
      }
    });
    if (args.k > 0) gemm_on_threads(shape, wide_a, wide_b, 1.0F, wide_c);
    for_rows([&](std::int64_t row) {
      store_run(out + row * args.n, args.dtype, 1, args.n, wide_c + row * args.n);
    });
  }
}

// One row of the product of integers; sums wrap.
void add_product_row(const MatmulArgs& args,
                     const char* a,
                     const char* b,
                     std::int64_t row,
                     std::vector<std::int64_t>& sums) {
  const auto bytes = static_cast<std::int64_t>(headroom::size_bytes(args.dtype));
  const std::int64_t a_right = args.a.is_transposed ? args.a.leading : 1;
  const std::int64_t a_down = args.a.is_transposed ? 1 : args.a.leading;
  const std::int64_t b_right = args.b.is_transposed ? args.b.leading : 1;
  const std::int64_t b_down = args.b.is_transposed ? 1 : args.b.leading;
  std::vector<std::int64_t> line(sums.size());
  for (std::int64_t p = 0; p < args.k; ++p) {
    std::int64_t factor = 0;
    load_run(a + (row * a_down + p * a_right) * bytes, args.dtype, 1, 1, &factor);
    load_run(b + p * b_down * bytes, args.dtype, b_right, args.n, line.data());
    for (std::size_t j = 0; j < sums.size(); ++j) {
      const std::uint64_t term =
          static_cast<std::uint64_t>(factor) * static_cast<std::uint64_t>(line[j]);
      sums[j] = static_cast<std::int64_t>(static_cast<std::uint64_t>(sums[j]) + term);
    }
  }
}

void multiply_integers(const MatmulArgs& args) {
  const auto bytes = static_cast<std::int64_t>(headroom::size_bytes(args.dtype));
  for (std::int64_t i = 0; i < batch_size(args); ++i) {
    const BatchOffsets at(args, i);
    const char* from_a = static_cast<const char*>(args.a.data) + at.a * bytes;
    const char* from_b = static_cast<const char*>(args.b.data) + at.b * bytes;
    char* out = static_cast<char*>(args.out) + at.c * bytes;
    for (std::int64_t row = 0; row < args.m; ++row) {
      std::vector<std::int64_t> sums(static_cast<std::size_t>(args.n), 0);
      char* const to = out + row * args.n * bytes;
      if (args.bias != nullptr) load_run(args.bias, args.dtype, 1, args.n, sums.data());
      if (args.adds) load_run(to, args.dtype, 1, args.n, sums.data());
      add_product_row(args, from_a, from_b, row, sums);
      store_run(to, args.dtype, 1, args.n, sums.data());
    }
  }
}

void multiply_as_typed(const MatmulArgs& args, const Launch& launch) {
  switch (args.dtype) {
    case DType::kF32:
      return multiply<float>(args);
    case DType::kF64:
      return multiply<double>(args);
    case DType::kC64:
      return multiply<Complex64>(args);
    case DType::kF16:
    case DType::kBF16:
      return multiply_16(args, launch);
    default:
      return multiply_integers(args);
  }
}

}  // namespace

void matmul(const MatmulArgs& args, const Launch& launch) {
  multiply_as_typed(args, launch);
  if (has_epilogue(args)) finish_product(args, launch);
}

}  // namespace headroom::tensor::cpu
