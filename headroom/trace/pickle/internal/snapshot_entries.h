// The histories of a snapshot: entries of device_traces and host_traces, and external_annotations.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "headroom/trace/pickle/internal/record.h"
#include "headroom/trace/pickle/internal/snapshot_tables.h"
#include "headroom/trace/progress.h"
#include "headroom/trace/trace.h"

namespace headroom::trace::internal {

class EntryReader {
 public:
  EntryReader(const PickleData& data, Budget& budget, SnapshotTables& tables);

  // All entries of a list.
  void read(Ref list, const Path& path, Events& events);
  [[nodiscard]] Annotation read_annotation(Ref dict, const Path& path);

 private:
  struct RecentAction {
    Ref text{};
    Action action = Action::kUnknown;
  };

  [[nodiscard]] Entry read_entry(Ref dict, const Path& path);
  [[nodiscard]] Action action_of(Ref text);

  const PickleData& data_;
  Budget& budget_;
  SnapshotTables& tables_;
  Schema entries_;
  Schema annotations_;
  std::array<RecentAction, 16> recent_{};
};

}  // namespace headroom::trace::internal
