#include "headroom/analysis/site_tree.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

namespace headroom::analysis {
namespace {

struct Sum {
  std::uint64_t bytes = 0;
  std::uint64_t blocks = 0;

  void add(const Sum& other) {
    bytes += other.bytes;
    blocks += other.blocks;
  }
};

// Every frame under a site as a node of its own, before anything is folded.
struct Branch {
  FrameId frame = kNoSite;
  Sum sum{};
  std::map<FrameId, std::size_t> children{};
};

// The frames of a stack from its site inwards, outermost first, without wrappers. A frame that
// calls itself is there once.
std::vector<FrameId> path_under(const Trace& trace, const Frames& frames, StackId stack) {
  std::vector<FrameId> path;
  for (const FrameId id : trace.stacks.frame_ids(stack)) {
    const FrameKind kind = frames.kind(id);
    if (kind == FrameKind::kUser) {
      std::ranges::reverse(path);
      return path;
    }
    if (kind != FrameKind::kLibrary) continue;
    const FrameId shown = frames.shown(id);
    if (path.empty() || path.back() != shown) path.push_back(shown);
  }
  return {};  // nobody's line: its site is the innermost frame
}

class Tree {
 public:
  Tree(const TraceIndex& index, std::span<const std::uint32_t> lifetimes)
      : trace_(index.trace()), sites_(trace_) {
    std::unordered_map<StackId, Sum> by_stack;
    for (const std::uint32_t id : lifetimes) {
      const Lifetime& block = index.lifetimes()[id];
      by_stack[block.stack].add({block.block_bytes, 1});
    }
    for (const auto& [stack, sum] : by_stack) {
      all_.add(sum);
      Root& root = roots_[sites_.of(stack)];
      root.sum.add(sum);
      root.stacks.emplace_back(stack, sum);
    }
  }

  std::vector<SiteNode> take(const SiteTreeOptions& options) {
    const double least = std::ceil(static_cast<double>(all_.bytes) * options.least_share);
    least_bytes_ = std::max<std::uint64_t>(static_cast<std::uint64_t>(least), 1);
    std::vector<SiteNode> out;
    for (const auto& [site, root] : roots_) out.push_back(node_of_root(site, root));
    sort(out);
    return out;
  }

 private:
  struct Root {
    Sum sum{};
    std::vector<std::pair<StackId, Sum>> stacks{};
  };

  static void sort(std::vector<SiteNode>& nodes) {
    std::ranges::sort(nodes, [](const SiteNode& a, const SiteNode& b) {
      return a.bytes != b.bytes ? a.bytes > b.bytes : a.label < b.label;
    });
  }

  SiteNode node_of_root(SiteId site, const Root& root) {
    branches_.assign(1, {.frame = site, .sum = root.sum});
    // A site too small to be split is not looked into, which keeps long recordings quick.
    if (root.sum.bytes >= least_bytes_) {
      for (const auto& [stack, sum] : root.stacks) grow(stack, sum);
    }
    return folded(0);
  }

  void grow(StackId stack, const Sum& sum) {
    std::size_t at = 0;
    for (const FrameId frame : path_under(trace_, sites_.frames(), stack)) {
      const auto [child, is_new] = branches_[at].children.try_emplace(frame, branches_.size());
      at = child->second;
      if (is_new) branches_.push_back({.frame = frame});
      branches_[at].sum.add(sum);
    }
  }

  // The node of a branch, with what follows it and is not split.
  SiteNode folded(std::size_t at) {
    SiteNode node{.bytes = branches_[at].sum.bytes, .blocks = branches_[at].sum.blocks};
    const std::size_t first = at;
    std::vector<std::size_t> parts = large_parts(at);
    add_frame(at, node);
    while (parts.size() == 1 && !has_rest(at, parts[0])) {
      at = parts[0];
      parts = large_parts(at);
      add_frame(at, node);
    }
    node.label = label_of(first, at);
    for (const std::size_t part : parts) node.children.push_back(folded(part));
    sort(node.children);
    return node;
  }

  [[nodiscard]] bool has_rest(std::size_t branch, std::size_t part) const {
    return branches_[branch].sum.bytes - branches_[part].sum.bytes >= least_bytes_;
  }

  // A root is the user's line and shown whole; of a chain under it the last function says most.
  [[nodiscard]] std::string label_of(std::size_t first, std::size_t last) const {
    const FrameId from = branches_[first].frame;
    if (first == last) return sites_.name(from);
    const std::string start = first == 0 ? sites_.name(from) : sites_.frames().place(from);
    const std::string place = sites_.frames().place(from);
    const std::string file = place.substr(0, place.find_last_of(':') + 1);
    std::string end = sites_.name(branches_[last].frame);
    // The same file again is only another line of it.
    if (!file.empty() && end.starts_with(file)) end.erase(0, file.size() - 1);
    return start + " > " + end;
  }

  void add_frame(std::size_t branch, SiteNode& node) const {
    if (branches_[branch].frame == kNoSite) return;
    const Frame& frame = trace_.stacks.frame(branches_[branch].frame);
    node.frames.push_back(fmt::format(
        "{}:{} {}", trace_.strings[frame.file], frame.line, trace_.strings[frame.name]));
  }

  [[nodiscard]] std::vector<std::size_t> large_parts(std::size_t at) const {
    std::vector<std::size_t> parts;
    for (const auto& [frame, child] : branches_[at].children) {
      if (branches_[child].sum.bytes >= least_bytes_) parts.push_back(child);
    }
    return parts;
  }

  const Trace& trace_;
  Sites sites_;
  Sum all_{};
  std::map<SiteId, Root> roots_;
  std::vector<Branch> branches_;
  std::uint64_t least_bytes_ = 1;
};

}  // namespace

std::uint64_t SiteNode::rest_bytes() const noexcept {
  std::uint64_t rest = bytes;
  for (const SiteNode& child : children) rest -= child.bytes;
  return rest;
}

std::uint64_t SiteNode::rest_blocks() const noexcept {
  std::uint64_t rest = blocks;
  for (const SiteNode& child : children) rest -= child.blocks;
  return rest;
}

std::vector<SiteNode> site_tree(const TraceIndex& index,
                                std::span<const std::uint32_t> lifetimes,
                                const SiteTreeOptions& options) {
  return Tree(index, lifetimes).take(options);
}

const SiteNode& most_of(const SiteNode& node) noexcept {
  const SiteNode* at = &node;
  while (!at->children.empty() && at->children.front().bytes >= node.bytes - node.bytes / 2) {
    at = &at->children.front();
  }
  return *at;
}

}  // namespace headroom::analysis
