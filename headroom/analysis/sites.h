// Whose code asked for a block.
//
// The site of a stack is its innermost frame that is the user's: not of an installed package, of
// Python itself, of the C and C++ runtime, of PyTorch's sources or of the allocator. Where no frame
// is the user's it is the innermost one that has a name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "headroom/analysis/types.h"

namespace headroom::analysis {

[[nodiscard]] bool is_user_frame(std::string_view file, std::string_view function);

// A frame's number in Trace::stacks; kNoSite where there is no frame to name.
using SiteId = std::uint32_t;
inline constexpr SiteId kNoSite = UINT32_MAX;

class Sites {
 public:
  // Is referred to and must outlive this.
  explicit Sites(const Trace& trace) : trace_(trace) {}

  // Frames that differ by nothing we show are one site.
  [[nodiscard]] SiteId of(StackId stack);
  // `train.py:18 forward`, `train.py:18`, `forward`; `(no stack)` for kNoSite.
  [[nodiscard]] std::string name(SiteId site) const;

 private:
  [[nodiscard]] SiteId find(StackId stack) const;

  const Trace& trace_;
  std::unordered_map<StackId, SiteId> known_;
};

}  // namespace headroom::analysis
