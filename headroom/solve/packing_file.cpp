#include "headroom/solve/packing_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

#include "headroom/base/checked.h"
#include "headroom/base/format_error.h"
#include "headroom/base/suggest.h"

namespace headroom::solve {
namespace {

using Cells = std::vector<std::string_view>;

constexpr std::array<std::string_view, 7> kColumns{
    "id", "lower", "upper", "size", "alignment", "hint", "offset"};
constexpr std::size_t kRequired = 4;  // the first of them
enum Column : std::size_t { kId, kLower, kUpper, kSize, kAlignment, kHint, kOffset };

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

Cells cells_of(std::string_view line) {
  Cells cells;
  while (true) {
    const std::size_t comma = line.find(',');
    cells.push_back(trimmed(line.substr(0, comma)));
    if (comma == std::string_view::npos) return cells;
    line.remove_prefix(comma + 1);
  }
}

std::string quoted(std::string_view text) {
  std::string out(1, '\'');
  out += excerpt(text);
  out += '\'';
  return out;
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (text_.starts_with(kByteOrderMark)) text_.remove_prefix(kByteOrderMark.size());
  }

  Result<PackingTable, TableFault> read() {
    read_header();
    while (!fault_ && next_line()) {
      if (!line_.empty()) read_row();
    }
    if (!fault_ && table_.buffers.empty()) complain("it has no buffers; add a line for each");
    if (fault_) return Unexpected(*std::move(fault_));
    return std::move(table_);
  }

 private:
  void complain(std::string message) {
    if (!fault_) fault_ = TableFault{number_, std::move(message)};
  }

  bool next_line() {
    if (text_.empty()) return false;
    const std::size_t end = text_.find('\n');
    line_ = trimmed(text_.substr(0, end));
    text_.remove_prefix(end == std::string_view::npos ? text_.size() : end + 1);
    ++number_;
    return true;
  }

  void read_header() {
    while (next_line() && line_.empty()) {
    }
    if (line_.empty()) {
      number_ = std::max<std::size_t>(number_, 1);
      return complain("it is empty; the first line names the columns: id,lower,upper,size");
    }
    const Cells names = cells_of(line_);
    width_ = names.size();
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto known = std::ranges::find(kColumns, names[i]);
      if (known == kColumns.end()) continue;
      auto& place = places_[static_cast<std::size_t>(known - kColumns.begin())];
      if (place) return complain("column " + quoted(names[i]) + " is there twice; keep one");
      place = i;
    }
    for (std::size_t column = 0; column < kRequired; ++column) {
      if (!places_[column]) return complain_of_missing(kColumns[column], names);
    }
    table_.header = without_offset(line_, names);
  }

  void complain_of_missing(std::string_view column, const Cells& names) {
    const bool is_data =
        !names.front().empty() && names.front().front() >= '0' && names.front().front() <= '9';
    if (is_data) {
      return complain(
          "a line of numbers where the columns should be named; put "
          "id,lower,upper,size above it");
    }
    const auto meant = suggest(column, names);
    complain("there is no column '" + std::string(column) + "'" +
             (meant ? "; is " + quoted(*meant) + " meant?"
                    : "; the first line is to name id, lower, upper and size"));
  }

  // The line itself where it has no such column.
  [[nodiscard]] std::string without_offset(std::string_view line, const Cells& cells) const {
    if (!places_[kOffset]) return std::string(line);
    std::string out;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (i == *places_[kOffset]) continue;
      if (!out.empty()) out += ',';
      out += cells[i];
    }
    return out;
  }

  void read_row() {
    const Cells cells = cells_of(line_);
    if (cells.size() != width_) {
      return complain("it has " + std::to_string(cells.size()) + " values, and the first line " +
                      std::to_string(width_) + " columns; make them agree");
    }
    const std::string_view id = cells[*places_[kId]];
    if (id.empty()) return complain("its id is empty; give each buffer a name of its own");
    const auto [at, is_new] = lines_.try_emplace(id, number_);
    if (!is_new) {
      return complain("id " + quoted(id) + " is that of line " + std::to_string(at->second) +
                      " already; give each buffer a name of its own");
    }
    Buffer buffer;
    buffer.lower = number(cells, kLower).value_or(0);
    buffer.upper = number(cells, kUpper).value_or(0);
    buffer.size_bytes = number(cells, kSize).value_or(0);
    buffer.alignment = number(cells, kAlignment).value_or(1);
    buffer.hint_offset = number(cells, kHint);
    if (fault_) return;
    check(buffer);
    table_.buffers.push_back(buffer);
    table_.rows.push_back(without_offset(line_, cells));
  }

  void check(const Buffer& buffer) {
    if (buffer.upper <= buffer.lower) {
      return complain("it lives from " + std::to_string(buffer.lower) + " to " +
                      std::to_string(buffer.upper) + "; upper must be above lower");
    }
    if (buffer.alignment == 0) return complain("its alignment is 0; write 1 for none");
    total_bytes_ = saturating_add(total_bytes_, buffer.size_bytes);
    total_bytes_ = saturating_add(total_bytes_, buffer.alignment);
    if (total_bytes_ > kMostPackedBytes) {
      complain(
          "up to here the sizes add up to more than 2^62 bytes; give them in bytes, or all in "
          "a larger unit");
    }
  }

  // Empty cells of columns that need not be there count as absent.
  std::optional<std::uint64_t> number(const Cells& cells, Column column) {
    if (!places_[column]) return std::nullopt;
    const std::string_view text = cells[*places_[column]];
    const std::string name(kColumns[column]);
    if (text.empty()) {
      if (column < kRequired) complain(name + " is empty; write a number");
      return std::nullopt;
    }
    std::uint64_t value = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem == std::errc{} && end == text.data() + text.size()) return value;
    // MiniMalloc's own word for a hint that is none.
    if (column == kHint && text == "-1") return std::nullopt;
    if (problem == std::errc::result_out_of_range) {
      complain(name + " " + quoted(text) + " is 2^64 or more; write a smaller number");
    } else if (text.front() == '-') {
      complain(name + " " + quoted(text) + " is negative; count from 0");
    } else {
      complain(name + " " + quoted(text) + " is no whole number; write digits only");
    }
    return std::nullopt;
  }

  std::string_view text_;
  std::string_view line_{};
  std::size_t number_ = 0;
  std::size_t width_ = 0;
  std::array<std::optional<std::size_t>, kColumns.size()> places_{};
  std::unordered_map<std::string_view, std::size_t> lines_{};  // by id
  std::uint64_t total_bytes_ = 0;
  PackingTable table_{};
  std::optional<TableFault> fault_{};
};

}  // namespace

Result<PackingTable, TableFault> parse_packing(std::string_view text) {
  return Reader(text).read();
}

std::string solution_text(const PackingTable& table, const Offsets& offsets) {
  std::string out = table.header + ",offset\n";
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    out += table.rows[i] + "," + std::to_string(offsets[i]) + "\n";
  }
  return out;
}

}  // namespace headroom::solve
