#include "headroom/tensor/cpu/cpu_kernels.h"

namespace headroom::tensor::cpu {

const Kernels& kernels() {
  static const Kernels kTable{.is_host = true,
                              .element = element,
                              .generate = generate,
                              .reduce = reduce,
                              .matmul = matmul,
                              .softmax = softmax,
                              .softmax_backward = softmax_backward,
                              .cross_entropy = cross_entropy,
                              .gather = gather,
                              .scatter = scatter,
                              .check_index = check_index};
  return kTable;
}

}  // namespace headroom::tensor::cpu
