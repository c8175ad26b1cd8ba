// The parts that the events, blocks and segments of a snapshot share: from pickle data to the
// tables of a Trace. Each is converted once; the next time it is found by its number in the pickle.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "headroom/trace/internal/budget.h"
#include "headroom/trace/pickle/internal/pickle_data.h"
#include "headroom/trace/pickle/internal/record.h"
#include "headroom/trace/trace.h"

namespace headroom::trace::internal {

// The fields that events, blocks and segments share come first in their schemas, in this order.
enum SharedField : Field {
  kCompileContext,
  kUserMetadata,
  kCategory,
  kForwardFrames,
  kPoolId,
  kFrames,
  kFirstOwnField,
};
#define HEADROOM_SHARED_FIELD_NAMES \
  "compile_context", "user_metadata", "category", "forward_frames", "pool_id", "frames"

// Known fields with a value that the model has no place for; they are kept beside unknown keys.
using FieldSet = std::uint32_t;
[[nodiscard]] constexpr FieldSet only(Field field) noexcept { return FieldSet{1} << field; }

class SnapshotTables {
 public:
  SnapshotTables(const PickleData& data, Budget& budget, Trace& trace);

  [[nodiscard]] StringId string(Ref text);
  // The stack in the field `frames`, 0 if there is none.
  [[nodiscard]] StackId stack(const Record& record) {
    const Ref frames = record.list_if(kFrames);
    return frames ? stack_of(frames, record.path_of(kFrames)) : 0;
  }
  [[nodiscard]] StackId stack_of(Ref list, const Path& path);
  [[nodiscard]] DetailsId details(const Record& record, bool has_time, FieldSet kept = 0);
  // The keys that the schema does not name, and the fields in `kept`.
  [[nodiscard]] std::uint32_t extras(const Record& record, FieldSet kept = 0);
  [[nodiscard]] std::uint32_t add_extras(Value::Dict dict);
  [[nodiscard]] memory::PoolId pool(const Record& record, Field field) const;

 private:
  // The parts of Details, still as values of the pickle: the same ones make the same Details.
  struct DetailsSource {
    Ref compile_context{};
    Ref user_metadata{};
    Ref category{};
    Ref forward_frames{};
    memory::PoolId pool{};
    bool has_pool = false;
    bool has_time = true;

    friend bool operator==(const DetailsSource&, const DetailsSource&) = default;
    [[nodiscard]] std::uint64_t hash() const noexcept;
  };
  struct Recent {
    DetailsSource source{};
    DetailsId id = 0;
  };

  [[nodiscard]] DetailsSource source_of(const Record& record, bool has_time) const;
  [[nodiscard]] DetailsId make_details(const Record& record,
                                       const DetailsSource& source,
                                       FieldSet kept);
  [[nodiscard]] Frame frame_of(Ref dict, const Path& path);
  [[nodiscard]] std::vector<StringId> strings_of(Ref list, const Path& path);

  const PickleData& data_;
  Budget& budget_;
  Trace& trace_;
  Schema frames_;
  BigVector<StringId> string_ids_;  // by the string's number in the pickle; 0 where not yet
  BigVector<StackId> stack_ids_;    // by the list's
  std::unordered_map<std::uint64_t, Frame> frame_ids_;  // by the dictionary's
  std::vector<Frame> scratch_;
  std::multimap<std::uint64_t, std::uint32_t> extras_by_hash_;
  std::array<Recent, 64> recent_{};
  Recent* last_ = recent_.data();
};

}  // namespace headroom::trace::internal
