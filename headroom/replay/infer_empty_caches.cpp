#include "headroom/replay/infer_empty_caches.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "headroom/replay/internal/compiler.h"
#include "headroom/replay/verify.h"

namespace headroom::replay {

namespace {

// Puts the kEmptyCache ops before the ops of these events.
void insert_empty_caches(Program& program, const std::vector<std::uint32_t>& events) {
  if (events.empty()) return;
  std::vector<Op> ops;
  std::vector<std::uint32_t> op_events;
  ops.reserve(program.ops.size() + events.size());
  op_events.reserve(ops.capacity());
  auto next = events.begin();
  const auto insert_until = [&](std::uint64_t event) {
    for (; next != events.end() && *next <= event; ++next) {
      ops.push_back({.kind = OpKind::kEmptyCache});
      op_events.push_back(*next);
    }
  };
  const std::size_t peak = program.peak_live_op;
  const std::optional<std::size_t> failure = program.first_failure_op;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    insert_until(program.op_events[i]);
    if (i == peak) program.peak_live_op = ops.size();
    if (failure && i == *failure) program.first_failure_op = ops.size();
    ops.push_back(program.ops[i]);
    op_events.push_back(program.op_events[i]);
  }
  insert_until(UINT64_MAX);
  program.empty_caches += events.size();
  program.ops = std::move(ops);
  program.op_events = std::move(op_events);
}

// People may ask about another card or limit than the recorded run had.
Bounds not_contradicted(const RecordedLimit& recorded, const KnownRun& run) {
  Bounds out;
  if (run.card_bytes &&
      *run.card_bytes >= std::max(recorded.card_at_least_bytes, recorded.reached_bytes)) {
    out.card_bytes = run.card_bytes;
  }
  if (run.limit_bytes && lets_through(recorded, *run.limit_bytes)) {
    out.limit_bytes = run.limit_bytes;
  }
  return out;
}

}  // namespace

Program with_inferred_empty_caches(Program program, const KnownRun& run) {
  if (program.is_of_paged || program.empty_caches > 0) return program;
  if (!internal::gives_anything_back(program.device->events)) return program;
  const Bounds known = not_contradicted(program.limit, run);
  const Verification as_recorded = verify(
      program,
      {.version = run.version, .card_bytes = known.card_bytes, .limit_bytes = known.limit_bytes});
  insert_empty_caches(program, as_recorded.empty_caches);
  return program;
}

Program compile_with_empty_caches(const trace::Trace& trace,
                                  const trace::DeviceTrace& device,
                                  const KnownRun& run) {
  Program program = compile(trace, device, {.version = run.version});
  if (const Bounds known = not_contradicted(program.limit, run); known.card_bytes) {
    program.start_reservations = internal::find_reservations(program, *known.card_bytes);
  }
  return with_inferred_empty_caches(std::move(program), run);
}

}  // namespace headroom::replay
