// All a C++ engineer includes for tensors, their ops, streams and random numbers.
//
//   #include <headroom/tensor.h>
//
//   auto x = headroom::randn({32, 64});
//   auto y = headroom::relu(headroom::matmul(x, headroom::randn({64, 8})));
#pragma once

#include "headroom/tensor/autocast.h"         // IWYU pragma: export
#include "headroom/tensor/generator.h"        // IWYU pragma: export
#include "headroom/tensor/ops/activation.h"   // IWYU pragma: export
#include "headroom/tensor/ops/attention.h"    // IWYU pragma: export
#include "headroom/tensor/ops/binary.h"       // IWYU pragma: export
#include "headroom/tensor/ops/compare.h"      // IWYU pragma: export
#include "headroom/tensor/ops/complex.h"      // IWYU pragma: export
#include "headroom/tensor/ops/conditional.h"  // IWYU pragma: export
#include "headroom/tensor/ops/conv.h"         // IWYU pragma: export
#include "headroom/tensor/ops/creation.h"     // IWYU pragma: export
#include "headroom/tensor/ops/dropout.h"      // IWYU pragma: export
#include "headroom/tensor/ops/index.h"        // IWYU pragma: export
#include "headroom/tensor/ops/join.h"         // IWYU pragma: export
#include "headroom/tensor/ops/linalg.h"       // IWYU pragma: export
#include "headroom/tensor/ops/loss.h"         // IWYU pragma: export
#include "headroom/tensor/ops/matmul.h"       // IWYU pragma: export
#include "headroom/tensor/ops/norm.h"         // IWYU pragma: export
#include "headroom/tensor/ops/optim.h"        // IWYU pragma: export
#include "headroom/tensor/ops/pool.h"         // IWYU pragma: export
#include "headroom/tensor/ops/reduce.h"       // IWYU pragma: export
#include "headroom/tensor/ops/softmax.h"      // IWYU pragma: export
#include "headroom/tensor/ops/unary.h"        // IWYU pragma: export
#include "headroom/tensor/stream.h"           // IWYU pragma: export
#include "headroom/tensor/tensor.h"           // IWYU pragma: export
