#include "headroom/trace/pickle/internal/snapshot_tables.h"

#include <functional>
#include <optional>
#include <utility>

#include "headroom/trace/internal/failure.h"
#include "headroom/trace/internal/trace_cost.h"
#include "headroom/trace/pickle/internal/value_from_pickle.h"

namespace headroom::trace::internal {
namespace {

enum FrameField : Field { kName, kFilename, kLine };
constexpr std::array<std::string_view, 3> kFrameNames{"name", "filename", "line"};

std::optional<memory::Category> category_named(std::string_view name) {
  for (std::size_t i = 0; i < memory::kCategoryCount; ++i) {
    const auto category = static_cast<memory::Category>(i);
    if (to_string(category) == name) return category;
  }
  return std::nullopt;
}

std::uint64_t mix(std::uint64_t hash, std::uint64_t more) noexcept {
  return (hash ^ more) * 0x9e3779b97f4a7c15;
}

std::uint64_t hash_of(const Value& value);

struct Hasher {
  std::uint64_t operator()(std::monostate) const { return 1; }
  std::uint64_t operator()(const Value::Tuple& tuple) const { return mix(2, (*this)(tuple.items)); }
  std::uint64_t operator()(const Value::List& list) const {
    std::uint64_t hash = 3;
    for (const Value& item : list) hash = mix(hash, hash_of(item));
    return hash;
  }
  std::uint64_t operator()(const Value::Dict& dict) const {
    std::uint64_t hash = 4;
    for (const auto& [key, value] : dict) hash = mix(mix(hash, (*this)(key)), hash_of(value));
    return hash;
  }
  template <class T>
  std::uint64_t operator()(const T& plain) const {
    return mix(5, std::hash<T>{}(plain));
  }
};

std::uint64_t hash_of(const Value& value) { return std::visit(Hasher{}, value.data); }

}  // namespace

std::uint64_t SnapshotTables::DetailsSource::hash() const noexcept {
  std::uint64_t out = mix(compile_context.bits(), user_metadata.bits());
  out = mix(out, category.bits());
  out = mix(out, forward_frames.bits());
  out = mix(out, pool.graph * 2 + pool.user + (has_time ? 1 : 0));
  return out >> 32U;
}

SnapshotTables::SnapshotTables(const PickleData& data, Budget& budget, Trace& trace)
    : data_(data),
      budget_(budget),
      trace_(trace),
      frames_(data, budget, kFrameNames),
      string_ids_(data.text_count(), budget),
      stack_ids_(data.list_count(), budget) {}

StringId SnapshotTables::string(Ref text) {
  StringId& id = string_ids_[text.index()];
  if (id != 0) return id;
  const std::string_view found = data_.text(text);
  budget_.take(kStringCost + found.size());
  return id = trace_.strings.intern(found);
}

StackId SnapshotTables::stack_of(Ref list, const Path& path) {
  StackId& id = stack_ids_[list.index()];
  if (id != 0) return id;
  const auto items = data_.items(list);
  budget_.spend_items(items.size());
  budget_.take(kStackCost + items.size() * (kStackFrameCost + kGrowth * sizeof(Frame)));
  scratch_.clear();
  for (std::size_t i = 0; i < items.size(); ++i) {
    scratch_.push_back(frame_of(items[i], Path(path, i)));
  }
  return id = trace_.stacks.intern(scratch_);
}

Frame SnapshotTables::frame_of(Ref dict, const Path& path) {
  const auto found = frame_ids_.find(dict.bits());
  if (found != frame_ids_.end()) return found->second;
  const Record record = frames_.open(dict, path);
  const Frame frame{.name = string(record.text(kName)),
                    .file = string(record.text(kFilename)),
                    .line = record.integer(kLine),
                    .extras = extras(record)};
  budget_.take(kFrameCost);
  frame_ids_.emplace(dict.bits(), frame);
  return frame;
}

std::vector<StringId> SnapshotTables::strings_of(Ref list, const Path& path) {
  std::vector<StringId> out;
  const auto items = data_.items(list);
  budget_.spend_items(items.size());
  budget_.take(items.size() * kForwardFrameCost);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].kind() != Kind::kString) {
      fail_type(Path(path, i), "a string", items[i], data_.offset(list));
    }
    out.push_back(string(items[i]));
  }
  return out;
}

