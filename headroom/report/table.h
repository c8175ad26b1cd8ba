// A table of text that fits the terminal.
//
//   Table table({{"device"}, {"capacity", Align::kRight}});
//   table.add_row({"cpu:0", "11.7GiB"});
//   print(table.render(terminal));
//
//   device  capacity
//   ──────  ────────
//   cpu:0    11.7GiB
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headroom/report/terminal.h"
#include "headroom/report/text.h"

namespace headroom::report {

// How a column shrinks when the table is too wide.
enum class Fit : std::uint8_t {
  kKeeps,
  kShrinks,  // with an ellipsis
  kDrops,    // is left out, the last one first, once nothing can shrink any more
};

struct Column {
  std::string title;
  Align align = Align::kLeft;
  Fit fit = Fit::kKeeps;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // Missing cells are empty; cells past the last column are a mistake.
  void add_row(std::vector<std::string> cells);
  [[nodiscard]] bool is_empty() const noexcept { return rows_.empty(); }

  // Header, rule, rows, each behind `indent` spaces and ended. A column without any text is left
  // out. When nothing is left that gives way the lines are too long; they are not cut.
  [[nodiscard]] std::string render(const Terminal& terminal, int indent = 0) const;

  // The lines without rule: header first, then one for each row, not ended; all equally wide.
  [[nodiscard]] std::vector<std::string> lines(const Terminal& terminal, int indent = 0) const;

 private:
  [[nodiscard]] std::vector<int> widths(const Terminal& terminal, int indent) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace headroom::report
