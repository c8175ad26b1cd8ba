// The contents of .hrt blocks, item by item: each thing written and read by a pair of functions.
// Those that read take what they make from the budget.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "headroom/trace/hrt/internal/byte_stream.h"
#include "headroom/trace/internal/big_vector.h"
#include "headroom/trace/internal/budget.h"
#include "headroom/trace/trace.h"

namespace headroom::trace::internal {

// The numbers that an item may refer to: below the sizes of the tables so far.
struct TableSizes {
  std::uint32_t strings = 0;
  std::uint32_t values = 0;
  std::uint32_t frames = 0;
  std::uint32_t stacks = 0;
  std::uint32_t details = 0;
};

// Throws InvalidArgument where it is nested deeper than a reader accepts.
void encode(ByteWriter& out, const Value& value, int depth = 0);
[[nodiscard]] Value decode_value(ByteReader& in, Budget& budget, int depth = 0);

void encode(ByteWriter& out, const Frame& frame);
[[nodiscard]] Frame decode_frame(ByteReader& in, const TableSizes& sizes) noexcept;

void encode_stack(ByteWriter& out, std::span<const std::uint32_t> frame_ids);
void decode_stack(ByteReader& in, const TableSizes& sizes, BigVector<std::uint32_t>& frame_ids);

void encode(ByteWriter& out, const Details& details);
[[nodiscard]] Details decode_details(ByteReader& in, Budget& budget, const TableSizes& sizes);

// `last` is the address of the segment before it in the block.
void encode(ByteWriter& out, const Segment& segment, DeviceAddress& last);
[[nodiscard]] Segment decode_segment(ByteReader& in,
                                     Budget& budget,
                                     const TableSizes& sizes,
                                     DeviceAddress& last);

// `last_us` is the time of the one before it in the block.
void encode(ByteWriter& out, const Annotation& annotation, std::int64_t& last_us);
[[nodiscard]] Annotation decode_annotation(ByteReader& in,
                                           const TableSizes& sizes,
                                           std::int64_t& last_us) noexcept;

// The events of a block, column by column; times count from `first_time_us`.
void encode_events(ByteWriter& out, std::span<const Entry> entries, std::int64_t first_time_us);
void decode_events(ByteReader& in,
                   const TableSizes& sizes,
                   std::size_t count,
                   std::int64_t first_time_us,
                   BigVector<Entry>& entries);

}  // namespace headroom::trace::internal
