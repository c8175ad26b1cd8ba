#include "headroom/report/area_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "headroom/report/text.h"

namespace headroom::report {
namespace {

constexpr int kEighths = 8;

std::string_view cell(int eighths, const Terminal& terminal) {
  constexpr std::array<std::string_view, 9> kBlocks{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  if (terminal.has_unicode) return kBlocks[static_cast<std::size_t>(eighths)];
  if (eighths >= kEighths / 2) return "#";
  return eighths > 0 ? "_" : " ";
}

// In eighths of a line, from the bottom.
int height_of(double value, double highest, int lines) {
  if (!(value > 0) || !(highest > 0)) return 0;
  const double exact = std::min(value / highest, 1.0) * lines * kEighths;
  return std::max(1, static_cast<int>(std::lround(exact)));
}

// One line of the areas; runs of one tone are styled together.
class LinePainter {
 public:
  explicit LinePainter(const Terminal& terminal) : terminal_(terminal) {}

  void add(std::string_view text, Tone tone) {
    if (tone != tone_) flush();
    tone_ = tone;
    run_.append(text);
  }
  std::string take() {
    // Blanks at the end of a line are left out.
    if (tone_ == Tone::kPlain) run_.clear();
    flush();
    return std::move(out_);
  }

 private:
  void flush() {
    if (!run_.empty()) out_ += tone_ == Tone::kPlain ? run_ : styled(run_, tone_, terminal_);
    run_.clear();
  }

  const Terminal& terminal_;
  Tone tone_ = Tone::kPlain;
  std::string run_;
  std::string out_;
};

double highest_of(const AreaChart& chart) {
  double highest = chart.highest;
  for (const double value : chart.front) highest = std::max(highest, value);
  for (const double value : chart.back) highest = std::max(highest, value);
  return highest;
}

std::string line_of(const AreaChart& chart, double highest, int line, const Terminal& terminal) {
  LinePainter painter(terminal);
  const int base = line * kEighths;
  for (std::size_t i = 0; i < chart.front.size(); ++i) {
    const int front = height_of(chart.front[i], highest, chart.height) - base;
    const double back_value = i < chart.back.size() ? chart.back[i] : 0;
    const int back = height_of(back_value, highest, chart.height) - base;
    if (front > 0) {
      painter.add(cell(std::min(front, kEighths), terminal), Tone::kAccent);
    } else if (back >= kEighths / 2) {
      painter.add(back_fill(terminal), Tone::kFaint);
    } else {
      painter.add(" ", Tone::kPlain);
    }
  }
  return painter.take();
}

}  // namespace

std::string_view front_fill(const Terminal& terminal) { return terminal.has_unicode ? "█" : "#"; }
std::string_view back_fill(const Terminal& terminal) { return terminal.has_unicode ? "░" : "."; }

std::string area_chart(const AreaChart& chart, int indent, const Terminal& terminal) {
  const int labels = std::max(display_width(chart.top_label), display_width(chart.bottom_label));
  const double highest = highest_of(chart);
  const std::string_view axis = terminal.has_unicode ? "│" : "|";
  const std::string_view tick = terminal.has_unicode ? "┤" : "+";
  std::string out;
  for (int line = chart.height - 1; line >= 0; --line) {
    const bool is_top = line == chart.height - 1;
    const bool is_bottom = line == 0;
    const std::string label = is_top ? chart.top_label : is_bottom ? chart.bottom_label : "";
    out += repeated(" ", indent) + pad(label, labels, Align::kRight) + " ";
    out += styled(is_top || is_bottom ? tick : axis, Tone::kFaint, terminal);
    out += line_of(chart, highest, line, terminal) + "\n";
  }
  return out;
}

std::vector<double> resampled(const std::vector<double>& values, int columns) {
  const auto count = static_cast<std::size_t>(std::max(columns, 0));
  std::vector<double> out(values.empty() ? 0 : count);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t first = i * values.size() / count;
    const std::size_t last = std::max(first + 1, (i + 1) * values.size() / count);
    for (std::size_t k = first; k < last; ++k) out[i] = std::max(out[i], values[k]);
  }
  return out;
}

}  // namespace headroom::report
