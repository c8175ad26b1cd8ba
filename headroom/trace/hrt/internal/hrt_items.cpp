#include "headroom/trace/hrt/internal/hrt_items.h"

#include <bit>
#include <type_traits>

#include "headroom/base/error.h"
#include "headroom/trace/hrt/internal/hrt_format.h"
#include "headroom/trace/internal/trace_cost.h"

namespace headroom::trace::internal {
namespace {

constexpr const char* kNoString = "it refers to a string that is not there";
constexpr const char* kNoValue = "it refers to a value that is not there";
constexpr const char* kNoFrame = "it refers to a frame that is not there";
constexpr const char* kNoStack = "it refers to a stack that is not there";
constexpr const char* kNoDetails = "it refers to details that are not there";

// Differences wrap around, so that any two numbers have one.
std::int64_t difference(std::uint64_t now, std::uint64_t before) noexcept {
  return static_cast<std::int64_t>(now - before);
}
std::int64_t difference(std::int64_t now, std::int64_t before) noexcept {
  return difference(static_cast<std::uint64_t>(now), static_cast<std::uint64_t>(before));
}
std::uint64_t sum(std::uint64_t before, std::int64_t step) noexcept {
  return before + static_cast<std::uint64_t>(step);
}
std::int64_t sum(std::int64_t before, std::int64_t step) noexcept {
  return static_cast<std::int64_t>(sum(static_cast<std::uint64_t>(before), step));
}

enum class ValueTag : std::uint8_t {
  kNone = 0,
  kFalse = 1,
  kTrue = 2,
  kSigned = 3,
  kUnsigned = 4,
  kDouble = 5,
  kText = 6,
  kList = 7,
  kTuple = 8,
  kDict = 9,
};

void tag(ByteWriter& out, ValueTag value) { out.byte(static_cast<std::uint8_t>(value)); }

void encode_list(ByteWriter& out, const Value::List& items, int depth) {
  out.varint(items.size());
  for (const Value& item : items) encode(out, item, depth + 1);
}

std::string decode_text(ByteReader& in, Budget& budget) {
  const std::string_view text = in.text();
  budget.take(text.size());
  return std::string(text);
}

Value::List decode_list(ByteReader& in, Budget& budget, int depth) {
  Value::List items;
  const std::size_t count = in.count(1);
  budget.take(count * sizeof(Value));
  items.reserve(count);
  for (std::size_t i = 0; i < count && in.ok(); ++i) {
    items.push_back(decode_value(in, budget, depth + 1));
  }
  return items;
}

Value::Dict decode_dict(ByteReader& in, Budget& budget, int depth) {
  Value::Dict items;
  const std::size_t count = in.count(2);
  budget.take(count * sizeof(Value::Dict::value_type));
  items.reserve(count);
  for (std::size_t i = 0; i < count && in.ok(); ++i) {
    std::string key = decode_text(in, budget);
    items.emplace_back(std::move(key), decode_value(in, budget, depth + 1));
  }
  return items;
}

struct ValueEncoder {
  ByteWriter& out;
  int depth;

