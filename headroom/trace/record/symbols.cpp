#include "headroom/trace/record/symbols.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "headroom/trace/internal/substitute.h"
#include "headroom/trace/record/internal/raw_frame.h"
#include "headroom/trace/record/internal/symboliser.h"

namespace headroom::trace {
namespace {

// Whoever looks for an allocation looks for who asked, not for how the allocator serves.
bool is_allocator(std::string_view function) noexcept {
  constexpr std::array<std::string_view, 3> kOurs{
      "headroom::memory::", "headroom::trace::RingRecorder::", "headroom::trace::FileRecorder::"};
  return std::ranges::any_of(
      kOurs, [function](std::string_view ours) { return function.starts_with(ours); });
}

}  // namespace

std::vector<FrameSymbols> find_symbols(Trace& trace) {
  internal::Symboliser symboliser;
  std::vector<FrameSymbols> out;
  for (std::uint32_t id = 0; id < trace.stacks.frame_count(); ++id) {
    const auto raw = internal::raw_frame_of(trace, trace.stacks.frame(id));
    if (!raw) continue;
    const std::vector<internal::Symbol> symbols = symboliser.find(*raw);
    if (symbols.empty()) continue;
    FrameSymbols found{.frame_id = id};
    for (const internal::Symbol& symbol : symbols) {
      if (is_allocator(symbol.function)) continue;
      found.frames.push_back({.name = trace.strings.intern(symbol.function),
                              .file = trace.strings.intern(symbol.file),
                              .line = symbol.line});
    }
    out.push_back(std::move(found));
  }
  return out;
}

std::size_t symbolise(Trace& trace) {
  internal::Substitutes substitutes;
  for (FrameSymbols& found : find_symbols(trace)) {
    substitutes.emplace(found.frame_id, std::move(found.frames));
  }
  return internal::substitute_frames(trace, substitutes) ? substitutes.size() : 0;
}

}  // namespace headroom::trace
