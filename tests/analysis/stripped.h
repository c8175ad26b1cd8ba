// A recording with less in it than it had: as another program would have recorded the same run.
#pragma once

#include "headroom/trace/trace.h"

namespace headroom::analysis::testing {

struct Strip {
  bool categories = true;
  bool annotations = true;
  bool stacks = true;
};

// The blocks keep their order, so that lifetimes of both have the same numbers.
[[nodiscard]] inline trace::Trace stripped(const trace::Trace& trace, const Strip& strip = {}) {
  trace::Trace out = trace;
  const auto details = [&](trace::DetailsId id) {
    trace::Details row = trace.details[id];
    if (strip.categories) row.category.reset();
    if (strip.annotations) row.user_metadata.reset();
    return out.details.intern(row);
  };
  for (std::size_t d = 0; d < trace.devices.size(); ++d) {
    trace::Events events;
    for (std::size_t i = 0; i < trace.devices[d].events.size(); ++i) {
      trace::Entry entry = trace.devices[d].events[i];
      entry.details = details(entry.details);
      if (strip.stacks) entry.stack = 0;
      events.push_back(entry);
    }
    out.devices[d].events = std::move(events);
  }
  for (trace::Segment& segment : out.segments) {
    for (trace::Block& block : segment.blocks) {
      block.details = details(block.details);
      if (strip.stacks) block.stack = 0;
    }
  }
  if (strip.annotations) out.annotations.clear();
  return out;
}

}  // namespace headroom::analysis::testing
