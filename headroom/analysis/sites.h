// Whose code asked for a block.
//
// The site of a stack is its innermost frame that is the user's. Where no frame is the user's it is
// the innermost one that has a name and does more than to pass a call on.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "headroom/analysis/frames.h"
#include "headroom/analysis/types.h"

namespace headroom::analysis {

// A frame's number in Trace::stacks; kNoSite where there is no frame to name.
using SiteId = FrameId;
inline constexpr SiteId kNoSite = UINT32_MAX;

class Sites {
 public:
  // Is referred to and must outlive this.
  explicit Sites(const Trace& trace) : trace_(trace), frames_(trace) {}

  // Frames that differ by nothing we show are one site.
  [[nodiscard]] SiteId site_of(StackId stack);
  // `train.py:18 forward`, `train.py:18`, `forward`; `(no stack)` for kNoSite.
  [[nodiscard]] std::string name(SiteId site) const;
  // The innermost module that the stack passes, without the line: `modeling_gpt2.py forward`.
  [[nodiscard]] std::string module(StackId stack) const;

  [[nodiscard]] const Frames& frames() const noexcept { return frames_; }

 private:
  [[nodiscard]] SiteId find(StackId stack) const;

  const Trace& trace_;
  Frames frames_;
  std::unordered_map<StackId, SiteId> known_;
};

}  // namespace headroom::analysis