memory::PoolId SnapshotTables::pool(const Record& record, Field field) const {
  const Ref found = record.find(field);
  const bool is_list = found.kind() == Kind::kTuple || found.kind() == Kind::kList;
  if (!is_list || data_.items(found).size() != 2) record.fail_type(field, "two integers");
  const auto part = [&](std::size_t i) {
    const Ref item = data_.items(found)[i];
    if (item.kind() == Kind::kUnsigned) return data_.unsigned_integer(item);
    const bool is_integer = item.kind() == Kind::kInt || item.kind() == Kind::kBigInt;
    if (!is_integer || data_.integer(item) < 0) {
      fail_type(Path(record.path_of(field), i), "an integer from 0 on", item, data_.offset(found));
    }
    return static_cast<std::uint64_t>(data_.integer(item));
  };
  return {.graph = part(0), .user = part(1)};
}

SnapshotTables::DetailsSource SnapshotTables::source_of(const Record& record, bool has_time) const {
  DetailsSource out{.compile_context = record.text_if(kCompileContext),
                    .user_metadata = record.text_if(kUserMetadata),
                    .category = record.text_if(kCategory),
                    .forward_frames = record.list_if(kForwardFrames),
                    .has_time = has_time};
  if (record.find(kPoolId)) {
    out.pool = pool(record, kPoolId);
    out.has_pool = true;
  }
  return out;
}

DetailsId SnapshotTables::details(const Record& record, bool has_time, FieldSet kept) {
  const DetailsSource source = source_of(record, has_time);
  if (record.has_unknown() || kept != 0) return make_details(record, source, kept);
  if (last_->source == source) return last_->id;
  last_ = &recent_[source.hash() % recent_.size()];
  if (last_->source != source) {
    last_->id = make_details(record, source, kept);
    last_->source = source;
  }
  return last_->id;
}

DetailsId SnapshotTables::make_details(const Record& record,
                                       const DetailsSource& source,
                                       FieldSet kept) {
  Details out{.has_time = source.has_time};
  if (source.compile_context) out.compile_context = string(source.compile_context);
  if (source.user_metadata) out.user_metadata = string(source.user_metadata);
  if (source.has_pool) out.pool = source.pool;
  if (source.forward_frames) {
    out.forward_frames = strings_of(source.forward_frames, record.path_of(kForwardFrames));
  }
  if (source.category) {
    out.category = category_named(data_.text(source.category));
    if (!out.category) kept |= only(kCategory);  // somebody else's
  }
  out.extras = extras(record, kept);
  const DetailsId next = trace_.details.size();
  const DetailsId id = trace_.details.intern(out);
  if (id == next) budget_.take(kDetailsCost);
  return id;
}

std::uint32_t SnapshotTables::extras(const Record& record, FieldSet kept) {
  if (!record.has_unknown() && kept == 0) return 0;
  Value::Dict dict;
  for (std::size_t i = 0; i < record.keys().size(); ++i) {
    const std::string_view key = data_.text(record.keys()[i]);
    const Field field = record.field_of(key);
    if (record.is_known(field) && (kept & only(field)) == 0) continue;
    budget_.take(kGrowth * sizeof(Value::Dict::value_type) + key.size());
    dict.emplace_back(key, to_value(data_, record.values()[i], Path(record.path(), key), budget_));
  }
  return add_extras(std::move(dict));
}

std::uint32_t SnapshotTables::add_extras(Value::Dict dict) {
  if (dict.empty()) return 0;
  Value value{std::move(dict)};
  const std::uint64_t hash = hash_of(value);
  int looks = 0;  // few, whatever somebody did to make hashes collide
  for (auto at = extras_by_hash_.lower_bound(hash);
       at != extras_by_hash_.end() && at->first == hash && looks < 8;
       ++at, ++looks) {
    if (trace_.extras[at->second] == value) return at->second;
  }
  budget_.take(kExtrasCost);
  const auto id = static_cast<std::uint32_t>(trace_.extras.size());
  trace_.extras.push_back(std::move(value));
  extras_by_hash_.emplace(hash, id);
  return id;
}

}  // namespace headroom::trace::internal
