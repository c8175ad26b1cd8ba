#include "headroom/memory/types.h"

#include "headroom/memory/event.h"

namespace headroom::memory {

std::string_view to_string(Category category) noexcept {
  switch (category) {
    case Category::kUnknown:
      return "unknown";
    case Category::kParameter:
      return "parameter";
    case Category::kGradient:
      return "gradient";
    case Category::kOptimizerState:
      return "optimizer_state";
    case Category::kActivation:
      return "activation";
    case Category::kWorkspace:
      return "workspace";
    case Category::kData:
      return "data";
  }
  return "?";
}

std::string_view plain_name(Category category) noexcept {
  switch (category) {
    case Category::kUnknown:
      return "purpose unknown";
    case Category::kParameter:
      return "parameters";
    case Category::kGradient:
      return "gradients";
    case Category::kOptimizerState:
      return "optimizer state";
    case Category::kActivation:
      return "activations";
    case Category::kWorkspace:
      return "workspace";
    case Category::kData:
      return "data";
  }
  return "?";
}

std::string_view to_string(Action action) noexcept {
  switch (action) {
    case Action::kAlloc:
      return "alloc";
    case Action::kFreeRequested:
      return "free_requested";
    case Action::kFreeCompleted:
      return "free_completed";
    case Action::kSegmentAlloc:
      return "segment_alloc";
    case Action::kSegmentFree:
      return "segment_free";
    case Action::kSegmentMap:
      return "segment_map";
    case Action::kSegmentUnmap:
      return "segment_unmap";
    case Action::kOutOfMemory:
      return "oom";
    case Action::kSnapshot:
      return "snapshot";
    case Action::kUserDefined:
      return "user_defined";
    case Action::kAnnotate:
      return "annotate";
    case Action::kUnknown:
      break;
  }
  return "?";
}

}  // namespace headroom::memory
