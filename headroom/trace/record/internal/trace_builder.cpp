#include "headroom/trace/record/internal/trace_builder.h"

#include "headroom/trace/record/internal/raw_frame.h"

namespace headroom::trace::internal {

Entry TraceBuilder::entry(const EventRecord& record, const TickClock& clock, StackId stack) {
  return {.action = record.action(),
          .address = record.address(),
          .size_bytes = record.size_bytes(),
          .stream = record.stream(),
          .time_us = clock.time_us(record.ticks()),
          .stack = stack,
          .details = details(record.annotation(), record.category(), record.pool())};
}

Annotation TraceBuilder::annotation(const Mark& mark, const TickClock& clock) {
  return {.name = trace_.strings.intern(mark.name),
          .is_start = mark.is_start,
          .time_us = clock.time_us(mark.ticks)};
}

DetailsId TraceBuilder::details(memory::AnnotationId annotation,
                                memory::Category category,
                                std::optional<memory::PoolId> pool) {
  const DetailsKey key{annotation, category, pool};
  if (key == last_details_.first && last_details_.second != 0) return last_details_.second;
  auto found = details_.find(key);
  if (found == details_.end()) {
    Details row{.pool = pool};
    if (annotation != 0) {
      row.user_metadata = trace_.strings.intern(memory::annotation_path(annotation));
    }
    if (category != memory::Category::kUnknown) row.category = category;
    found = details_.emplace(key, trace_.details.intern(row)).first;
  }
  last_details_ = *found;
  return found->second;
}

StackId TraceBuilder::stack(std::span<const std::uint64_t> addresses) {
  std::vector<Frame> frames;
  for (const std::uint64_t address : addresses) {
    auto found = frames_.find(address);
    if (found == frames_.end()) {
      std::optional<Frame> frame;
      if (const Module* module = modules_.find(address - 1)) {
        frame = make_raw_frame(trace_,
                               {.path = module->path,
                                .build_id = module->build_id,
                                .offset = address - 1 - module->base});
      }
      found = frames_.emplace(address, frame).first;
    }
    // No code: the walk went astray here, in a caller without a frame pointer.
    if (!found->second) break;
    frames.push_back(*found->second);
  }
  return trace_.stacks.intern(frames);
}

StackId TraceBuilder::stack(std::span<const NamedFrame> named) {
  std::vector<Frame> frames;
  frames.reserve(named.size());
  for (const NamedFrame& frame : named) {
    frames.push_back({.name = trace_.strings.intern(frame.name),
                      .file = trace_.strings.intern(frame.file),
                      .line = frame.line});
  }
  return trace_.stacks.intern(frames);
}

}  // namespace headroom::trace::internal
