// Account: where the bytes of a device are, in lines that add up to the card; and explain(): what
// that means and what to do, in order. Every report uses these two and has no other.
//
//   total = live + rounding + pending + cached (hard + soft + stream)     the allocator's, reserved
//         + outside (context and libraries of this process) + other processes + free
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/device/types.h"
#include "headroom/memory/types.h"

namespace headroom::memory {

// Bytes held at one place of the program.
struct SiteBytes {
  std::string site;  // the annotation's path; "(no annotation)" without one
  std::uint64_t size_bytes = 0;
  std::uint64_t blocks = 0;
};

struct Account {
  device::DeviceId device{};
  std::uint64_t total_bytes = 0;  // of the card

  // --- reserved by this allocator ---
  std::array<std::uint64_t, kCategoryCount> live_bytes{};  // as asked for, by category
  std::uint64_t rounding_bytes = 0;                        // blocks held, beyond what was asked for
  std::uint64_t pending_bytes = 0;  // freed, but another stream may still use them
  // Cached: free blocks of ours. Each is in exactly one line, by what keeps it from serving the
  // request (or, without one, a request on the default stream):
  std::uint64_t cached_stream_bytes = 0;  // belongs to another stream
  std::uint64_t cached_hard_bytes = 0;    // shares its segment with a block in use: not releasable
  std::uint64_t cached_soft_bytes = 0;    // a whole segment or pages: a trim gives it back
  // --- not ours ---
  std::uint64_t outside_bytes = 0;  // of this process: context, libraries, other allocators
  std::uint64_t other_processes_bytes = 0;
  std::uint64_t free_bytes = 0;

  std::optional<std::uint64_t> limit_bytes{};  // what the allocator may reserve
  // Set if the limit was not recorded but follows from failures: it was at least limit_bytes, and
  // less than this.
  std::optional<std::uint64_t> limit_below_bytes{};
  std::uint64_t largest_cached_bytes = 0;  // the largest free block on the request's stream
  bool is_expandable = false;              // segments grow, so cached pages need not be whole
  std::uint64_t sleeping_bytes = 0;        // of blocks that sleep: they hold no byte of the card
  std::uint64_t page_bytes = 0;  // paged: whole free pages serve any request, so none is stranded

  // The request that failed; 0 when nothing did.
  std::uint64_t asked_bytes = 0;          // by the caller
  std::uint64_t segment_asked_bytes = 0;  // of the device, after rounding; whole pages
  StreamId asked_stream = StreamId::kDefault;

  std::vector<SiteBytes> sites{};  // largest first; sums to live
  std::vector<device::ProcessMemory> processes{};

  [[nodiscard]] std::uint64_t live() const noexcept;
  [[nodiscard]] std::uint64_t cached() const noexcept;
  // The bytes that the allocator has taken from the device.
  [[nodiscard]] std::uint64_t reserved() const noexcept;
  // The bytes that a monitor of the device shows as used: all but the free ones.
  [[nodiscard]] std::uint64_t used() const noexcept;
  // The sum of all lines; equals total_bytes.
  [[nodiscard]] std::uint64_t sum() const noexcept;
};

// The account with the lines that are not its allocator's, from what the device answered: what is
// free, what other processes hold and, as the rest of the card, what this process holds besides.
// `{.device = id}` is the account of a device without an allocator.
[[nodiscard]] Account with_device_lines(Account account,
                                        const device::MemoryInfo& info,
                                        std::vector<device::ProcessMemory> processes);

// The account of an allocator under a limit on a device of which nothing is known: it ends with
// what the limit leaves.
[[nodiscard]] Account ending_at_limit(Account account);

// The last line of each report that uses the glossary's words.
inline constexpr std::string_view kWordsLine = "Words: docs/guide/glossary.md\n";

struct AccountLine {
  std::string label;  // "cached, stuck beside live blocks (hard)"
  std::uint64_t size_bytes = 0;
};

// The lines that are not zero, in the order in which reports print them. `free` is always there,
// last.
[[nodiscard]] std::vector<AccountLine> lines(const Account& account);

enum class Verdict : std::uint8_t {
  kFits,           // nothing failed
  kFragmentation,  // enough is free or cached, but not in a usable place
  kShortage,       // the bytes are not there
};

[[nodiscard]] std::string_view to_string(Verdict verdict) noexcept;

enum class RemedyKind : std::uint8_t {
  kOther,  // `action` says what
  kEmptyCache,
  kExpandableSegments,
  kSynchronize,
  kOneStream,
  kRaiseLimit,
  kEndProcesses,
  kShrinkActivations,
  kMoveOptimizerState,
  kShardParameters,
  kReleaseGradients,
  kLimitWorkspaces,
  kKeepLessData,
  kLookAtSite,
};

struct Remedy {
  std::string action;            // "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
  std::uint64_t gain_bytes = 0;  // what it would make usable for this request
  bool is_enough = false;        // for this request, by itself
  // Frees blocks in segments that are otherwise cached: where it empties one, all of that is
  // gained.
  bool may_gain_more = false;
  bool is_proved = false;      // by a plan or a replay to the end; then no bytes are named
  bool is_unmeasured = false;  // nobody knows how much it gains; then none are named either
  RemedyKind kind = RemedyKind::kOther;
};

struct Explanation {
  Verdict verdict = Verdict::kFits;
  // The limit is known as a range, and this is the verdict at its low end; at the other it is
  // fragmentation.
  bool depends_on_limit = false;
  std::uint64_t missing_bytes = 0;  // how much more would have had to be usable
  std::string summary;              // one sentence
  std::vector<Remedy> remedies{};   // most promising first
};

[[nodiscard]] Explanation explain(const Account& account);

// The account and its explanation as text of at most 80 columns.
[[nodiscard]] std::string to_text(const Account& account);
[[nodiscard]] std::string to_text(const Account& account, const Explanation& explanation);

}  // namespace headroom::memory
