#include "headroom/analysis/sites.h"

#include <optional>
#include <string_view>

namespace headroom::analysis {

SiteId Sites::site_of(StackId stack) {
  const auto [at, is_new] = known_.try_emplace(stack, kNoSite);
  if (is_new) at->second = find(stack);
  return at->second;
}

SiteId Sites::find(StackId stack) const {
  std::optional<FrameId> library;
  std::optional<FrameId> wrapper;
  for (const FrameId id : trace_.stacks.frame_ids(stack)) {
    switch (frames_.kind(id)) {
      case FrameKind::kUser:
        return frames_.shown(id);
      case FrameKind::kLibrary:
        if (!library) library = id;
        break;
      case FrameKind::kWrapper:
        if (!wrapper) wrapper = id;
        break;
      case FrameKind::kUnnamed:
        break;
    }
  }
  if (!library) library = wrapper;
  return library ? frames_.shown(*library) : kNoSite;
}

std::string Sites::name(SiteId site) const {
  return site == kNoSite ? "(no stack)" : frames_.name(site);
}

std::string Sites::module(StackId stack) const {
  std::optional<FrameId> innermost;
  for (const FrameId id : trace_.stacks.frame_ids(stack)) {
    const FrameKind kind = frames_.kind(id);
    if (kind != FrameKind::kUser && kind != FrameKind::kLibrary) continue;
    if (!innermost) innermost = id;
    // Called by nn.Module; a function that it calls in turn is part of the same module.
    const std::string_view function = trace_.strings[trace_.stacks.frame(id).name];
    if (function.substr(function.find_last_of('.') + 1) == "forward") return frames_.module(id);
  }
  if (innermost) return frames_.module(*innermost);
  const SiteId site = find(stack);
  return site == kNoSite ? "(no stack)" : frames_.module(site);
}

}  // namespace headroom::analysis
