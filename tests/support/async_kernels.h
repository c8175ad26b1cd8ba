// The kernels of AsyncDevice: the processor's, called as a GPU's are. A launch copies its arguments
// and queues the work; before the work, everything that it is to write and its workspace are filled
// with kPoison. Each family asks for a workspace of a size of its own, and checks that it is given
// exactly that. Whatever a launch finds wrong is a failure of the running test.
#pragma once

#include "headroom/tensor/kernels.h"

namespace headroom::testing {

[[nodiscard]] const tensor::Kernels& async_kernels();

}  // namespace headroom::testing
