#include <cstring>
#include <type_traits>

#include "headroom/tensor/cpu/internal/thread_pool.h"
#include "headroom/tensor/internal/blocks.h"
#include "headroom/tensor/internal/cpu_kernels.h"

namespace headroom::tensor::cpu {
namespace {

// How the innermost `run` elements share one index: where the index does not move along the last
// dimensions, whole runs move at once.
struct Runs {
  std::int64_t length = 1;
  int dims = 0;  // dimensions outside of the run
};

Runs runs_of(const IndexArgs& args) {
  Runs out{.dims = args.shape.size()};
  for (int i = args.shape.size() - 1; i > args.dim; --i) {
    const bool is_dense = args.from_strides[i] == out.length && args.to_strides[i] == out.length;
    if (args.index_strides[i] != 0 || !is_dense) break;
    out.length *= args.shape[i];
    out.dims = i;
  }
  return out;
}

// Offsets of run `at`: of the index, and of both sides without the indexed dimension's part.
struct Position {
  std::int64_t index = 0;
  std::int64_t from = 0;
  std::int64_t to = 0;
};

Position position(const IndexArgs& args, int dims, std::int64_t at) {
  Position out;
  for (int i = dims - 1; i >= 0; --i) {
    const std::int64_t here = at % args.shape[i];
    at /= args.shape[i];
    out.index += here * args.index_strides[i];
    out.from += here * args.from_strides[i];
    out.to += here * args.to_strides[i];
    if (i == args.dim) {
      // One of the sides is indexed here instead; gather and scatter add their own part.
      out.from -= here * args.from_strides[i];
      out.to -= here * args.to_strides[i];
    }
  }
  return out;
}

std::int64_t along_dim(const IndexArgs& args, int dims, std::int64_t at) {
  for (int i = dims - 1; i > args.dim; --i) at /= args.shape[i];
  return at % args.shape[args.dim];
}

std::int64_t count_runs(const IndexArgs& args, int dims) {
  std::int64_t out = 1;
  for (int i = 0; i < dims; ++i) out *= args.shape[i];
  return out;
}

template <class T>
void gather_as(const IndexArgs& args) {
  const Runs runs = runs_of(args);
  const std::int64_t count = count_runs(args, runs.dims);
  const std::int64_t grain =
      std::max<std::int64_t>(1, kGrain / (4 * std::max<std::int64_t>(runs.length, 1)));
  parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; ++at) {
      const Position p = position(args, runs.dims, at);
      const T* from = static_cast<const T*>(args.from) + p.from +
                      args.index[p.index] * args.from_strides[args.dim];
      T* to = static_cast<T*>(args.to) + p.to +
              along_dim(args, runs.dims, at) * args.to_strides[args.dim];
      std::copy_n(from, runs.length, to);
    }
  });
}

template <class T>
void add_to(T& to, const T& value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    to = T(static_cast<float>(to) + static_cast<float>(value));
  } else if constexpr (std::is_integral_v<T>) {
    to = static_cast<T>(static_cast<std::uint64_t>(to) + static_cast<std::uint64_t>(value));
  } else {
    to += value;
  }
}

// In order, by one thread: places that come twice are added up in the same order every time.
template <class T, bool kAdd>
void scatter_as(const IndexArgs& args) {
  const Runs runs = runs_of(args);
  const std::int64_t count = count_runs(args, runs.dims);
  for (std::int64_t at = 0; at < count; ++at) {
    const Position p = position(args, runs.dims, at);
    const T* from = static_cast<const T*>(args.from) + p.from +
                    along_dim(args, runs.dims, at) * args.from_strides[args.dim];
    T* to = static_cast<T*>(args.to) + p.to + args.index[p.index] * args.to_strides[args.dim];
    for (std::int64_t i = 0; i < runs.length; ++i) {
      if constexpr (kAdd) {
        add_to(to[i], from[i]);
      } else {
        to[i] = from[i];
      }
    }
  }
}

void scatter_set(const IndexArgs& args) {
  switch (headroom::size_bytes(args.dtype)) {
    case 1:
      return scatter_as<std::uint8_t, false>(args);
    case 2:
      return scatter_as<std::uint16_t, false>(args);
    case 4:
      return scatter_as<std::uint32_t, false>(args);
    default:
      return scatter_as<std::uint64_t, false>(args);
  }
}

void scatter_add(const IndexArgs& args) {
  switch (args.dtype) {
    case DType::kF32:
      return scatter_as<float, true>(args);
    case DType::kF64:
      return scatter_as<double, true>(args);
    case DType::kF16:
      return scatter_as<Half, true>(args);
    case DType::kBF16:
      return scatter_as<BFloat16, true>(args);
    case DType::kI32:
      return scatter_as<std::int32_t, true>(args);
    case DType::kI64:
      return scatter_as<std::int64_t, true>(args);
    case DType::kU8:
      return scatter_as<std::uint8_t, true>(args);
    case DType::kBool:
      return scatter_as<bool, true>(args);
    case DType::kC64:
      return scatter_as<Complex64, true>(args);
  }
}

}  // namespace

void gather(const IndexArgs& args, const Launch&) {
  switch (headroom::size_bytes(args.dtype)) {
    case 1:
      return gather_as<std::uint8_t>(args);
    case 2:
      return gather_as<std::uint16_t>(args);
    case 4:
      return gather_as<std::uint32_t>(args);
    default:
      return gather_as<std::uint64_t>(args);
  }
}

void scatter(const IndexArgs& args, const Launch&) {
  args.is_add ? scatter_add(args) : scatter_set(args);
}

void check_index(IndexCheckArgs& args, const Launch&) {
  std::int64_t count = 1;
  for (const std::int64_t size : args.shape) count *= size;
  for_runs(args.shape,
           args.strides.begin(),
           0,
           count,
           [&](std::int64_t offset, std::int64_t stride, std::int64_t run) {
             for (std::int64_t i = 0; i < run && !args.found; ++i) {
               const std::int64_t at = args.index[offset + i * stride];
               if ((at >= 0 && at < args.bound) || at == args.ignored) continue;
               args.found = true;
               args.bad = at;
             }
           });
}

}  // namespace headroom::tensor::cpu
