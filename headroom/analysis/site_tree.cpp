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

// A stack on the way from its site inwards: its frames before `left` are still to come.
struct Walk {
  StackId stack = 0;
  Sum sum{};
  std::size_t left = 0;
  FrameId last = kNoSite;
};

// Part of the walks of a node: those that go on through one frame.
struct Part {
  FrameId frame = kNoSite;
  Sum sum{};
  std::vector<Walk> walks{};
};

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
      Part& root = roots_[sites_.site_of(stack)];
      root.sum.add(sum);
      root.walks.push_back({.stack = stack, .sum = sum});
    }
  }

  std::vector<SiteNode> take(const SiteTreeOptions& options) {
    const double least = std::ceil(static_cast<double>(all_.bytes) * options.least_share);
    least_bytes_ = std::max<std::uint64_t>(static_cast<std::uint64_t>(least), 1);
    std::vector<SiteNode> out;
    for (auto& [site, root] : roots_) {
      root.frame = site;
      // A site too small to be split is not looked into, which keeps long recordings quick.
      if (root.sum.bytes < least_bytes_) root.walks.clear();
      for (Walk& walk : root.walks) walk.left = user_frame(walk.stack);
      out.push_back(folded(std::move(root), true));
    }
    sort(out);
    return out;
  }

 private:
  static void sort(std::vector<SiteNode>& nodes) {
    std::ranges::sort(nodes, [](const SiteNode& a, const SiteNode& b) {
      return a.bytes != b.bytes ? a.bytes > b.bytes : a.label < b.label;
    });
  }

  // How many frames are inside the user's innermost one; 0 where it is nobody's line, whose site is
  // the innermost frame that says something.
  [[nodiscard]] std::size_t user_frame(StackId stack) const {
    const auto frames = trace_.stacks.frame_ids(stack);
    const auto found = std::ranges::find_if(
        frames, [&](FrameId id) { return sites_.frames().kind(id) == FrameKind::kUser; });
    return found == frames.end() ? 0 : static_cast<std::size_t>(found - frames.begin());
  }

  // The next frame inwards that is no wrapper; one that calls itself is there once. kNoSite at the
  // end.
  FrameId step(Walk& walk) const {
    const auto frames = trace_.stacks.frame_ids(walk.stack);
    while (walk.left > 0) {
      const FrameId id = frames[--walk.left];
      if (sites_.frames().kind(id) != FrameKind::kLibrary) continue;
      const FrameId shown = sites_.frames().shown(id);
      if (shown == walk.last) continue;
      return walk.last = shown;
    }
    return kNoSite;
  }

  // The node of a part, with the frames that follow it and split nothing.
  SiteNode folded(Part part, bool is_root) {
    SiteNode node{.bytes = part.sum.bytes, .blocks = part.sum.blocks};
    const FrameId first = part.frame;
    add_frame(first, node);
    std::vector<Part> parts = large_parts(part.walks);
    while (parts.size() == 1 && part.sum.bytes - parts[0].sum.bytes < least_bytes_) {
      part = std::move(parts[0]);
      add_frame(part.frame, node);
      parts = large_parts(part.walks);
    }
    node.label = label_of(first, part.frame, is_root);
    for (Part& one : parts) node.children.push_back(folded(std::move(one), false));
    sort(node.children);
    return node;
  }

  // Takes every walk a frame further in, and keeps those that go together in parts worth showing.
  std::vector<Part> large_parts(std::vector<Walk>& walks) const {
    std::unordered_map<FrameId, Sum> sums;
    for (Walk& walk : walks) {
      const FrameId next = step(walk);
      if (next == kNoSite) walk.last = kNoSite;
      sums[next].add(walk.sum);
    }
    std::map<FrameId, Part> parts;  // in order, so that equal recordings give equal trees
    for (const auto& [frame, sum] : sums) {
      if (frame != kNoSite && sum.bytes >= least_bytes_) {
        parts[frame] = {.frame = frame, .sum = sum};
      }
    }
    for (const Walk& walk : walks) {
      const auto found = parts.find(walk.last);
      if (found != parts.end()) found->second.walks.push_back(walk);
    }
    walks.clear();
    std::vector<Part> out;
    out.reserve(parts.size());
    for (auto& [frame, part] : parts) out.push_back(std::move(part));
    return out;
  }

  // A root is the user's line and shown whole; of a chain under it the last function says most.
  [[nodiscard]] std::string label_of(FrameId first, FrameId last, bool is_root) const {
    if (first == last) return sites_.name(first);
    const std::string place = sites_.frames().place(first);
    const std::string file = place.substr(0, place.find_last_of(':') + 1);
    std::string end = sites_.name(last);
    // The same file again is only another line of it.
    if (!file.empty() && end.starts_with(file)) end.erase(0, file.size() - 1);
    return (is_root ? sites_.name(first) : place) + " > " + end;
  }

  void add_frame(FrameId id, SiteNode& node) const {
    if (id == kNoSite) return;
    const Frame& frame = trace_.stacks.frame(id);
    node.frames.push_back(fmt::format(
        "{}:{} {}", trace_.strings[frame.file], frame.line, trace_.strings[frame.name]));
  }

  const Trace& trace_;
  Sites sites_;
  Sum all_{};
  std::map<SiteId, Part> roots_;
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
