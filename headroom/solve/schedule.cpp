#include "headroom/solve/schedule.h"

namespace headroom::solve {

std::string to_string(const Step& step) {
  const std::string stage = std::to_string(step.stage);
  switch (step.kind) {
    case StepKind::kForward:
      return "forward " + stage;
    case StepKind::kForwardKeep:
      return "forward " + stage + ", keep its input";
    case StepKind::kForwardSave:
      return "save " + stage + " by option " + std::to_string(step.option);
    case StepKind::kLoss:
      return "loss";
    case StepKind::kBackward:
      return "backward " + stage;
    case StepKind::kSendInput:
      return "send the input of " + stage + " to the host";
    case StepKind::kFetchInput:
      return "fetch the input of " + stage + " from the host";
  }
  return "unknown step";
}

}  // namespace headroom::solve
