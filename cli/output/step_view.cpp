#include "cli/output/step_view.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "headroom/report/bar.h"

#include "cli/input/step_options.h"
#include "cli/output/layout.h"

namespace headroom::cli {

std::string draw_categories(const train::CategoryBytes& bytes, const report::Terminal& terminal) {
  using report::Tone;
  constexpr std::array kOrder{memory::Category::kParameter,
                              memory::Category::kGradient,
                              memory::Category::kOptimizerState,
                              memory::Category::kActivation,
                              memory::Category::kWorkspace,
                              memory::Category::kData,
                              memory::Category::kUnknown};
  constexpr std::array kTones{Tone::kAccent, Tone::kWarn, Tone::kGood, Tone::kBad};
  std::vector<report::BarPart> parts;
  for (const memory::Category category : kOrder) {
    const std::uint64_t value = bytes[static_cast<std::size_t>(category)];
    if (value == 0) continue;
    parts.push_back({.label = std::string(plain_name(category)),
                     .value = value,
                     .tone = kTones[parts.size() % kTones.size()]});
  }
  const int width = std::clamp(terminal.width - 2 * kIndent, 20, 100);
  const std::string indent(kIndent, ' ');
  std::string out = indent + report::stacked_bar(parts, width, terminal) + "\n";
  for (const std::string& line : report::legend_lines(parts, width, terminal)) {
    out += indent + line + "\n";
  }
  return out;
}

std::string checkpoint_line(train::CheckpointMode mode, bool fits) {
  if (!fits) {
    return fmt::format("No --checkpoint mode fits; {} takes the least memory.\n", to_string(mode));
  }
  if (mode == train::CheckpointMode::kNone) return "It fits without checkpointing.\n";
  return fmt::format("--checkpoint {} fits and computes the least again.\n", to_string(mode));
}

}  // namespace headroom::cli
