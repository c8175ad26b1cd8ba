// Runs a recording under its own settings with the driver's recorded answers, and compares: every
// allocation with its recorded address, every segment event with its place and size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headroom/replay/player.h"
#include "headroom/replay/program.h"

namespace headroom::replay {

struct Mismatch {
  std::size_t event = 0;  // of the recording
  std::string recorded{};
  std::string ours{};
  std::vector<std::string> free_blocks{};  // that could have served, as lines of text
};

struct VerifyOptions {
  // As recorded where unset: a version is tried, then the other tie-break; the card is taken from
  // a table until one verifies.
  std::optional<memory::PyTorchVersion> version{};
  std::optional<std::uint64_t> card_bytes{};
  std::optional<std::uint64_t> limit_bytes{};
  memory::EventSink* sink = nullptr;
  std::size_t timeline_samples = 0;
};

struct Verification {
  ReplayResult result{};
  std::uint64_t address_mismatches = 0;
  std::uint64_t segment_mismatches = 0;
  std::optional<Mismatch> first{};
  bool has_same_end = false;  // the final segments and blocks are the recorded ones

  memory::PyTorchVersion version{};  // under which this is
  bool is_version_proved = false;    // the other tie-break does not verify
  std::uint64_t card_bytes = 0;
  std::optional<std::uint64_t> limit_bytes{};
  std::vector<std::uint32_t> empty_caches{};  // events before which the program emptied the cache

  [[nodiscard]] bool is_exact() const noexcept {
    return address_mismatches == 0 && segment_mismatches == 0;
  }
};

[[nodiscard]] Verification verify(const Program& program, const VerifyOptions& options = {});

}  // namespace headroom::replay
