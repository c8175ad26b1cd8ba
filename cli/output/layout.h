// Helpers that the views of the commands share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "headroom/base/bytes.h"
#include "headroom/report/numbers.h"
#include "headroom/report/terminal.h"
#include "headroom/report/text.h"

namespace headroom::cli {

inline constexpr int kIndent = 2;

[[nodiscard]] inline std::string counted(std::uint64_t count,
                                         std::string_view one,
                                         std::string_view many) {
  return fmt::format("{} {}", format_count(count), count == 1 ? one : many);
}

[[nodiscard]] inline std::string heading(std::string_view text, const report::Terminal& terminal) {
  return "\n" + report::styled(text, report::Tone::kStrong, terminal) + "\n";
}

[[nodiscard]] inline std::string paragraph(std::string_view text,
                                           const report::Terminal& terminal) {
  return report::wrapped(text, kIndent, terminal.width);
}

// `87 %`, `<1 %`; nothing of nothing.
[[nodiscard]] inline std::string share(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return "";
  const double percent = 100 * static_cast<double>(part) / static_cast<double>(whole);
  if (percent > 0 && percent < 0.95) return "<1 %";
  return fmt::format("{:.0f} %", percent);
}

}  // namespace headroom::cli
