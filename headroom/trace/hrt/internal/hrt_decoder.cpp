#include "headroom/trace/hrt/internal/hrt_decoder.h"

#include <algorithm>
#include <utility>

#include "headroom/trace/internal/substitute.h"
#include "headroom/trace/internal/trace_cost.h"

namespace headroom::trace::internal {
namespace {

constexpr std::size_t kMostInlined = 1'000;

// Items in a row, `count` of them; a count that the bytes cannot hold ends with them.
template <class Decode>
void repeat(const ByteReader& in, std::uint32_t count, const Decode& decode) {
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) decode();
}

}  // namespace

TableSizes HrtDecoder::sizes() const noexcept {
  return {.strings = trace_.strings.size(),
          .values = static_cast<std::uint32_t>(trace_.extras.size()),
          .frames = static_cast<std::uint32_t>(frames_.size()),
          .stacks = trace_.stacks.size(),
          .details = trace_.details.size()};
}

DeviceTrace& HrtDecoder::device_of(const BlockHeader& header) {
  const bool is_host = (header.flags & kFlagHost) != 0;
  const auto [found, is_new] = devices_.try_emplace(
      std::tuple{int{header.device}, int{header.rank}, is_host}, trace_.devices.size());
  if (is_new) {
    budget_.take(kDeviceCost + kNodeCost);
    trace_.devices.push_back({.device = header.device, .rank = header.rank, .is_host = is_host});
  }
  return trace_.devices[found->second];
}

// Takes the cost of `count` more events: columns double when they are full.
void HrtDecoder::take_events(const Events& events, std::size_t count) {
  const std::size_t before = events.capacity();
  std::size_t after = std::max<std::size_t>(before, 1);
  while (after < events.size() + count) after *= 2;
  budget_.take((after - before) * kEventCost);
}

void HrtDecoder::decode_properties(ByteReader& in) {
  const std::uint8_t origin = in.byte();
  if (origin > static_cast<std::uint8_t>(Origin::kHeadroom)) in.fail("its origin is not known");
  const std::uint8_t flags = in.byte();
  trace_.origin = static_cast<Origin>(in.ok() ? origin : 0);
  trace_.has_annotations = (flags & 1U) != 0;
  trace_.has_host = (flags & 2U) != 0;
  trace_.is_bare_list = (flags & 4U) != 0;
  trace_.producer = in.text();
  trace_.top_level_extras =
      in.index(trace_.extras.size(), "it refers to a value that is not there");
  trace_.settings.reset();
  if ((flags & 8U) != 0) trace_.settings = decode_value(in, budget_);
}

void HrtDecoder::decode_strings(ByteReader& in, std::uint32_t count) {
  repeat(in, count, [&] {
    const std::string_view text = in.text();
    const StringId next = trace_.strings.size();
    budget_.take(kStringCost + text.size());
    if (in.ok() && trace_.strings.intern(text) != next) in.fail("a string is there twice");
  });
}

void HrtDecoder::decode_stacks(ByteReader& in, std::uint32_t count) {
  BigVector<std::uint32_t> ids(budget_);
  BigVector<Frame> frames(budget_);
  repeat(in, count, [&] {
    decode_stack(in, sizes(), ids);
    if (!in.ok()) return;
    frames.clear();
    budget_.take(kStackCost + ids.size() * kStackFrameCost);
    for (const std::uint32_t id : ids) frames.push_back(frames_[id]);
    const StackId next = trace_.stacks.size();
    if (trace_.stacks.intern(frames) != next) in.fail("a stack is there twice");
  });
}

void HrtDecoder::decode_details_rows(ByteReader& in, std::uint32_t count) {
  repeat(in, count, [&] {
    const Details details = decode_details(in, budget_, sizes());
    const DetailsId next = trace_.details.size();
    if (in.ok() && trace_.details.intern(details) != next) in.fail("details are there twice");
  });
}

