#include "headroom/report/ladder.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "headroom/report/text.h"

namespace headroom::report {
namespace {

constexpr int kStep = 2;     // a box reaches this much further on either side than the one above
constexpr int kPadding = 1;  // left and right of a label
constexpr int kNoteGap = 2;

struct Strokes {
  std::string_view across, side, top_left, top_right, bottom_left, bottom_right, joint;
};
constexpr Strokes kLines{"─", "│", "┌", "┐", "└", "┘", "┴"};
constexpr Strokes kLetters{"-", "|", "+", "+", "+", "+", "+"};

// Outer widths; all odd or all even, so that the boxes share an axis.
std::vector<int> box_widths(std::span<const Rung> rungs) {
  std::vector<int> widths;
  for (const Rung& rung : rungs) {
    const int least = display_width(rung.label) + 2 * kPadding + 2;
    if (widths.empty()) {
      widths.push_back(least);
      continue;
    }
    int width = widths.back() + 2 * kStep;
    while (width < least) width += 2;
    widths.push_back(width);
  }
  return widths;
}

// The upper border of a box of `width` with the box above, of `above` columns, standing on it.
std::string border(int width, int above, const Strokes& strokes) {
  std::string out(strokes.top_left);
  if (above == 0) {
    out += repeated(strokes.across, width - 2);
  } else {
    const std::string shoulder = repeated(strokes.across, (width - above) / 2 - 1);
    out.append(shoulder).append(strokes.joint);
    out.append(repeated(strokes.across, above - 2)).append(strokes.joint).append(shoulder);
  }
  return out.append(strokes.top_right);
}

std::string trimmed(std::string line) {
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line + "\n";
}

}  // namespace

int ladder_width(std::span<const Rung> rungs) {
  return rungs.empty() ? 0 : box_widths(rungs).back();
}

std::string ladder(std::span<const Rung> rungs,
                   const std::string& header,
                   int indent,
                   const Terminal& terminal) {
  if (rungs.empty()) return "";
  const Strokes& strokes = terminal.has_unicode ? kLines : kLetters;
  const std::vector<int> widths = box_widths(rungs);
  const int base = widths.back();
  const std::string gap = repeated(" ", kNoteGap);
  const auto line = [&](const std::string& box, const std::string& note) {
    return trimmed(repeated(" ", indent) + pad(box, base, Align::kCenter) + gap + note);
  };
  const auto faint = [&](std::string_view text) { return styled(text, Tone::kFaint, terminal); };

  std::string out;
  for (std::size_t i = 0; i < rungs.size(); ++i) {
    const int above = i == 0 ? 0 : widths[i - 1];
    out += line(faint(border(widths[i], above, strokes)), i == 0 ? header : "");
    const std::string label = pad(rungs[i].label, widths[i] - 2, Align::kCenter);
    out += line(faint(strokes.side) + styled(label, Tone::kStrong, terminal) + faint(strokes.side),
                rungs[i].note);
  }
  std::string floor(strokes.bottom_left);
  floor.append(repeated(strokes.across, base - 2)).append(strokes.bottom_right);
  return out + line(faint(floor), "");
}

}  // namespace headroom::report
