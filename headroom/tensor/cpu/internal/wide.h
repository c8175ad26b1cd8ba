// Loops as wide as the processor's vectors:
//
//   wide([=] { for (std::int64_t i = 0; i < count; ++i) out[i] = f(a[i]); });
//
// The body, and what it calls where that can be inlined, is compiled again for each level, and the
// best one is taken when it runs. All levels give the same bits: no multiply-add is fused, and sums
// have lanes of their own (sums.h).
#pragma once

namespace headroom::tensor::cpu {

#if defined(__x86_64__) && defined(__GNUC__)

enum class VectorLevel { kPlain, kAvx2, kAvx512 };

[[nodiscard]] inline VectorLevel vector_level() noexcept {
  static const VectorLevel kLevel = [] {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
      return VectorLevel::kAvx512;
    }
    return __builtin_cpu_supports("avx2") ? VectorLevel::kAvx2 : VectorLevel::kPlain;
  }();
  return kLevel;
}

template <class Body>
[[gnu::target("avx2"), gnu::flatten, gnu::noinline]] void wide_avx2(const Body& body) {
  body();
}
// g++ would take half of such a vector without being told; clang does not know the word.
#if defined(__clang__)
#define HEADROOM_AVX512 "avx512f,avx512dq,avx512bw,avx512vl"
#else
#define HEADROOM_AVX512 "avx512f,avx512dq,avx512bw,avx512vl,prefer-vector-width=512"
#endif
template <class Body>
[[gnu::target(HEADROOM_AVX512), gnu::flatten, gnu::noinline]] void wide_avx512(const Body& body) {
  body();
}
#undef HEADROOM_AVX512

template <class Body>
void wide(const Body& body) {
  switch (vector_level()) {
    case VectorLevel::kAvx512:
      return wide_avx512(body);
    case VectorLevel::kAvx2:
      return wide_avx2(body);
    default:
      return body();
  }
}

#else

template <class Body>
void wide(const Body& body) {
  body();
}

#endif

}  // namespace headroom::tensor::cpu
