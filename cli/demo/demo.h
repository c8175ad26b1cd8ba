// `headroom demo`, the tour: a PyTorch recording is replayed (tour.h), then a model is trained here
// inside a limit (training_act.h). In two parts that tests can take one by one: play it, then draw
// it or write it as JSON.
#pragma once

#include <optional>
#include <string>

#include "cli/command.h"
#include "cli/demo/tour.h"
#include "cli/demo/training_act.h"

namespace headroom::cli {

struct Demo {
  std::optional<Tour> tour{};  // nothing where the recording is not there
  TrainingAct training{};
};

[[nodiscard]] std::string draw_demo(const Demo& demo, const Context& context);

[[nodiscard]] std::string demo_json(const Demo& demo);

}  // namespace headroom::cli
