// Whether a sanitizer watches this build, under which work takes many times longer.
//
//   for (int i = 0; i < rounds(16); ++i) ...     // four where one does
#pragma once

#include <algorithm>

namespace headroom::testing {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kHasAddressSanitizer = true;
#else
inline constexpr bool kHasAddressSanitizer = false;
#endif
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kHasThreadSanitizer = true;
#else
inline constexpr bool kHasThreadSanitizer = false;
#endif
inline constexpr bool kIsSanitized = kHasAddressSanitizer || kHasThreadSanitizer;

// How many random cases to try: a quarter under a sanitizer, which looks for other faults.
[[nodiscard]] constexpr int rounds(int usual) noexcept {
  return kIsSanitized ? std::max(usual / 4, 1) : usual;
}

}  // namespace headroom::testing
