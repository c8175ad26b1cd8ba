// The final state of a snapshot: its segments and their blocks, in the forms of all versions.
#pragma once

#include "headroom/trace/pickle/internal/record.h"
#include "headroom/trace/pickle/internal/snapshot_tables.h"
#include "headroom/trace/trace.h"

namespace headroom::trace::internal {

class SegmentReader {
 public:
  SegmentReader(const PickleData& data, Budget& budget, SnapshotTables& tables);

  [[nodiscard]] Segment read(Ref dict, const Path& path, bool is_host);

 private:
  [[nodiscard]] Block read_block(Ref dict, const Path& path);
  void read_history(const Record& record, Block& block);

  const PickleData& data_;
  Budget& budget_;
  SnapshotTables& tables_;
  Schema segments_;
  Schema blocks_;
  Schema histories_;
};

}  // namespace headroom::trace::internal
