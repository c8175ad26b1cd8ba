// All a C++ engineer includes to train: models by name, the step, plans, and what they are made of.
//
//   #include <headroom/train.h>
//
//   headroom::train::StepRunner runner({.model = {.name = "gpt2-tiny"}}, allocator);
//   headroom::train::plan({.model = {.name = "gpt2"}, .batch = 16}).peak_reserved;
#pragma once

#include "headroom/nn.h"              // IWYU pragma: export
#include "headroom/train/data.h"      // IWYU pragma: export
#include "headroom/train/meter.h"     // IWYU pragma: export
#include "headroom/train/models.h"    // IWYU pragma: export
#include "headroom/train/plan.h"      // IWYU pragma: export
#include "headroom/train/remedies.h"  // IWYU pragma: export
#include "headroom/train/retry.h"     // IWYU pragma: export
#include "headroom/train/step.h"      // IWYU pragma: export
