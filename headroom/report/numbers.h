// Measured quantities as people write them. Sizes are base/bytes.h's.
#pragma once

#include <string>

namespace headroom::report {

// Three digits and a decimal unit, as data sheets give bandwidth: `21.3 GB/s`, `4.8 TB/s`.
[[nodiscard]] std::string format_rate(double bytes_per_second);

// `1.2 ns`, `98 ns`, `1.3 us`, `12 ms`, `2.5 s`.
[[nodiscard]] std::string format_duration_ns(double nanoseconds);

// A large count in words: `950`, `5.3 million`, `1.2 billion`.
[[nodiscard]] std::string format_large(double count);

// A ratio to two digits, for "so many times": `1.4`, `19`, `230`.
[[nodiscard]] std::string format_ratio(double ratio);

}  // namespace headroom::report
