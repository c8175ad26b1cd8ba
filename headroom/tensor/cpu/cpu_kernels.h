// The table of the processor's kernels.
#pragma once

#include "headroom/tensor/kernels.h"

namespace headroom::tensor::cpu {

[[nodiscard]] const Kernels& kernels();

void element(const ElementArgs& args, Launch);
void generate(const GenerateArgs& args, Launch);
void reduce(const ReduceArgs& args, Launch);
void matmul(const MatmulArgs& args, Launch);
void solve(const SolveArgs& args, Launch);
void softmax(const SoftmaxArgs& args, Launch);
void softmax_backward(const SoftmaxArgs& args, Launch);
void cross_entropy(const CrossEntropyArgs& args, Launch);
void gather(const IndexArgs& args, Launch);
void scatter(const IndexArgs& args, Launch);
void conv2d(const Conv2dArgs& args, Launch);
void pool2d(const Pool2dArgs& args, Launch);
void layer_norm(const LayerNormArgs& args, Launch);
void batch_norm(const BatchNormArgs& args, Launch);
void dropout(const DropoutArgs& args, Launch);
void attention(const AttentionArgs& args, Launch);
void list(const ListArgs& args, Launch);
void check_index(IndexCheckArgs& args, Launch);

}  // namespace headroom::tensor::cpu
