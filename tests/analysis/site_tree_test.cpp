// The user's lines, and the frames below that split them.
#include "headroom/analysis/site_tree.h"

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"

namespace headroom::analysis {
namespace {

// StackedBlocks by the stacks they come from; a frame is `user.py:31 step` or `torch/x.py:5
// forward`.
class StackedBlocks {
 public:
  // Outermost frame first, as one reads them.
  StackedBlocks& add(std::uint64_t bytes, const std::vector<std::string>& frames) {
    std::vector<Frame> stack;
    for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
      stack.push_back(frame_of(*frame));
    }
    device().events.push_back({.address = next_,
                               .size_bytes = bytes,
                               .stack = stack.empty() ? 0 : trace_.stacks.intern(stack)});
    next_ += bytes;
    return *this;
  }

  [[nodiscard]] std::vector<SiteNode> tree(const SiteTreeOptions& options = {}) {
    const TraceIndex index(trace_, device());
    return site_tree(index, index.allocated_at(index.end_position()), options);
  }

 private:
  DeviceTrace& device() {
    if (trace_.devices.empty()) trace_.devices.emplace_back();
    return trace_.devices[0];
  }

  Frame frame_of(const std::string& text) {
    const std::size_t colon = text.find(':');
    const std::size_t space = text.find(' ');
    const std::string file = text.substr(0, colon);
    const bool is_package = file.find('/') != std::string::npos;
    const std::string path = (is_package ? "/v/lib/python3.12/site-packages/" : "/home/me/") + file;
    return {.name = trace_.strings.intern(text.substr(space + 1)),
            .file = trace_.strings.intern(path),
            .line = std::stoi(text.substr(colon + 1))};
  }

