// The words of every allocator, and the numbers of PyTorch's. Read this first, then paged/types.h.
//
//   block      a contiguous range that is handed out or cached; the unit of every decision
//   segment    what was taken from the device in one piece (a cudaMalloc), cut into blocks that
//              tile it; or, expandable, one long reservation of addresses with pages mapped from
//              the left as they are needed
//   pool       the free blocks of one kind: small (up to 1 MiB) or large; default or private
//   split      cutting a free block in two because the request needs only the front
//   allocated  bytes of blocks that somebody holds
//   active     allocated, plus blocks freed but still in use by another stream
//   reserved   bytes taken from the device: active, plus what is cached
//   live       the sizes asked for, each rounded up to 512 bytes
//
//   a segment      |  block 4 MiB, in use  | 2 MiB free | 6 MiB, in use |      8 MiB free      |
//                  ^ address                            ^ prev / next link the neighbours
//   expandable     | in use | free | in use | free tail |  unmapped: addresses without memory ...
//
// Invariants, checked by Allocator::check_invariants():
//   the blocks of a segment tile it without gaps; every size is a multiple of 512
//   two free neighbours of one segment differ in `is_mapped` (else they would have merged)
//   allocated <= active <= reserved
//   reserved  == sum of segment sizes (mapped bytes where expandable)
//   all       == small pool + large pool, for every statistic
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/device/types.h"

namespace headroom::memory {

using device::DeviceAddress;
using device::StreamId;

// Every block starts at and is a multiple of this; it is the alignment that is promised.
inline constexpr std::uint64_t kMinBlockBytes = 512;
// A rounded request up to this size is served by the small pool.
inline constexpr std::uint64_t kSmallBytes = 1_MiB;
// Segments of the small pool, and its pages when expandable.
inline constexpr std::uint64_t kSmallSegmentBytes = 2_MiB;
// Segments for requests between 1 and 10 MiB, and the large pool's pages; configurable.
inline constexpr std::uint64_t kLargeSegmentBytes = 20_MiB;
// From here on a segment is made for its request, ...
inline constexpr std::uint64_t kOwnSegmentBytes = 10_MiB;
// ... rounded up to this.
inline constexpr std::uint64_t kSegmentRoundingBytes = 2_MiB;

// The purpose of an allocation. Every allocation has one; the totals per category are exact.
enum class Category : std::uint8_t {
  kUnknown,
  kParameter,
  kGradient,
  kOptimizerState,
  kActivation,
  kWorkspace,
  kData,
};
inline constexpr std::size_t kCategoryCount = static_cast<std::size_t>(Category::kData) + 1;

[[nodiscard]] std::string_view to_string(Category category) noexcept;
// As a report names it: `optimizer state`. What to_string gives is for programs.
[[nodiscard]] std::string_view plain_name(Category category) noexcept;

// A private pool, as PyTorch names them: (0,0) is the default pool, (k,0) belongs to a graph
// capture, (0,k) was made by the user.
struct PoolId {
  std::uint64_t graph = 0;
  std::uint64_t user = 0;

  [[nodiscard]] constexpr bool is_default() const noexcept { return graph == 0 && user == 0; }
  friend auto operator<=>(const PoolId&, const PoolId&) = default;
};

// Whatever a program remembers of an allocation: its stack, say (Allocator::set_tag_maker).
using Tag = std::shared_ptr<void>;

// The state of a block, as a snapshot shows it.
enum class BlockState : std::uint8_t {
  kInactive,     // cached
  kAllocated,    // handed out
  kPendingFree,  // freed, but another stream may still use it
  kUnmapped,     // addresses of an expandable segment without memory
};

struct BlockInfo {
  DeviceAddress address = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t requested_bytes = 0;  // what the holder asked for; 0 when inactive
  BlockState state = BlockState::kInactive;
  Category category = Category::kUnknown;
  std::uint32_t annotation = 0;  // see annotation.h
  Tag tag{};                     // of the allocation; null when inactive
};

// One segment, or one contiguous mapped run of an expandable one, as PyTorch's snapshots list them.
struct SegmentInfo {
  DeviceAddress address = 0;
  std::uint64_t size_bytes = 0;
  StreamId stream = StreamId::kDefault;
  PoolId pool{};
  bool is_small = false;
  bool is_expandable = false;
  std::vector<BlockInfo> blocks{};
  Tag tag{};  // of the allocation that it was taken for
};

// A block that is held, and the segment (or mapped run) that it lies in.
struct BlockPlace {
  BlockInfo block{};
  StreamId stream = StreamId::kDefault;
  PoolId pool{};
  DeviceAddress segment_address = 0;
  std::uint64_t segment_bytes = 0;
};

}  // namespace headroom::memory
