// Seed 003's DeepNet: blocks of two linear layers with a residual, checkpointed or not.
#pragma once

#include <headroom/nn.h>

struct Block : headroom::nn::Module {
  explicit Block(std::int64_t dim) {
    net.emplace<headroom::nn::Linear>(dim, dim);
    net.emplace<headroom::nn::ReLU>();
    net.emplace<headroom::nn::Linear>(dim, dim);
    net.emplace<headroom::nn::ReLU>();
    add("net", net);
  }
  headroom::Tensor forward(const headroom::Tensor& x) override { return net(x) + x; }

  headroom::nn::Sequential net;
};

struct DeepNet : headroom::nn::Module {
  DeepNet(std::int64_t dim, int n_blocks, bool checkpointed = false)
      : use_checkpoint(checkpointed) {
    for (int i = 0; i < n_blocks; ++i) blocks.emplace<Block>(dim);
    add("blocks", blocks);
  }
  headroom::Tensor forward(const headroom::Tensor& x) override {
    headroom::Tensor h = x;
    for (const auto& block : blocks) {
      h = use_checkpoint
              ? headroom::checkpoint([&](const headroom::Tensor& in) { return (*block)(in); }, h)
              : (*block)(h);
    }
    return h;
  }

  headroom::nn::ModuleList blocks;
  bool use_checkpoint;
};
