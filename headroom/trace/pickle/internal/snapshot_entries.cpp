#include "headroom/trace/pickle/internal/snapshot_entries.h"

#include <string_view>

#include "headroom/trace/internal/trace_cost.h"

namespace headroom::trace::internal {
namespace {

enum EntryField : Field { kAction = kFirstOwnField, kAddress, kDeviceFree, kSize, kStream, kTime };
constexpr std::array<std::string_view, 12> kEntryNames{
    HEADROOM_SHARED_FIELD_NAMES, "action", "addr", "device_free", "size", "stream", "time_us"};

enum AnnotationField : Field { kName, kStage, kDevice, kAnnotationTime };
constexpr std::array<std::string_view, 4> kAnnotationNames{"name", "stage", "device", "time_us"};

Action action_named(std::string_view name) {
  for (std::size_t i = 0; i < memory::kActionCount; ++i) {
    const auto action = static_cast<Action>(i);
    if (to_string(action) == name) return action;
  }
  return Action::kUnknown;
}

}  // namespace

EntryReader::EntryReader(const PickleData& data, Budget& budget, SnapshotTables& tables)
    : data_(data),
      budget_(budget),
      tables_(tables),
      entries_(data, budget, kEntryNames),
      annotations_(data, budget, kAnnotationNames) {}

void EntryReader::read(Ref list, const Path& path, Events& events) {
  const auto items = data_.items(list);
  budget_.take(items.size() * kEventCost);
  events.reserve(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::size_t streams = events.streams().size();
    events.push_back(read_entry(items[i], Path(path, i)));
    if (events.streams().size() != streams) budget_.take(kStreamCost);
  }
}

Entry EntryReader::read_entry(Ref dict, const Path& path) {
  const Record record = entries_.open(dict, path);
  Entry entry{.action = action_of(record.text(kAction)),
              .size_bytes = record.size(kSize),
              .stream = record.size_if(kStream).value_or(0)};
  const bool is_oom = entry.action == Action::kOutOfMemory;
  entry.address = record.size(is_oom ? kDeviceFree : kAddress);
  const bool has_time = static_cast<bool>(record.find(kTime));
  if (has_time) entry.time_us = record.integer(kTime);
  entry.stack = tables_.stack(record);

  FieldSet kept = 0;
  if (entry.action == Action::kUnknown) kept |= only(kAction);  // its name
  if (const Field other = is_oom ? kAddress : kDeviceFree; record.find(other)) kept |= only(other);
  entry.details = tables_.details(record, has_time, kept);
  return entry;
}

Action EntryReader::action_of(Ref text) {
  RecentAction& recent = recent_[text.index() % recent_.size()];
  if (recent.text != text) recent = {.text = text, .action = action_named(data_.text(text))};
  return recent.action;
}

Annotation EntryReader::read_annotation(Ref dict, const Path& path) {
  const Record record = annotations_.open(dict, path);
  budget_.take(kAnnotationCost);
  const std::string_view stage = data_.text(record.text(kStage));
  if (stage != "START" && stage != "END") {
    record.fail_field(kStage, "expected START or END, found '" + excerpt(stage) + "'");
  }
  return {.name = tables_.string(record.text(kName)),
          .is_start = stage == "START",
          .device = record.number(kDevice),
          .time_us = record.integer(kAnnotationTime),
          .extras = tables_.extras(record)};
}

}  // namespace headroom::trace::internal
