// Who held memory, as a tree: the user's lines, and under each the library's frames that split it.
//
//   87 %  train.py:31 step
//   54 %    modeling_gpt2.py:682 > :608 forward
//   34 %      modeling_gpt2.py:240 > activations.py:66 forward
//   ...
//
// It is split only where that says something: into parts of at least a share of all. Frames that
// only pass a call on are left out, and a chain of frames that nothing splits is one node.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headroom/analysis/index.h"
#include "headroom/analysis/sites.h"

namespace headroom::analysis {

struct SiteNode {
  // A root is named as its site is; behind ` > ` stands the last frame of a chain.
  std::string label{};
  // The chain that it stands for, outermost first, without wrappers, as `/home/me/train.py:31
  // step`.
  std::vector<std::string> frames{};
  std::uint64_t bytes = 0;  // as Group's
  std::uint64_t blocks = 0;
  std::vector<SiteNode> children{};  // the largest first

  // Bytes that no child has: allocated here, or in parts too small to show.
  [[nodiscard]] std::uint64_t rest_bytes() const noexcept;
  [[nodiscard]] std::uint64_t rest_blocks() const noexcept;
};

struct SiteTreeOptions {
  double least_share = 0.05;  // of all bytes, for a part to be shown
};

// The roots are the sites, the largest first, all of them: they add up to the bytes of the blocks.
[[nodiscard]] std::vector<SiteNode> site_tree(const TraceIndex& index,
                                              std::span<const std::uint32_t> lifetimes,
                                              const SiteTreeOptions& options = {});

// Where most of a node is: the deepest part that has at least half of it, or the node itself.
[[nodiscard]] const SiteNode& most_of(const SiteNode& node) noexcept;

}  // namespace headroom::analysis
