#include "headroom/replay/infer_empty_caches.h"

#include <utility>
#include <vector>

#include "headroom/replay/internal/compiler.h"
#include "headroom/replay/verify.h"

namespace headroom::replay {

namespace {

bool gives_anything_back(const trace::Events& events) {
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (internal::gives_back(events.action(i))) return true;
  }
  return false;
}

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

}  // namespace

Program with_inferred_empty_caches(Program program, const KnownRun& run) {
  if (program.is_of_paged || program.empty_caches > 0) return program;
  if (!gives_anything_back(program.device->events)) return program;
  const Verification as_recorded = verify(
      program,
      {.version = run.version, .card_bytes = run.card_bytes, .limit_bytes = run.limit_bytes});
  insert_empty_caches(program, as_recorded.empty_caches);
  return program;
}

Program compile_with_empty_caches(const trace::Trace& trace,
                                  const trace::DeviceTrace& device,
                                  const KnownRun& run) {
  return with_inferred_empty_caches(
      compile(trace, device, {.version = run.version, .card_bytes = run.card_bytes}), run);
}

}  // namespace headroom::replay
