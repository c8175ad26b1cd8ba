#include "headroom/trace/record/internal/raw_frame.h"

#include <fmt/format.h>

#include "headroom/base/file_name.h"

namespace headroom::trace::internal {
namespace {

constexpr const char* kOffsetKey = "module_offset";
constexpr const char* kBuildIdKey = "build_id";

std::string name_of(const RawFrame& raw) {
  return fmt::format("{}+{:#x}", file_name(raw.path), raw.offset);
}

template <class T>
const T* member(const Value& dict, const char* key) noexcept {
  const Value* found = dict.find(key);
  return found == nullptr ? nullptr : std::get_if<T>(&found->data);
}

}  // namespace

Frame make_raw_frame(Trace& trace, const RawFrame& raw) {
  const auto extras = static_cast<std::uint32_t>(trace.extras.size());
  trace.extras.push_back({Value::Dict{{kOffsetKey, Value{static_cast<std::int64_t>(raw.offset)}},
                                      {kBuildIdKey, Value{raw.build_id}}}});
  return {.name = trace.strings.intern(name_of(raw)),
          .file = trace.strings.intern(raw.path),
          .line = 0,
          .extras = extras};
}

std::optional<RawFrame> raw_frame_of(const Trace& trace, const Frame& frame) {
  if (frame.extras == 0 || frame.extras >= trace.extras.size()) return std::nullopt;
  const Value& extras = trace.extras[frame.extras];
  const auto* offset = member<std::int64_t>(extras, kOffsetKey);
  const auto* build_id = member<std::string>(extras, kBuildIdKey);
  if (offset == nullptr || build_id == nullptr) return std::nullopt;
  return RawFrame{.path = std::string(trace.strings[frame.file]),
                  .build_id = *build_id,
                  .offset = static_cast<std::uint64_t>(*offset)};
}

}  // namespace headroom::trace::internal
