// All a C++ engineer includes for tensors and their gradients.
//
//   #include <headroom/autograd.h>
//
//   auto w = headroom::randn({64, 8}, {.requires_grad = true});
//   headroom::matmul(x, w).sum().backward();
//   std::cout << w.grad();
#pragma once

#include "headroom/autograd/autograd.h"    // IWYU pragma: export
#include "headroom/autograd/checkpoint.h"  // IWYU pragma: export
#include "headroom/autograd/grad_mode.h"   // IWYU pragma: export
#include "headroom/autograd/hooks.h"       // IWYU pragma: export
#include "headroom/autograd/node.h"        // IWYU pragma: export
#include "headroom/base/error.h"           // IWYU pragma: export
#include "headroom/tensor.h"               // IWYU pragma: export
