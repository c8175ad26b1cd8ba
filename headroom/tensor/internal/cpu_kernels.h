// The table of the processor's kernels.
#pragma once

#include "headroom/tensor/kernels.h"

namespace headroom::tensor::cpu {

[[nodiscard]] const Kernels& kernels();

void element(const ElementArgs& args, const Launch&);
void generate(const GenerateArgs& args, const Launch&);
void reduce(const ReduceArgs& args, const Launch&);
void matmul(const MatmulArgs& args, const Launch&);
// After the product is in `out`, or where there is an activation to come, in `kept`.
void finish_product(const MatmulArgs& args, const Launch&);
[[nodiscard]] bool accepts_product(const MatmulArgs& args, const device::Properties&);
void solve(const SolveArgs& args, const Launch&);
void softmax(const SoftmaxArgs& args, const Launch&);
void softmax_backward(const SoftmaxArgs& args, const Launch&);
void cross_entropy(const CrossEntropyArgs& args, const Launch&);
void gather(const IndexArgs& args, const Launch&);
void scatter(const IndexArgs& args, const Launch&);
void conv2d(const Conv2dArgs& args, const Launch&);
void pool2d(const Pool2dArgs& args, const Launch&);
void layer_norm(const LayerNormArgs& args, const Launch&);
void residual_layer_norm(const LayerNormArgs& args, const Launch&);
void batch_norm(const BatchNormArgs& args, const Launch&);
void dropout(const DropoutArgs& args, const Launch&);
void attention(const AttentionArgs& args, const Launch&);
void multi_tensor(const MultiTensorArgs& args, const Launch&);
void step_numbers(const StepNumberArgs& args, const Launch&);
void check_index(IndexCheckArgs& args, const Launch&);

}  // namespace headroom::tensor::cpu
