// The policies that a recording can be replayed under, by their names on the command line.
//
//   pytorch             as recorded
//   pytorch:default     the factory settings
//   pytorch:CONF        exactly CONF, as in PYTORCH_CUDA_ALLOC_CONF
//   cudaMallocAsync     the model of the driver's pool
//   paged               our own allocator
//   paged:KEY=VALUE,... with settings; memory/allocator_choice.h has the keys
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "headroom/base/result.h"
#include "headroom/memory/allocator_choice.h"
#include "headroom/replay/verify.h"

namespace headroom::replay {

enum class PolicyKind : std::uint8_t { kAsRecorded, kSettings, kAsyncPool, kPaged };

struct Policy {
  PolicyKind kind = PolicyKind::kAsRecorded;
  std::string name = "pytorch";  // as it was written
  memory::AllocatorChoice
      choice{};  // of the others; the settings of kSettings are read again, from
                 // choice.config.text, as the release that is replayed does

  friend bool operator==(const Policy&, const Policy&) = default;
};

// The error is a sentence that says what is wrong, and what there is.
[[nodiscard]] Result<Policy, std::string> parse_policy(std::string_view text);

// Under its name of the command line.
[[nodiscard]] Policy policy_of(memory::AllocatorChoice choice);
// Of these settings, as in PYTORCH_CUDA_ALLOC_CONF. Throws InvalidArgument where they cannot be
// read.
[[nodiscard]] Policy policy_of_conf(const std::string& conf);

struct PolicyOptions {
  std::optional<memory::PyTorchVersion> version{};
  std::optional<std::uint64_t> card_bytes{};
  std::optional<std::uint64_t> limit_bytes{};
  bool verifies = false;  // compares kAsRecorded with the recording
  // The program that is compared, where this one is from_live_blocks() of it.
  const Program* recorded = nullptr;
  bool finds_smallest_limit = false;
  bool checks_bound = false;       // of kPaged, after every op
  double work_us_per_request = 0;  // see ReplayOptions
  std::size_t timeline_samples = 0;
  memory::EventSink* sink = nullptr;
};

struct PolicyResult {
  Policy policy{};
  ReplayResult result{};
  memory::PyTorchVersion version{};
  std::uint64_t card_bytes = 0;
  std::optional<std::uint64_t> limit_bytes{};  // it ran under
  // Where it was compared.
  std::optional<Verification> verification{};
  std::optional<SmallestLimit> smallest{};
  bool is_model = false;
};

// The options of a replay under a policy, on the recorded card and under the recorded
// limit; nothing for a model. Throws InvalidArgument as run_policy() does.
[[nodiscard]] std::optional<ReplayOptions> replay_options(const Program& program,
                                                          const Policy& policy);

// Throws InvalidArgument for settings that the version does not read.
//
// kAsRecorded under bounds with which it runs_as_recorded() is what the recording says. Other
// bounds are predicted, with and without a comparison.
//
// A limit that is not given is the recorded one for kAsRecorded. Other settings have none, unless
// the recording has failures: whether those would have been served is then the question, so they
// get what the recording had.
[[nodiscard]] PolicyResult run_policy(const Program& program,
                                      const Policy& policy,
                                      const PolicyOptions& options = {});

}  // namespace headroom::replay
