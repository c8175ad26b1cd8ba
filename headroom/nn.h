// All a C++ engineer includes for layers: modules, their files, and what they are made of.
//
//   #include <headroom/nn.h>
//
//   headroom::nn::Linear layer(784, 10);
//   headroom::cross_entropy(layer(x), target).backward();
//   headroom::nn::save(layer, "layer.safetensors");
#pragma once

#include "headroom/autograd.h"             // IWYU pragma: export
#include "headroom/nn/containers.h"        // IWYU pragma: export
#include "headroom/nn/data/files.h"        // IWYU pragma: export
#include "headroom/nn/data/loader.h"       // IWYU pragma: export
#include "headroom/nn/data/synthetic.h"    // IWYU pragma: export
#include "headroom/nn/init.h"              // IWYU pragma: export
#include "headroom/nn/layers/attention.h"  // IWYU pragma: export
#include "headroom/nn/layers/linear.h"     // IWYU pragma: export
#include "headroom/nn/layers/norm.h"       // IWYU pragma: export
#include "headroom/nn/layers/simple.h"     // IWYU pragma: export
#include "headroom/nn/module.h"            // IWYU pragma: export
#include "headroom/nn/optim/gradients.h"   // IWYU pragma: export
#include "headroom/nn/optim/optimizer.h"   // IWYU pragma: export
#include "headroom/nn/optim/schedule.h"    // IWYU pragma: export
#include "headroom/nn/safetensors.h"       // IWYU pragma: export
