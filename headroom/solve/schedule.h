// Schedule: the steps of a chain in the order in which they run, some of them several times.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headroom::solve {

enum class StepKind : std::uint8_t {
  kForward,      // nothing stays but the output: the input goes, unless a saved stage holds it
  kForwardKeep,  // the same, and the input stays as a checkpoint
  kForwardSave,  // what the backward needs stays, by the option of that number
  kLoss,         // the gradient of its input appears, its input goes
  kBackward,     // what was saved, the gradient of the output and a checkpoint of the input go
  kSendInput,    // a checkpoint goes to the host and leaves the device
  kFetchInput,   // and comes back
};

struct Step {
  StepKind kind = StepKind::kForward;
  std::uint32_t stage = 0;
  std::uint32_t option = 0;  // of kForwardSave

  friend bool operator==(const Step&, const Step&) = default;
};

using Schedule = std::vector<Step>;

// "save 3 by option 1": for messages and tests.
[[nodiscard]] std::string to_string(const Step& step);

}  // namespace headroom::solve
