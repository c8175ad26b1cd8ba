// A sequence of operations, and a duel: CachingAllocator and NaiveModel do the same operations and
// must agree after each.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/memory/config.h"

namespace headroom::memory::testing {

// Operations name allocations by number, so that any of them can be left out: what names an
// allocation that was not made does nothing.
enum class OpKind : char {
  kAllocate = 'a',      // number, bytes, stream, place
  kFree = 'f',          // number
  kFreeAgain = 'd',     // number of one that was freed
  kRecord = 'r',        // number, stream
  kComplete = 'c',      // stream
  kProcess = 'p',       //
  kEmptyCache = 'e',    //
  kTrim = 't',          // bytes to keep
  kLimit = 'l',         // bytes; 0 removes it
  kConfigure = 'g',     // see config_of
  kBeginPool = 'b',     // pool, streams as bits
  kEndPool = 'n',       // pool
  kReleasePool = 'x',   // pool
  kBeginCapture = 'k',  //
  kEndCapture = 'u',    //
};

// How many streams (0 is the default one) and pools the operations name.
inline constexpr std::uint64_t kStreams = 4;
inline constexpr std::uint64_t kPools = 3;

struct Op {
  OpKind kind = OpKind::kProcess;
  std::array<std::uint64_t, 4> args{};

  friend bool operator==(const Op&, const Op&) = default;
};

struct Sequence {
  int minor = 13;  // of PyTorch 2
  std::uint64_t capacity_bytes = std::uint64_t{256} << 20U;
  std::vector<Op> ops{};
};

// `v13 m268435456 a0,512,1,7 f0`: one line that parse_sequence reads back.
[[nodiscard]] std::string to_string(const Sequence& sequence);
[[nodiscard]] Sequence parse_sequence(std::string_view text);
[[nodiscard]] Sequence random_sequence(std::uint64_t seed, std::size_t length);
// One of the settings, by number.
[[nodiscard]] AllocatorConfig config_of(std::uint64_t number);

struct DuelOptions {
  // The version the model takes; the sequence's own when unset.
  std::optional<int> model_minor{};
};

struct DuelResult {
  std::uint64_t ops = 0;
  std::uint64_t allocated = 0;  // requests that were served ...
  std::uint64_t failed = 0;     // ... and that were not
  std::uint64_t accounts = 0;   // accounts that were added up
  std::string difference{};     // empty when they agreed
};

[[nodiscard]] DuelResult fight(const Sequence& sequence, const DuelOptions& options = {});

// Leaves out operations as long as the two still differ.
[[nodiscard]] Sequence shrink(Sequence sequence, const DuelOptions& options = {});

}  // namespace headroom::memory::testing
