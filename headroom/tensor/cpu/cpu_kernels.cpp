#include "headroom/tensor/internal/cpu_kernels.h"

#include "headroom/tensor/cpu/internal/thread_pool.h"
#include "headroom/tensor/cpu/internal/workspace.h"

namespace headroom::tensor::cpu {

namespace {

// The processor's kernels cannot fail.
template <class Args, void (*kFunction)(const Args&, const Launch&)>
LaunchResult run(const Args& args, const Launch& launch) {
  kFunction(args, launch);
  return {};
}

}  // namespace

const Kernels& kernels() {
  // Here, where a wrong HEADROOM_THREADS can be told: a kernel may run where nobody could catch it.
  static const ThreadPool& pool = ThreadPool::shared();
  (void)pool;
  static const Kernels kTable{
      .is_host = true,
      .element = {run<ElementArgs, element>},
      .generate = {run<GenerateArgs, generate>},
      .reduce = {run<ReduceArgs, reduce>},
      .matmul = {run<MatmulArgs, matmul>, matmul_workspace, accepts_product},
      .solve = {run<SolveArgs, solve>},
      .softmax = {run<SoftmaxArgs, softmax>},
      .softmax_backward = {run<SoftmaxArgs, softmax_backward>},
      .cross_entropy = {run<CrossEntropyArgs, cross_entropy>},
      .gather = {run<IndexArgs, gather>},
      .scatter = {run<IndexArgs, scatter>},
      .conv2d = {run<Conv2dArgs, conv2d>, conv2d_workspace},
      .pool2d = {run<Pool2dArgs, pool2d>},
      .layer_norm = {run<LayerNormArgs, layer_norm>},
      .batch_norm = {run<BatchNormArgs, batch_norm>},
      .dropout = {run<DropoutArgs, dropout>},
      .attention = {run<AttentionArgs, attention>, attention_workspace},
      .multi_tensor = {run<MultiTensorArgs, multi_tensor>},
      .step_numbers = {run<StepNumberArgs, step_numbers>},
      .residual_layer_norm = {run<LayerNormArgs, residual_layer_norm>},
      .check_index = check_index};
  return kTable;
}

}  // namespace headroom::tensor::cpu
