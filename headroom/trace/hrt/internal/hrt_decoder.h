// Puts a Trace together from the bodies of .hrt blocks.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "headroom/trace/hrt/internal/byte_stream.h"
#include "headroom/trace/hrt/internal/hrt_format.h"
#include "headroom/trace/hrt/internal/hrt_items.h"
#include "headroom/trace/internal/big_vector.h"
#include "headroom/trace/internal/budget.h"
#include "headroom/trace/internal/substitute.h"
#include "headroom/trace/trace.h"

namespace headroom::trace::internal {

class HrtDecoder {
 public:
  // Its objects are taken from the budget.
  explicit HrtDecoder(Budget& budget) : budget_(budget), frames_(budget), entries_(budget) {}

  // Leaves in `in` what is wrong, if anything is.
  void decode(const BlockHeader& header, ByteReader& in);
  // Puts symbols in the place of raw frames. False when they would make the stacks absurdly long.
  [[nodiscard]] bool finish();

  [[nodiscard]] const Trace& trace() const noexcept { return trace_; }
  [[nodiscard]] Trace take() noexcept { return std::move(trace_); }
  [[nodiscard]] bool has_segments() const noexcept { return has_segments_; }

 private:
  void decode_properties(ByteReader& in);
  void decode_strings(ByteReader& in, std::uint32_t count);
  void decode_stacks(ByteReader& in, std::uint32_t count);
  void decode_details_rows(ByteReader& in, std::uint32_t count);
  void decode_device_events(ByteReader& in, const BlockHeader& header);
  void decode_symbols(ByteReader& in, std::uint32_t count);
  [[nodiscard]] TableSizes sizes() const noexcept;
  DeviceTrace& device_of(const BlockHeader& header);
  void take_second_stacks(const StackLengths& lengths);
  void take_events(const Events& events, std::size_t count);

  Budget& budget_;
  Trace trace_;
  std::map<std::tuple<int, int, bool>, std::size_t> devices_;  // by device, rank and host
  BigVector<Frame> frames_;                                    // as the file numbers them
  std::unordered_map<std::uint32_t, std::vector<Frame>> symbols_;
  BigVector<Entry> entries_;  // of the block being read
  bool has_segments_ = false;
};

}  // namespace headroom::trace::internal
