#include "headroom/replay/policy.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "headroom/analysis/index.h"
#include "headroom/base/error.h"
#include "headroom/memory/allocator_choice.h"
#include "headroom/replay/async_pool_model.h"

namespace headroom::replay {
namespace {

constexpr std::string_view kPyTorch = "pytorch";
constexpr std::string_view kPagedColon = "paged:";

memory::AllocatorConfig config_of(const Policy& policy, memory::PyTorchVersion version) {
  auto parsed = memory::parse_config(
      policy.choice.config.text, {.dialect = memory::ConfigDialect::kStrict, .version = version});
  if (!parsed) throw InvalidArgument(policy.name + ": " + parsed.error());
  return std::move(parsed->config);
}

PolicyKind kind_of(const memory::AllocatorChoice& choice) {
  switch (choice.kind()) {
    case memory::AllocatorKind::kPaged:
      return PolicyKind::kPaged;
    case memory::AllocatorKind::kDriverPool:
      return PolicyKind::kAsyncPool;
    case memory::AllocatorKind::kCaching:
      break;
  }
  return PolicyKind::kSettings;
}

// The limit of the recording, where it says so: its share of the card, or what a failure tells.
// That a card was full says nothing of another one.
std::optional<std::uint64_t> limit_of(const Program& program, std::optional<std::uint64_t> card) {
  const RecordedLimit& recorded = program.limit;
  if (recorded.said_bytes) return recorded.said_bytes;
  if (recorded.fraction) return part_of(*recorded.fraction, card.value_or(kDefaultCardBytes));
  const bool is_other_card = card && !can_be_card_of(recorded, *card);
  return recorded.was_device_full && is_other_card ? std::nullopt : recorded.floor_bytes;
}

class PolicyRun {
 public:
  PolicyRun(const Program& program, const Policy& policy, const PolicyOptions& options)
      : program_(program),
        options_(options),
        version_(options.version.value_or(program.version)),
        card_(options.card_bytes.value_or(kDefaultCardBytes)) {
    out_.policy = policy;
    out_.version = version_;
    out_.card_bytes = card_;
  }

  PolicyResult run() {
    switch (out_.policy.kind) {
      case PolicyKind::kAsRecorded:
        run_as_recorded();
        break;
      case PolicyKind::kSettings:
        run_settings();
        break;
      case PolicyKind::kAsyncPool:
        run_model();
        break;
      case PolicyKind::kPaged:
        run_paged();
        break;
    }
    return std::move(out_);
  }

 private:
  // With the driver's recorded answers, unless the question is what would have been otherwise.
  void run_as_recorded() {
    const Bounds asked = this->asked();
    if (runs_as_recorded(program_, asked)) return run_on_record(asked);
    ReplayOptions replay_options = as_recorded(program_, asked);
    replay_options.version = version_;
    set_bounds(replay_options);
    predict(replay_options);
    if (options_.verifies) out_.verification = verify(recorded(), verify_options(asked));
  }

  void run_on_record(const Bounds& asked) {
    VerifyOptions how = verify_options(asked);
    how.sink = options_.sink;
    how.timeline_samples = options_.timeline_samples;
    Verification v = verify(recorded(), how);
    out_.result = v.result;
    // Even where the run went astray: this is what the recording says.
    out_.result.fits = program_.failures == 0;
    out_.result.ooms = program_.failures;
    if (!v.is_exact() && program_.failures > 0) take_recorded_peak();
    out_.version = v.version;
    out_.card_bytes = v.card_bytes;
    out_.limit_bytes = v.limit_bytes;
    ReplayOptions replay_options = as_recorded(program_, {.card_bytes = v.card_bytes});
    replay_options.version = v.version;
    if (options_.verifies) out_.verification = std::move(v);
    find_smallest(replay_options);
  }

  // What failed in the recording may have been served in a run that went astray, as where the
  // recording does not say what the limit was.
  void take_recorded_peak() {
    const Program& program = recorded();
    const std::uint64_t peak =
        analysis::TraceIndex(*program.trace, *program.device).peaks().reserved.bytes;
    out_.result.peak_reserved = peak;
    out_.result.peak_reserved_low = peak;
    out_.result.peak_reserved_high = peak;
  }

  [[nodiscard]] Bounds asked() const {
    return {.card_bytes = options_.card_bytes, .limit_bytes = options_.limit_bytes};
  }

  [[nodiscard]] VerifyOptions verify_options(const Bounds& asked) const {
    return {.version = options_.version,
            .card_bytes = asked.card_bytes,
            .limit_bytes = asked.limit_bytes};
  }

  [[nodiscard]] const Program& recorded() const {
    return options_.recorded != nullptr ? *options_.recorded : program_;
  }

