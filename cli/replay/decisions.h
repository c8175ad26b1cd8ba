// An allocator's decisions, one `action,addr,size,stream` per line, in a recording's words.
#pragma once

#include <string>

#include "headroom/memory/event.h"

namespace headroom::cli {

class DecisionLog final : public memory::EventSink {
 public:
  void record(const memory::Event& event) noexcept override;

  // Throws Error when the file cannot be written, or host memory ran out on the way.
  void write(const std::string& path, bool may_overwrite) const;

 private:
  std::string text_ = "action,addr,size,stream\n";
  bool is_whole_ = true;
};

}  // namespace headroom::cli