  void operator()(std::monostate /*nothing*/) const { tag(out, ValueTag::kNone); }
  void operator()(bool value) const { tag(out, value ? ValueTag::kTrue : ValueTag::kFalse); }
  void operator()(std::int64_t value) const {
    tag(out, ValueTag::kSigned);
    out.zigzag(value);
  }
  void operator()(std::uint64_t value) const {
    tag(out, ValueTag::kUnsigned);
    out.varint(value);
  }
  void operator()(double value) const {
    tag(out, ValueTag::kDouble);
    out.fixed(std::bit_cast<std::uint64_t>(value), 8);
  }
  void operator()(const std::string& value) const {
    tag(out, ValueTag::kText);
    out.text(value);
  }
  void operator()(const Value::List& value) const {
    tag(out, ValueTag::kList);
    encode_list(out, value, depth);
  }
  void operator()(const Value::Tuple& value) const {
    tag(out, ValueTag::kTuple);
    encode_list(out, value.items, depth);
  }
  void operator()(const Value::Dict& value) const {
    tag(out, ValueTag::kDict);
    out.varint(value.size());
    for (const auto& [key, item] : value) {
      out.text(key);
      encode(out, item, depth + 1);
    }
  }
};

// Presence bits.
constexpr std::uint8_t kHasCompileContext = 1;
constexpr std::uint8_t kHasUserMetadata = 2;
constexpr std::uint8_t kHasPool = 4;
constexpr std::uint8_t kHasCategory = 8;
constexpr std::uint8_t kHasForwardFrames = 16;
constexpr std::uint8_t kHasNoTime = 32;

constexpr std::uint64_t kSegmentHost = 1;
constexpr std::uint64_t kSegmentSmall = 2;
constexpr std::uint64_t kSegmentAllocated = 4;
constexpr std::uint64_t kSegmentActive = 8;
constexpr std::uint64_t kSegmentRequested = 16;
constexpr std::uint64_t kSegmentSaysExpandable = 32;
constexpr std::uint64_t kSegmentExpandable = 64;
constexpr std::uint64_t kSegmentPool = 128;

constexpr std::uint8_t kBlockStateMask = 3;
constexpr std::uint8_t kBlockAddress = 4;
constexpr std::uint8_t kBlockRequested = 8;

void encode(ByteWriter& out, const memory::PoolId& pool) {
  out.varint(pool.graph);
  out.varint(pool.user);
}

memory::PoolId decode_pool(ByteReader& in) noexcept {
  const std::uint64_t graph = in.varint();
  return {.graph = graph, .user = in.varint()};
}

void encode_present(ByteWriter& out, const std::optional<std::uint64_t>& value) {
  if (value) out.varint(*value);
}

// `expected` is where the block before it ended.
void encode(ByteWriter& out, const Block& block, DeviceAddress& expected) {
  out.byte(static_cast<std::uint8_t>(static_cast<std::uint8_t>(block.state) |
                                     (block.address ? kBlockAddress : 0) |
                                     (block.requested_bytes ? kBlockRequested : 0)));
  if (block.address) {
    out.zigzag(difference(*block.address, expected));
    expected = *block.address;
  }
  out.varint(block.size_bytes);
  encode_present(out, block.requested_bytes);
  out.varint(block.stack);
  out.varint(block.details);
  expected += block.size_bytes;
}

Block decode_block(ByteReader& in, const TableSizes& sizes, DeviceAddress& expected) noexcept {
  Block block;
  const std::uint8_t flags = in.byte();
  block.state = static_cast<memory::BlockState>(flags & kBlockStateMask);
  if ((flags & kBlockAddress) != 0) {
    expected = sum(expected, in.zigzag());
    block.address = expected;
  }
  block.size_bytes = in.varint();
  if ((flags & kBlockRequested) != 0) block.requested_bytes = in.varint();
  block.stack = in.index(sizes.stacks, kNoStack);
  block.details = in.index(sizes.details, kNoDetails);
  expected += block.size_bytes;
  return block;
}

std::uint64_t flags_of(const Segment& segment) noexcept {
  std::uint64_t flags = 0;
  const auto set = [&flags](bool is_set, std::uint64_t flag) { flags |= is_set ? flag : 0; };
  set(segment.is_host, kSegmentHost);
  set(segment.is_small, kSegmentSmall);
  set(segment.allocated_bytes.has_value(), kSegmentAllocated);
  set(segment.active_bytes.has_value(), kSegmentActive);
  set(segment.requested_bytes.has_value(), kSegmentRequested);
  set(segment.is_expandable.has_value(), kSegmentSaysExpandable);
  set(segment.is_expandable.value_or(false), kSegmentExpandable);
  set(segment.pool.has_value(), kSegmentPool);
  return flags;
}

constexpr std::size_t kLeastBlockBytes = 4;

}  // namespace

void encode(ByteWriter& out, const Value& value, int depth) {
  if (depth > kMostValueDepth) {
    throw InvalidArgument("a value of the trace is nested more than " +
                          std::to_string(kMostValueDepth) + " deep, which .hrt does not keep");
  }
  std::visit(ValueEncoder{.out = out, .depth = depth}, value.data);
}

Value decode_value(ByteReader& in, Budget& budget, int depth) {
  if (depth > kMostValueDepth) {
    in.fail("a value is nested too deep");
    return {};
  }
  switch (static_cast<ValueTag>(in.byte())) {
    case ValueTag::kNone:
      return {};
    case ValueTag::kFalse:
      return {false};
    case ValueTag::kTrue:
      return {true};
    case ValueTag::kSigned:
      return {in.zigzag()};
    case ValueTag::kUnsigned:
      return {in.varint()};
    case ValueTag::kDouble:
      return {std::bit_cast<double>(in.fixed(8))};
    case ValueTag::kText:
      return {decode_text(in, budget)};
    case ValueTag::kList:
      return {decode_list(in, budget, depth)};
    case ValueTag::kTuple:
      return {Value::Tuple{decode_list(in, budget, depth)}};
    case ValueTag::kDict:
      return {decode_dict(in, budget, depth)};
  }
  in.fail("a value is of no known kind");
  return {};
}

void encode(ByteWriter& out, const Frame& frame) {
  out.varint(frame.name);
  out.varint(frame.file);
  out.zigzag(frame.line);
  out.varint(frame.extras);
}

Frame decode_frame(ByteReader& in, const TableSizes& sizes) noexcept {
  Frame frame;
  frame.name = in.index(sizes.strings, kNoString);
  frame.file = in.index(sizes.strings, kNoString);
  frame.line = in.zigzag();
  frame.extras = in.index(sizes.values, kNoValue);
  return frame;
}

void encode_stack(ByteWriter& out, std::span<const std::uint32_t> frame_ids) {
  out.varint(frame_ids.size());
  std::uint64_t before = 0;
  for (const std::uint32_t id : frame_ids) {
    out.zigzag(difference(std::uint64_t{id}, before));
    before = id;
  }
}

void decode_stack(ByteReader& in, const TableSizes& sizes, BigVector<std::uint32_t>& frame_ids) {
  frame_ids.clear();
  const std::size_t count = in.count(1);
  std::uint64_t id = 0;
  for (std::size_t i = 0; i < count; ++i) {
    id = sum(id, in.zigzag());
    if (id >= sizes.frames) in.fail(kNoFrame);
    if (!in.ok()) return;
    frame_ids.push_back(static_cast<std::uint32_t>(id));
  }
}

void encode(ByteWriter& out, const Details& details) {
  out.byte(static_cast<std::uint8_t>(
      (details.compile_context ? kHasCompileContext : 0) |
      (details.user_metadata ? kHasUserMetadata : 0) | (details.pool ? kHasPool : 0) |
      (details.category ? kHasCategory : 0) | (details.forward_frames ? kHasForwardFrames : 0) |
      (details.has_time ? 0 : kHasNoTime)));
  if (details.compile_context) out.varint(*details.compile_context);
  if (details.user_metadata) out.varint(*details.user_metadata);
  if (details.pool) encode(out, *details.pool);
  if (details.category) out.byte(static_cast<std::uint8_t>(*details.category));
  if (details.forward_frames) {
    out.varint(details.forward_frames->size());
    for (const StringId id : *details.forward_frames) out.varint(id);
  }
  out.varint(details.extras);
}

Details decode_details(ByteReader& in, Budget& budget, const TableSizes& sizes) {
  budget.take(kDetailsCost);
  Details details;
  const std::uint8_t flags = in.byte();
  if ((flags & kHasCompileContext) != 0) {
    details.compile_context = in.index(sizes.strings, kNoString);
  }
  if ((flags & kHasUserMetadata) != 0) details.user_metadata = in.index(sizes.strings, kNoString);
  if ((flags & kHasPool) != 0) details.pool = decode_pool(in);
  if ((flags & kHasCategory) != 0) {
    const std::uint8_t category = in.byte();
    if (category >= memory::kCategoryCount) in.fail("a category is not known");
    details.category = static_cast<memory::Category>(in.ok() ? category : 0);
  }
  if ((flags & kHasForwardFrames) != 0) {
    details.forward_frames.emplace();
    const std::size_t count = in.count(1);
    budget.take(count * kForwardFrameCost);
    for (std::size_t i = 0; i < count && in.ok(); ++i) {
      details.forward_frames->push_back(in.index(sizes.strings, kNoString));
    }
  }
  details.has_time = (flags & kHasNoTime) == 0;
  details.extras = in.index(sizes.values, kNoValue);
  return details;
}

void encode(ByteWriter& out, const Segment& segment, DeviceAddress& last) {
  out.varint(flags_of(segment));
  out.zigzag(segment.device);
  out.zigzag(segment.rank);
  out.zigzag(difference(segment.address, last));
  last = segment.address;
  out.varint(segment.size_bytes);
  encode_present(out, segment.allocated_bytes);
  encode_present(out, segment.active_bytes);
  encode_present(out, segment.requested_bytes);
  out.varint(segment.stream);
  if (segment.pool) encode(out, *segment.pool);
  out.varint(segment.stack);
  out.varint(segment.details);
  out.varint(segment.blocks.size());
  DeviceAddress expected = segment.address;
  for (const Block& block : segment.blocks) encode(out, block, expected);
}

Segment decode_segment(ByteReader& in,
                       Budget& budget,
                       const TableSizes& sizes,
                       DeviceAddress& last) {
  budget.take(kSegmentCost);
  Segment segment;
  const std::uint64_t flags = in.varint();
  const auto has = [flags](std::uint64_t flag) { return (flags & flag) != 0; };
  segment.is_host = has(kSegmentHost);
  segment.is_small = has(kSegmentSmall);
  segment.device = in.int32();
  segment.rank = in.int32();
  segment.address = last = sum(last, in.zigzag());
  segment.size_bytes = in.varint();
  if (has(kSegmentAllocated)) segment.allocated_bytes = in.varint();
  if (has(kSegmentActive)) segment.active_bytes = in.varint();
  if (has(kSegmentRequested)) segment.requested_bytes = in.varint();
  segment.stream = in.varint();
  if (has(kSegmentSaysExpandable)) segment.is_expandable = has(kSegmentExpandable);
  if (has(kSegmentPool)) segment.pool = decode_pool(in);
  segment.stack = in.index(sizes.stacks, kNoStack);
  segment.details = in.index(sizes.details, kNoDetails);
  const std::size_t count = in.count(kLeastBlockBytes);
  DeviceAddress expected = segment.address;
  budget.take(count * kBlockCost);
  segment.blocks.reserve(count);
  for (std::size_t i = 0; i < count && in.ok(); ++i) {
    segment.blocks.push_back(decode_block(in, sizes, expected));
  }
  return segment;
}

void encode(ByteWriter& out, const Annotation& annotation, std::int64_t& last_us) {
  out.varint(annotation.name);
  out.byte(annotation.is_start ? 1 : 0);
  out.zigzag(annotation.device);
  out.zigzag(annotation.rank);
  out.zigzag(difference(annotation.time_us, last_us));
  last_us = annotation.time_us;
  out.varint(annotation.extras);
}

Annotation decode_annotation(ByteReader& in,
                             const TableSizes& sizes,
                             std::int64_t& last_us) noexcept {
  Annotation annotation;
  annotation.name = in.index(sizes.strings, kNoString);
  annotation.is_start = in.byte() != 0;
  annotation.device = in.int32();
  annotation.rank = in.int32();
  annotation.time_us = last_us = sum(last_us, in.zigzag());
  annotation.extras = in.index(sizes.values, kNoValue);
  return annotation;
}

}  // namespace headroom::trace::internal
