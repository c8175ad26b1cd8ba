#include "headroom/tensor/internal/blocks.h"

#include <type_traits>

namespace headroom::tensor::cpu {
namespace {

// The stored form of bool elements; its own type, so that storing makes them 0 or 1.
struct BoolByte {
  std::uint8_t value;
};

template <class T>
inline constexpr bool kIsComplex = std::is_same_v<T, Complex64>;

template <class C, class S>
C widen(S value) {
  if constexpr (kIsComplex<C> && !kIsComplex<S>) {
    return C(widen<float>(value));
  } else if constexpr (kIsComplex<S> && !kIsComplex<C>) {
    return static_cast<C>(value.real());
  } else if constexpr (std::is_same_v<S, BoolByte>) {
    return static_cast<C>(value.value);
  } else if constexpr (std::is_same_v<S, Half> || std::is_same_v<S, BFloat16>) {
    return static_cast<C>(static_cast<float>(value));
  } else {
    return static_cast<C>(value);
  }
}

template <class S, class C>
S narrow(C value) {
  if constexpr (kIsComplex<C> && !kIsComplex<S> && !std::is_same_v<S, BoolByte>) {
    return narrow<S>(value.real());
  } else if constexpr (std::is_same_v<S, BoolByte>) {
    return {static_cast<std::uint8_t>(value != C{0})};
  } else if constexpr (std::is_same_v<S, Half> || std::is_same_v<S, BFloat16> ||
                       (kIsComplex<S> && !kIsComplex<C>)) {
    return S(static_cast<float>(value));
  } else if constexpr (std::is_integral_v<S> && std::is_floating_point_v<C>) {
    return static_cast<S>(static_cast<std::int64_t>(value));
  } else {
    return static_cast<S>(value);
  }
}

template <class S, class C>
void widen_run(const S* from, std::int64_t stride, std::int64_t count, C* to) {
  if (stride == 1) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = widen<C>(from[i]);
  } else if (stride == 0) {
    std::fill_n(to, count, widen<C>(*from));
  } else {
    for (std::int64_t i = 0; i < count; ++i) to[i] = widen<C>(from[i * stride]);
  }
}

template <class S, class C>
void narrow_run(S* to, std::int64_t stride, std::int64_t count, const C* from) {
  if (stride == 1) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = narrow<S>(from[i]);
  } else {
    for (std::int64_t i = 0; i < count; ++i) to[i * stride] = narrow<S>(from[i]);
  }
}

// Calls f with a null pointer of the stored type.
template <class F>
void with_stored_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32:
      return f(static_cast<float*>(nullptr));
    case DType::kF64:
      return f(static_cast<double*>(nullptr));
    case DType::kF16:
      return f(static_cast<Half*>(nullptr));
    case DType::kBF16:
      return f(static_cast<BFloat16*>(nullptr));
    case DType::kI32:
      return f(static_cast<std::int32_t*>(nullptr));
    case DType::kI64:
      return f(static_cast<std::int64_t*>(nullptr));
    case DType::kU8:
      return f(static_cast<std::uint8_t*>(nullptr));
    case DType::kBool:
      return f(static_cast<BoolByte*>(nullptr));
    case DType::kC64:
      return f(static_cast<Complex64*>(nullptr));
  }
}

template <class C>
void load_bits(const std::uint8_t* from, std::int64_t count, C* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = widen<C>(static_cast<std::uint8_t>((from[i / 8] >> static_cast<unsigned>(i % 8)) & 1U));
  }
}

template <class C>
void store_bits(std::uint8_t* to, std::int64_t count, const C* from) {
  for (std::int64_t i = 0; i < count; i += 8) {
    unsigned byte = 0;
    const std::int64_t width = std::min<std::int64_t>(8, count - i);
    for (std::int64_t j = 0; j < width; ++j) {
      byte |= static_cast<unsigned>(from[i + j] != C{0}) << static_cast<unsigned>(j);
    }
    to[i / 8] = static_cast<std::uint8_t>(byte);
  }
}

}  // namespace

template <class C>
void load_run(const void* data, DType dtype, std::int64_t stride, std::int64_t count, C* to) {
  with_stored_type(dtype,
                   [&]<class S>(S*) { widen_run(static_cast<const S*>(data), stride, count, to); });
}

template <class C>
void store_run(void* data, DType dtype, std::int64_t stride, std::int64_t count, const C* from) {
  with_stored_type(dtype,
                   [&]<class S>(S*) { narrow_run(static_cast<S*>(data), stride, count, from); });
}

template <class C>
void load(
    const Operand& operand, const Shape& shape, std::int64_t start, std::int64_t count, C* to) {
  if (operand.is_scalar) {
    const C value = std::is_integral_v<C> ? widen<C>(operand.integer) : widen<C>(operand.floating);
    std::fill_n(to, count, value);
    return;
  }
  if (operand.is_bits) {
    load_bits(static_cast<const std::uint8_t*>(operand.data) + start / 8, count, to);
    return;
  }
  with_stored_type(operand.dtype, [&]<class S>(S*) {
    const auto* data = static_cast<const S*>(operand.data);
    for_runs(shape,
             operand.strides.data(),
             start,
             count,
             [&](std::int64_t offset, std::int64_t stride, std::int64_t run) {
               widen_run(data + offset, stride, run, to);
               to += run;
             });
  });
}

template <class C>
void store(const Operand& operand,
           const Shape& shape,
           std::int64_t start,
           std::int64_t count,
           const C* from) {
  if (operand.is_bits) {
    store_bits(static_cast<std::uint8_t*>(operand.data) + start / 8, count, from);
    return;
  }
  with_stored_type(operand.dtype, [&]<class S>(S*) {
    auto* data = static_cast<S*>(operand.data);
    for_runs(shape,
             operand.strides.data(),
             start,
             count,
             [&](std::int64_t offset, std::int64_t stride, std::int64_t run) {
               narrow_run(data + offset, stride, run, from);
               from += run;
             });
  });
}

template void load_run<float>(const void*, DType, std::int64_t, std::int64_t, float*);
template void store_run<float>(void*, DType, std::int64_t, std::int64_t, const float*);
template void load<float>(const Operand&, const Shape&, std::int64_t, std::int64_t, float*);
template void store<float>(const Operand&, const Shape&, std::int64_t, std::int64_t, const float*);

template void load_run<double>(const void*, DType, std::int64_t, std::int64_t, double*);
template void store_run<double>(void*, DType, std::int64_t, std::int64_t, const double*);
template void load<double>(const Operand&, const Shape&, std::int64_t, std::int64_t, double*);
template void store<double>(
    const Operand&, const Shape&, std::int64_t, std::int64_t, const double*);

template void load_run<std::int64_t>(const void*, DType, std::int64_t, std::int64_t, std::int64_t*);
template void store_run<std::int64_t>(
    void*, DType, std::int64_t, std::int64_t, const std::int64_t*);
template void load<std::int64_t>(
    const Operand&, const Shape&, std::int64_t, std::int64_t, std::int64_t*);
template void store<std::int64_t>(
    const Operand&, const Shape&, std::int64_t, std::int64_t, const std::int64_t*);

template void load<Complex64>(const Operand&, const Shape&, std::int64_t, std::int64_t, Complex64*);
template void store<Complex64>(
    const Operand&, const Shape&, std::int64_t, std::int64_t, const Complex64*);

}  // namespace headroom::tensor::cpu