  Trace trace_{};
  DeviceAddress next_ = 1_GiB;
};

constexpr const char* kCall = "torch/nn/modules/module.py:1790 _call_impl";

// `87 % of label`, two spaces further in for each level.
void draw(const SiteNode& node, std::uint64_t all, int depth, std::string& out) {
  out += std::string(static_cast<std::size_t>(depth) * 2, ' ') +
         std::to_string(node.bytes * 100 / all) + " " + node.label + "\n";
  for (const SiteNode& child : node.children) draw(child, all, depth + 1, out);
}
std::string drawn(const std::vector<SiteNode>& tree) {
  std::uint64_t all = 0;
  for (const SiteNode& root : tree) all += root.bytes;
  std::string out;
  for (const SiteNode& root : tree) draw(root, all, 0, out);
  return out;
}

TEST(SiteTree, SplitsTheUsersLineByTheFramesBelowIt) {  // #22: one line held 87 %
  const std::string step = "train.py:31 step";
  const std::string block = "hub/gpt2.py:608 forward";
  StackedBlocks blocks;
  blocks
      .add(34_MiB,
           {step, kCall, block, kCall, "hub/gpt2.py:305 forward", kCall, "hub/act.py:66 forward"})
      .add(20_MiB, {step, kCall, block, kCall, "hub/gpt2.py:274 forward"})
      .add(33_MiB, {step, kCall, "hub/loss.py:40 cross_entropy", "torch/nn/functional.py:3504 f"})
      .add(10_MiB, {"train.py:32 step", "torch/optim/adam.py:178 _init_group"})
      .add(3_MiB, {"train.py:20 main", "torch/optim/adam.py:178 _init_group"});
  EXPECT_EQ(drawn(blocks.tree()),
            "87 train.py:31 step\n"
            "  54 gpt2.py:608 forward\n"
            "    34 gpt2.py:305 > act.py:66 forward\n"
            "    20 gpt2.py:274 forward\n"
            "  33 loss.py:40 cross_entropy\n"
            "10 train.py:32 step > adam.py:178 _init_group\n"
            "3 train.py:20 main\n");
}

TEST(SiteTree, ShowsNoPartBelowTheShareAskedFor) {
  StackedBlocks blocks;
  blocks.add(96_MiB, {"a.py:1 f", "hub/x.py:1 big"}).add(4_MiB, {"a.py:1 f", "hub/x.py:2 small"});
  EXPECT_EQ(drawn(blocks.tree()), "100 a.py:1 f > x.py:1 big\n");
  EXPECT_EQ(drawn(blocks.tree({.least_share = 0.01})),
            "100 a.py:1 f\n  96 x.py:1 big\n  4 x.py:2 small\n");
}

TEST(SiteTree, KeepsWhatTheLineItselfAllocatesAsTheRest) {
  StackedBlocks blocks;
  blocks.add(60_MiB, {"a.py:1 f"}).add(40_MiB, {"a.py:1 f", "hub/x.py:1 g"});
  const auto tree = blocks.tree();
  EXPECT_EQ(drawn(tree), "100 a.py:1 f\n  40 x.py:1 g\n");
  EXPECT_EQ(tree[0].rest_bytes(), 60_MiB);
  EXPECT_EQ(tree[0].rest_blocks(), 1U);
}

TEST(SiteTree, NamesAnotherLineOfTheSameFileByTheLineAlone) {
  StackedBlocks blocks;
  blocks.add(50_MiB, {"a.py:1 f", "hub/x.py:1 g", "hub/x.py:2 h"})
      .add(50_MiB, {"a.py:1 f", "hub/y.py:3 i"});
  EXPECT_EQ(drawn(blocks.tree()), "100 a.py:1 f\n  50 x.py:1 > :2 h\n  50 y.py:3 i\n");
}

TEST(SiteTree, FoldsAFrameThatCallsItself) {
  std::vector<std::string> frames{"a.py:1 f"};
  for (int i = 0; i < 100; ++i) frames.emplace_back("hub/x.py:9 walk");
  frames.emplace_back("hub/y.py:2 end");
  StackedBlocks blocks;
  blocks.add(50_MiB, frames).add(50_MiB, {"a.py:1 f", "hub/x.py:9 walk"});
  EXPECT_EQ(drawn(blocks.tree()), "100 a.py:1 f > x.py:9 walk\n  50 y.py:2 end\n");
}

TEST(SiteTree, OfStacksThatTakeTurnsIsNotDeep) {
  std::vector<std::string> frames{"a.py:1 f"};
  for (int i = 0; i < 5000; ++i) {
    frames.emplace_back(i % 2 == 0 ? "hub/x.py:1 even" : "hub/x.py:2 odd");
  }
  StackedBlocks blocks;
  EXPECT_EQ(drawn(blocks.add(1_MiB, frames).tree()), "100 a.py:1 f > x.py:2 odd\n");
}

TEST(SiteTree, OfNobodysLineIsItsInnermostFrame) {
  StackedBlocks blocks;
  blocks.add(10_MiB, {}).add(30_MiB, {"hub/x.py:1 main", "hub/x.py:2 work", kCall});
  EXPECT_EQ(drawn(blocks.tree()), "75 x.py:2 work\n25 (no stack)\n");
  EXPECT_TRUE(blocks.tree()[1].frames.empty());
}

TEST(SiteTree, OfNothingIsNothing) {
  StackedBlocks blocks;
  EXPECT_TRUE(blocks.tree().empty());
  blocks.add(0, {"a.py:1 f", "hub/x.py:1 g"});
  EXPECT_EQ(blocks.tree().size(), 1U);
}

TEST(SiteTree, KeepsTheFramesOfAChain) {
  StackedBlocks blocks;
  const auto tree = blocks.add(1_MiB, {"a.py:1 f", kCall, "hub/x.py:2 g"}).tree();
  EXPECT_EQ(tree[0].frames,
            (std::vector<std::string>{"/home/me/a.py:1 f",
                                      "/v/lib/python3.12/site-packages/hub/x.py:2 g"}));
}

TEST(SiteTree, SaysWhereMostOfASiteIs) {
  StackedBlocks blocks;
  blocks.add(60_MiB, {"a.py:1 f", "hub/x.py:1 g", "hub/x.py:2 h"})
      .add(30_MiB, {"a.py:1 f", "hub/x.py:1 g", "hub/x.py:3 i"})
      .add(10_MiB, {"a.py:1 f", "hub/y.py:3 j"});
  EXPECT_EQ(most_of(blocks.tree()[0]).label, "x.py:2 h");
  StackedBlocks even;
  even.add(40_MiB, {"a.py:1 f", "hub/x.py:1 g"})
      .add(30_MiB, {"a.py:1 f", "hub/x.py:2 h"})
      .add(30_MiB, {"a.py:1 f", "hub/x.py:3 i"});
  EXPECT_EQ(most_of(even.tree()[0]).label, "a.py:1 f") << "none of them has half";
}

}  // namespace
}  // namespace headroom::analysis
