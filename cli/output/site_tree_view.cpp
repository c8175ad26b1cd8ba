#include "cli/output/site_tree_view.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "headroom/report/table.h"

#include "cli/output/layout.h"

namespace headroom::cli {
namespace {

using analysis::SiteNode;
using report::Align;
using report::Fit;
using report::Terminal;

// The lines beside a tree: what stands before a part and before the parts of that.
struct TreeLines {
  std::string_view part, last_part, under, under_last;
};

TreeLines tree_lines(const Terminal& terminal) {
  if (terminal.has_unicode) return {"├ ", "└ ", "│ ", "  "};
  return {"|- ", "`- ", "|  ", "   "};
}

class HolderTable {
 public:
  HolderTable(std::string_view title, std::uint64_t whole, const Terminal& terminal)
      : terminal_(terminal),
        whole_(whole),
        table_({{"bytes", Align::kRight},
                {"share", Align::kRight},
                {"blocks", Align::kRight},
                {std::string(title), Align::kLeft, Fit::kShrinks}}) {}

  void add(std::uint64_t bytes, std::uint64_t blocks, std::string label) {
    table_.add_row(
        {format_bytes(bytes), share(bytes, whole_), format_count(blocks), std::move(label)});
  }
  void add_line(std::string label) { table_.add_row({"", "", "", std::move(label)}); }

  void add_tree(const SiteNode& node, const std::string& first, const std::string& before) {
    add(node.bytes, node.blocks, first + report::printable(node.label));
    const TreeLines lines = tree_lines(terminal_);
    const bool has_rest = !node.children.empty() && shows(node.rest_bytes());
    for (std::size_t i = 0; i < node.children.size(); ++i) {
      const bool is_last = i + 1 == node.children.size() && !has_rest;
      add_tree(node.children[i],
               before + std::string(is_last ? lines.last_part : lines.part),
               before + std::string(is_last ? lines.under_last : lines.under));
    }
    if (has_rest) {
      add(node.rest_bytes(),
          node.rest_blocks(),
          before + std::string(lines.last_part) + "the rest");
    }
  }

  [[nodiscard]] std::string text() const { return table_.render(terminal_, kIndent); }

 private:
  // One percent and more: less is not missed.
  [[nodiscard]] bool shows(std::uint64_t bytes) const { return bytes > whole_ / 100; }

  const Terminal& terminal_;
  std::uint64_t whole_;
  report::Table table_;
};

template <class Holder, class Bytes>
void add_rest(std::span<const Holder> all, std::size_t shown, Bytes of, HolderTable& table) {
  std::uint64_t bytes = 0;
  std::uint64_t blocks = 0;
  for (const Holder& one : all.subspan(shown)) {
    bytes += of(one).bytes;
    blocks += of(one).blocks;
  }
  if (shown < all.size()) {
    table.add(bytes, blocks, fmt::format("{} more; info --top lists them", all.size() - shown));
  }
}

}  // namespace

std::string draw_site_tree(std::span<const SiteNode> sites,
                           std::size_t top,
                           std::uint64_t whole,
                           const Terminal& terminal) {
  const std::size_t shown = std::min(top, sites.size());
  if (shown == 0) return "";
  HolderTable table("site, and the calls below it", whole, terminal);
  for (const SiteNode& site : sites.first(shown)) table.add_tree(site, "", "");
  add_rest(
      sites, shown, [](const SiteNode& one) -> const SiteNode& { return one; }, table);
  return table.text();
}

std::string draw_stacks(std::span<const analysis::Holder> stacks,
                        std::size_t top,
                        std::uint64_t whole,
                        const Terminal& terminal) {
  const std::size_t shown = std::min(top, stacks.size());
  if (shown == 0) return "";
  HolderTable table("stack, the innermost frame first", whole, terminal);
  for (const analysis::Holder& one : stacks.first(shown)) {
    const bool has_frames = !one.short_stack.empty();
    table.add(one.group.bytes,
              one.group.blocks,
              report::printable(has_frames ? one.short_stack.front() : one.group.label));
    for (std::size_t i = 1; i < one.short_stack.size(); ++i) {
      table.add_line("  " + report::printable(one.short_stack[i]));
    }
  }
  add_rest(
      stacks,
      shown,
      [](const analysis::Holder& one) -> const analysis::Group& { return one.group; },
      table);
  return table.text();
}

}  // namespace headroom::cli
