#include "headroom/trace/pickle/internal/snapshot_segments.h"

#include <array>
#include <string_view>
#include <utility>

#include "headroom/trace/internal/trace_cost.h"

namespace headroom::trace::internal {
namespace {

using memory::BlockState;

enum SegmentField : Field {
  kDevice = kFirstOwnField,
  kAddress,
  kTotalSize,
  kAllocatedSize,
  kActiveSize,
  kRequestedSize,
  kStream,
  kType,
  kSegmentPool,
  kIsExpandable,
  kBlocks,
};
constexpr std::array<std::string_view, 17> kSegmentNames{HEADROOM_SHARED_FIELD_NAMES,
                                                         "device",
                                                         "address",
                                                         "total_size",
                                                         "allocated_size",
                                                         "active_size",
                                                         "requested_size",
                                                         "stream",
                                                         "segment_type",
                                                         "segment_pool_id",
                                                         "is_expandable",
                                                         "blocks"};

enum BlockField : Field {
  kBlockAddress = kFirstOwnField,
  kBlockSize,
  kBlockRequested,
  kState,
  kHistory,
};
constexpr std::array<std::string_view, 11> kBlockNames{
    HEADROOM_SHARED_FIELD_NAMES, "address", "size", "requested_size", "state", "history"};

// PyTorch before 2.1: what the newest of several owners of a block asked for.
enum HistoryField : Field { kRealSize = kFirstOwnField, kHistoryAddress };
constexpr std::array<std::string_view, 8> kHistoryNames{
    HEADROOM_SHARED_FIELD_NAMES, "real_size", "addr"};

BlockState state_of(std::string_view name, const Record& record) {
  constexpr std::array<std::pair<std::string_view, BlockState>, 5> kStates{{
      {"active_allocated", BlockState::kAllocated},
      {"active_pending_free", BlockState::kPendingFree},
      {"active_awaiting_free", BlockState::kPendingFree},  // older, and still in the manual
      {"inactive", BlockState::kInactive},
      {"unmapped", BlockState::kUnmapped},
  }};
  for (const auto& [text, state] : kStates) {
    if (text == name) return state;
  }
  record.fail_field(kState, "expected the state of a block, found '" + excerpt(name) + "'");
}

}  // namespace

SegmentReader::SegmentReader(const PickleData& data, Budget& budget, SnapshotTables& tables)
    : data_(data),
      budget_(budget),
      tables_(tables),
      segments_(data, budget, kSegmentNames),
      blocks_(data, budget, kBlockNames),
      histories_(data, budget, kHistoryNames) {}

Segment SegmentReader::read(Ref dict, const Path& path, bool is_host) {
  const Record record = segments_.open(dict, path);
  budget_.take(kSegmentCost);
  const std::string_view type = data_.text(record.text(kType));
  if (type != "small" && type != "large") {
    record.fail_field(kType, "expected small or large, found '" + excerpt(type) + "'");
  }
  Segment out{.device = record.number(kDevice),
              .is_host = is_host,
              .address = record.size(kAddress),
              .size_bytes = record.size(kTotalSize),
              .allocated_bytes = record.size_if(kAllocatedSize),
              .active_bytes = record.size_if(kActiveSize),
              .requested_bytes = record.size_if(kRequestedSize),
              .stream = record.size_if(kStream).value_or(0),
              .is_small = type == "small",
              .is_expandable = record.flag_if(kIsExpandable),
              .stack = tables_.stack(record),
              .details = tables_.details(record, true)};
  if (record.find(kSegmentPool)) out.pool = tables_.pool(record, kSegmentPool);
  const auto blocks = data_.items(record.list(kBlocks));
  const Path blocks_path = record.path_of(kBlocks);
  budget_.take(blocks.size() * kBlockCost);
  out.blocks.reserve(blocks.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    out.blocks.push_back(read_block(blocks[i], Path(blocks_path, i)));
  }
  return out;
}

Block SegmentReader::read_block(Ref dict, const Path& path) {
  const Record record = blocks_.open(dict, path);
  Block out{.address = record.size_if(kBlockAddress),
            .size_bytes = record.size(kBlockSize),
            .requested_bytes = record.size_if(kBlockRequested),
            .state = state_of(data_.text(record.text(kState)), record),
            .stack = tables_.stack(record),
            .details = tables_.details(record, true)};
  if (record.find(kHistory)) read_history(record, out);
  return out;
}

// Only the newest owner is kept, in today's form; PyTorch's viewer shows no other either.
void SegmentReader::read_history(const Record& record, Block& block) {
  const auto history = data_.items(record.list(kHistory));
  if (history.empty()) return;
  const Path path = record.path_of(kHistory);
  const Path first_path(path, 0);
  const Record first = histories_.open(history[0], first_path);
  if (!block.requested_bytes) block.requested_bytes = first.size_if(kRealSize);
  if (!block.address) block.address = first.size_if(kHistoryAddress);
  if (block.stack == 0) block.stack = tables_.stack(first);
}

}  // namespace headroom::trace::internal