  void run_settings() {
    ReplayOptions replay_options{
        .config = config_of(out_.policy, version_), .version = version_, .card_bytes = card_};
    if (program_.failures > 0) replay_options.limit_bytes = limit_of(program_, options_.card_bytes);
    set_bounds(replay_options);
    predict(replay_options);
  }

  void run_paged() {
    ReplayOptions replay_options{.version = version_,
                                 .paged = out_.policy.choice.paged,
                                 .card_bytes = card_,
                                 .checks_bound = options_.checks_bound,
                                 .work_us_per_request = options_.work_us_per_request};
    if (program_.failures > 0) replay_options.limit_bytes = limit_of(program_, options_.card_bytes);
    set_bounds(replay_options);
    predict(replay_options);
  }

  void set_bounds(ReplayOptions& replay_options) const {
    if (options_.limit_bytes) {
      replay_options.limit_bytes = options_.limit_bytes;
      replay_options.outside_bytes = 0;
    }
    replay_options.timeline_samples = options_.timeline_samples;
    replay_options.sink = options_.sink;
  }

  void predict(const ReplayOptions& replay_options) {
    out_.result = replay_bounds(program_, replay_options);
    out_.limit_bytes = limit_of(replay_options);
    find_smallest(replay_options);
  }

  // The needs of the traffic do not depend on the memory that it had.
  void find_smallest(ReplayOptions replay_options) {
    if (!options_.finds_smallest_limit) return;
    replay_options.limit_bytes.reset();
    replay_options.outside_bytes = 0;
    replay_options.config.memory_fraction = 1.0;
    out_.smallest = smallest_limit(program_, replay_options);
  }

  void run_model() {
    const auto started = std::chrono::steady_clock::now();
    std::optional<std::uint64_t> limit = options_.limit_bytes;
    if (!limit && program_.failures > 0) limit = limit_of(program_, options_.card_bytes);
    const AsyncPoolResult model =
        model_async_pool(program_, std::min(limit.value_or(UINT64_MAX), card_));
    ReplayResult& result = out_.result;
    result.events = program_.events;
    result.allocs = program_.allocs;
    result.peak_live = model.peak_live;
    result.peak_allocated = model.peak_allocated;
    result.peak_reserved = model.peak_reserved;
    result.peak_reserved_low = model.peak_reserved;
    result.peak_reserved_high = model.peak_reserved;
    result.peak_op = model.peak_op;
    result.calls.device_allocs = model.grown;
    result.fits = model.fits;
    result.ooms = model.ooms;
    result.recorded_ooms_served = model.recorded_ooms_served;
    result.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    out_.limit_bytes = limit;
    out_.is_model = true;
  }

  const Program& program_;
  const PolicyOptions& options_;
  memory::PyTorchVersion version_;
  std::uint64_t card_;
  PolicyResult out_;
};

}  // namespace

Policy policy_of(memory::AllocatorChoice choice) {
  Policy policy{.kind = kind_of(choice), .name = to_string(choice)};
  policy.choice = std::move(choice);
  return policy;
}

Policy policy_of_conf(const std::string& conf) {
  const std::string name = "pytorch:" + (conf.empty() ? std::string("default") : conf);
  auto policy = parse_policy(name);
  if (!policy) throw InvalidArgument(policy.error());
  return std::move(*policy);
}

Result<Policy, std::string> parse_policy(std::string_view text) {
  if (text == kPyTorch) return Policy{};
  // A limit is a question of its own here, no setting.
  if (text.starts_with(kPagedColon)) {
    const auto own = memory::parse_paged_options(text.substr(kPagedColon.size()));
    if (!own) return Unexpected(std::string(text) + ": " + own.error());
  }
  auto choice = memory::parse_choice_name(text);
  if (!choice && !text.starts_with(std::string(kPyTorch) + ":")) {
    return Unexpected(
        "there is no policy '" + std::string(text) +
        "'; there are pytorch (as recorded), pytorch:default, pytorch:CONF, paged and "
        "cudaMallocAsync");
  }
  if (!choice) return Unexpected(choice.error());
  const PolicyKind kind = kind_of(*choice);
  return Policy{.kind = kind, .name = std::string(text), .choice = std::move(*choice)};
}

std::optional<ReplayOptions> replay_options(const Program& program, const Policy& policy) {
  switch (policy.kind) {
    case PolicyKind::kAsRecorded:
      return as_recorded(program);
    case PolicyKind::kSettings:
      return with_settings(program, config_of(policy, program.version));
    case PolicyKind::kPaged:
      return with_paged(program, policy.choice.paged.value_or(memory::PagedOptions{}));
    case PolicyKind::kAsyncPool:
      break;
  }
  return std::nullopt;
}

PolicyResult run_policy(const Program& program,
                        const Policy& policy,
                        const PolicyOptions& options) {
  return PolicyRun(program, policy, options).run();
}

}  // namespace headroom::replay