void HrtDecoder::decode_device_events(ByteReader& in, const BlockHeader& header) {
  decode_events(in, sizes(), header.count, header.first_time_us, entries_);
  if (!in.ok()) return;
  Events& events = device_of(header).events;
  take_events(events, entries_.size());
  const std::size_t streams = events.streams().size();
  for (const Entry& entry : entries_) events.push_back(entry);
  budget_.take((events.streams().size() - streams) * kStreamCost);
}

void HrtDecoder::decode_symbols(ByteReader& in, std::uint32_t count) {
  repeat(in, count, [&] {
    const std::uint32_t id = in.index(frames_.size(), "it refers to a frame that is not there");
    const std::size_t inlined = in.count(4);
    if (inlined > kMostInlined) in.fail("a frame stands for too many");
    std::vector<Frame> frames;
    budget_.take(kNodeCost + inlined * 2 * kFrameCost);
    for (std::size_t i = 0; i < inlined && in.ok(); ++i) {
      frames.push_back(decode_frame(in, sizes()));
    }
    if (in.ok()) symbols_[id] = std::move(frames);
  });
}

void HrtDecoder::decode(const BlockHeader& header, ByteReader& in) {
  const std::uint32_t count = header.count;
  DeviceAddress last_address = 0;
  std::int64_t last_us = 0;
  switch (static_cast<BlockKind>(header.kind)) {
    case BlockKind::kProperties:
      return decode_properties(in);
    case BlockKind::kStrings:
      return decode_strings(in, count);
    case BlockKind::kValues:
      return repeat(in, count, [&] {
        budget_.take(kExtrasCost);
        trace_.extras.push_back(decode_value(in, budget_));
      });
    case BlockKind::kFrames:
      return repeat(in, count, [&] {
        budget_.take(kFrameCost);
        frames_.push_back(decode_frame(in, sizes()));
      });
    case BlockKind::kStacks:
      return decode_stacks(in, count);
    case BlockKind::kDetails:
      return decode_details_rows(in, count);
    case BlockKind::kDevice:
      device_of(header).dropped_events = in.varint();
      return;
    case BlockKind::kEvents:
      return decode_device_events(in, header);
    case BlockKind::kSegments:
      has_segments_ = true;
      return repeat(in, count, [&] {
        trace_.segments.push_back(decode_segment(in, budget_, sizes(), last_address));
      });
    case BlockKind::kAnnotations:
      return repeat(in, count, [&] {
        budget_.take(kAnnotationCost);
        trace_.annotations.push_back(decode_annotation(in, sizes(), last_us));
      });
    case BlockKind::kSymbols:
      return decode_symbols(in, count);
    case BlockKind::kIndex:
      break;
  }
  in.fail("it is of no known kind");
}

// The stacks are made anew beside the old ones, and then the events of one device at a time.
void HrtDecoder::take_second_stacks(const StackLengths& lengths) {
  std::size_t most_events = 0;
  for (const DeviceTrace& device : trace_.devices) {
    most_events = std::max(most_events, device.events.size());
  }
  budget_.take(lengths.after * kStackFrameCost + trace_.stacks.size() * kStackCost +
               most_events * kEventCost);
}

bool HrtDecoder::finish() {
  if (symbols_.empty()) return true;
  // The file counts frames on its own; the trace has kept those that a stack uses, by content.
  std::map<Frame, std::uint32_t> by_content;
  for (const auto& [id, frames] : symbols_) by_content.emplace(frames_[id], id);
  Substitutes substitutes;
  for (std::uint32_t i = 0; i < trace_.stacks.frame_count(); ++i) {
    const auto found = by_content.find(trace_.stacks.frame(i));
    if (found != by_content.end()) substitutes[i] = symbols_[found->second];
  }
  take_second_stacks(stack_lengths(trace_.stacks, substitutes));
  return substitute_frames(trace_, substitutes);
}

}  // namespace headroom::trace::internal
