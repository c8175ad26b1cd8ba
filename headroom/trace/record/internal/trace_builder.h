// Turns what recorders kept into the entries of a Trace.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "headroom/base/tick_clock.h"
#include "headroom/memory/annotation.h"
#include "headroom/trace/record/internal/event_record.h"
#include "headroom/trace/record/internal/modules.h"
#include "headroom/trace/record/stack_source.h"
#include "headroom/trace/trace.h"

namespace headroom::trace::internal {

// A phase or an iteration that started or ended.
struct Mark {
  std::string name{};
  bool is_start = true;
  std::uint64_t ticks = 0;
};

class TraceBuilder {
 public:
  // Fills the tables of `trace`.
  explicit TraceBuilder(Trace& trace) : trace_(trace) {}

  [[nodiscard]] Entry entry(const EventRecord& record, const TickClock& clock, StackId stack);
  [[nodiscard]] Annotation annotation(const Mark& mark, const TickClock& clock);
  [[nodiscard]] DetailsId details(memory::AnnotationId annotation,
                                  memory::Category category,
                                  std::optional<memory::PoolId> pool);
  // Return addresses, innermost first, as frames without symbols: see raw_frame.h.
  [[nodiscard]] StackId stack(std::span<const std::uint64_t> addresses);
  [[nodiscard]] StackId stack(std::span<const NamedFrame> named);

 private:
  using DetailsKey =
      std::tuple<memory::AnnotationId, memory::Category, std::optional<memory::PoolId>>;

  Trace& trace_;
  Modules modules_;
  std::map<DetailsKey, DetailsId> details_;
  std::pair<DetailsKey, DetailsId> last_details_{};
  std::unordered_map<std::uint64_t, std::optional<Frame>> frames_;  // by return address
};

}  // namespace headroom::trace::internal
