#include "headroom/report/table.h"

#include <algorithm>
#include <utility>

#include "headroom/base/check.h"

namespace headroom::report {
namespace {

constexpr int kGap = 2;
constexpr int kNarrowestColumn = 6;

int total_width(const std::vector<int>& widths) {
  int total = 0;
  for (const int width : widths) total += width > 0 ? width + kGap : 0;
  return std::max(0, total - kGap);
}

// The widest of those that shrink gives way first. False when none can.
bool shrink_one(const std::vector<Column>& columns, std::vector<int>& widths) {
  int* widest = nullptr;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    if (columns[c].fit != Fit::kShrinks || widths[c] <= kNarrowestColumn) continue;
    if (widest == nullptr || widths[c] > *widest) widest = &widths[c];
  }
  if (widest == nullptr) return false;
  --*widest;
  return true;
}

bool drop_one(const std::vector<Column>& columns, std::vector<int>& widths) {
  for (std::size_t c = columns.size(); c-- > 0;) {
    if (columns[c].fit != Fit::kDrops || widths[c] == 0) continue;
    widths[c] = 0;
    return true;
  }
  return false;
}

std::string without_trailing_spaces(std::string line) {
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

std::string join_cells(const std::vector<std::string>& cells) {
  std::string line;
  for (const std::string& cell : cells) {
    if (cell.empty()) continue;
    if (!line.empty()) line += std::string(kGap, ' ');
    line += cell;
  }
  return line;
}

}  // namespace

void Table::add_row(std::vector<std::string> cells) {
  HEADROOM_CHECK(cells.size() <= columns_.size(), "a row has more cells than the table columns");
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::vector<int> Table::widths(const Terminal& terminal, int indent) const {
  std::vector<int> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    int widest = 0;
    for (const auto& row : rows_) widest = std::max(widest, display_width(row[c]));
    const bool has_text = widest > 0;
    widths.push_back(has_text ? std::max(widest, display_width(columns_[c].title)) : 0);
  }
  const int room = terminal.width - indent;
  while (total_width(widths) > room && shrink_one(columns_, widths)) {
  }
  while (total_width(widths) > room && drop_one(columns_, widths)) {
  }
  return widths;
}

std::vector<std::string> Table::lines(const Terminal& terminal, int indent) const {
  const std::vector<int> width = widths(terminal, indent);
  const auto line = [&](auto&& cell_text, Tone tone) {
    std::vector<std::string> cells(columns_.size());
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (width[c] == 0) continue;
      std::string text = cell_text(c);
      if (display_width(text) > width[c]) text = shorten(text, width[c], terminal);
      cells[c] = pad(styled(text, tone, terminal), width[c], columns_[c].align);
    }
    return std::string(static_cast<std::size_t>(indent), ' ') + join_cells(cells);
  };
  std::vector<std::string> out;
  out.push_back(line([&](std::size_t c) { return columns_[c].title; }, Tone::kFaint));
  for (const auto& row : rows_) {
    out.push_back(line([&](std::size_t c) { return row[c]; }, Tone::kPlain));
  }
  return out;
}

std::string Table::render(const Terminal& terminal, int indent) const {
  std::vector<std::string> rule;
  for (const int width : widths(terminal, indent)) {
    rule.push_back(
        styled(repeated(terminal.has_unicode ? "─" : "-", width), Tone::kFaint, terminal));
  }
  std::vector<std::string> all = lines(terminal, indent);
  all.insert(all.begin() + 1,
             std::string(static_cast<std::size_t>(indent), ' ') + join_cells(rule));
  std::string out;
  for (std::string& text : all) out += without_trailing_spaces(std::move(text)) + "\n";
  return out;
}

}  // namespace headroom::report
