#include "headroom/tensor/cpu/cpu_kernels.h"

#include "headroom/tensor/cpu/thread_pool.h"

namespace headroom::tensor::cpu {

const Kernels& kernels() {
  // Here, where a wrong HEADROOM_THREADS can be told: a kernel may run where nobody could catch it.
  static const ThreadPool& pool = ThreadPool::shared();
  (void)pool;
  static const Kernels kTable{.is_host = true,
                              .element = element,
                              .generate = generate,
                              .reduce = reduce,
                              .matmul = matmul,
                              .solve = solve,
                              .softmax = softmax,
                              .softmax_backward = softmax_backward,
                              .cross_entropy = cross_entropy,
                              .gather = gather,
                              .scatter = scatter,
                              .conv2d = conv2d,
                              .pool2d = pool2d,
                              .layer_norm = layer_norm,
                              .batch_norm = batch_norm,
                              .dropout = dropout,
                              .attention = attention,
                              .list = list,
                              .check_index = check_index};
  return kTable;
}

}  // namespace headroom::tensor::cpu
