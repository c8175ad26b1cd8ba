// Which process is ours, what the numbers prove, and what exists to be done about it.
#include <algorithm>
#include <utility>

#include "headroom/base/bytes.h"
#include "headroom/base/checked.h"
#include "headroom/diagnose/internal/oom_writers.h"

namespace headroom::diagnose::internal {
namespace {

using memory::Verdict;

constexpr memory::PyTorchVersion kFirstWithExpandable{2, 1};
constexpr memory::PyTorchVersion kFirstWithSplits{1, 10};
constexpr std::uint64_t kWholeBlockBytes = 256_MiB;  // of the advice, max_split_size_mb:256

// --- Which process is ours -----------------------------------------------------------------------

// In a container the driver names processes as the host does, so PyTorch does not find itself and
// lists its own process among the others. It holds at least what PyTorch has reserved; and if the
// card does not hold that a second time, one of those listed must be it.
void find_own_process(OomMessage& message) {
  const memory::PyTorchMessage& numbers = message.numbers;
  if (numbers.names_this_process) {
    message.own = OwnProcess::kNamed;
    return;
  }
  if (numbers.other_processes.empty()) return;
  // Every number is rounded to 0.005 GiB.
  const std::uint64_t slack = 6_MiB * (numbers.other_processes.size() + 3);
  const std::uint64_t reserved = numbers.reserved_bytes();
  std::uint64_t listed = 0;
  for (const device::ProcessMemory& process : numbers.other_processes) {
    listed = saturating_add(listed, process.used_bytes);
    if (saturating_add(process.used_bytes, slack) < reserved) continue;
    message.own_candidates.push_back(static_cast<std::uint64_t>(process.pid));
  }
  if (message.own_candidates.empty()) return;
  const std::uint64_t used =
      saturating_subtract(numbers.total_bytes.value_or(UINT64_MAX), numbers.free_bytes.value_or(0));
  const bool is_among_them = saturating_add(listed, reserved) > saturating_add(used, slack);
  message.own = is_among_them && message.own_candidates.size() == 1 ? OwnProcess::kByArithmetic
                                                                    : OwnProcess::kMaybe;
}

bool may_be_own(const OomMessage& message, const device::ProcessMemory& process) {
  return std::ranges::find(message.own_candidates, static_cast<std::uint64_t>(process.pid)) !=
         message.own_candidates.end();
}

// --- PyTorch on a device -------------------------------------------------------------------------

class PyTorchRemedies {
 public:
  PyTorchRemedies(const OomMessage& message, const memory::Account& account)
      : message_(message), account_(account) {
    limit_left_ = account.limit_bytes
                      ? saturating_subtract(*account.limit_bytes, account.reserved())
                      : UINT64_MAX;
    takeable_ = std::min(account.free_bytes, limit_left_);
    missing_ = saturating_subtract(account.asked_bytes, takeable_);
  }

  std::vector<MessageRemedy> all() && {
    if (missing_ == 0) return {{.kind = RemedyKind::kSeeWhoHolds}};
    from_the_cache();
    from_the_limit();
    from_other_processes();
    std::stable_partition(remedies_.begin(), remedies_.end(), [](const MessageRemedy& remedy) {
      return remedy.is_enough;
    });
    if (message_.unexplained_bytes > 0) remedies_.push_back({.kind = RemedyKind::kSeeWhoHolds});
    if (!is_surely_enough()) remedies_.push_back({.kind = RemedyKind::kUseLess});
    return std::move(remedies_);
  }

 private:
  void put(RemedyKind kind, std::uint64_t gain) {
    if (gain == 0) return;
    remedies_.push_back({.kind = kind, .gain_bytes = gain, .is_enough = gain >= missing_});
  }

  // Where little is cached, a remedy that makes the cache usable is enough for this request alone:
  // the next one finds the card full again.
  [[nodiscard]] bool is_surely_enough() const {
    constexpr std::uint64_t kLittle = 32;  // a thirty-second of the card
    const bool is_little = account_.cached_hard_bytes < account_.total_bytes / kLittle;
    return std::ranges::any_of(remedies_, [&](const MessageRemedy& remedy) {
      const bool is_elsewhere =
          remedy.kind == RemedyKind::kRaiseLimit || remedy.kind == RemedyKind::kEndOtherProcesses;
      return remedy.is_enough && (is_elsewhere || !is_little);
    });
  }

  // max_split_size_mb:256 keeps blocks whole that are larger than that. Where less is cached, there
  // is none.
  void from_whole_blocks(std::uint64_t gain) {
    if (message_.sets_max_split_size || gain < kWholeBlockBytes) return;
    put(RemedyKind::kMaxSplitSize, gain);
  }

  void from_the_cache() {
    const std::uint64_t gain = account_.cached_hard_bytes;
    if (message_.numbers.is_expandable || message_.writer == Writer::kPyTorchOther) return;
    if (message_.writer == Writer::kPyTorchXpu) {
      const bool has_settings = !message_.settings_variable.empty();
      put(has_settings ? RemedyKind::kExpandableSegments : RemedyKind::kEmptyCache, gain);
      return;
    }
    if (message_.writer == Writer::kPyTorchNpu) return from_whole_blocks(gain);
    // Without a range the text was cut: nothing says that it is old.
    const auto& versions = message_.versions;
    const bool is_old = versions && versions->to && *versions->to < kFirstWithExpandable;
    if (!is_old) put(RemedyKind::kExpandableSegments, gain);
    const bool may_split = versions && versions->from >= kFirstWithSplits;
    const bool has_doubts = is_old || message_.writer == Writer::kPyTorchHip;
    if (has_doubts && may_split) from_whole_blocks(gain);
    if (is_old) put(RemedyKind::kUpgradePyTorch, gain);
  }

  void from_the_limit() {
    if (account_.limit_bytes && limit_left_ < account_.free_bytes) {
      put(RemedyKind::kRaiseLimit, account_.free_bytes - limit_left_);
    }
  }

  // Those that are surely not ours.
  void from_other_processes() {
    std::uint64_t others = 0;
    for (const device::ProcessMemory& process : message_.numbers.other_processes) {
      if (!may_be_own(message_, process)) others = saturating_add(others, process.used_bytes);
    }
    others = std::min(others, account_.other_processes_bytes);
    const std::uint64_t then = std::min(saturating_add(account_.free_bytes, others), limit_left_);
    put(RemedyKind::kEndOtherProcesses, saturating_subtract(then, takeable_));
    if (message_.own == OwnProcess::kMaybe) {
      remedies_.push_back({.kind = RemedyKind::kFindOwnProcess});
    }
  }

  const OomMessage& message_;
  const memory::Account& account_;
  std::uint64_t limit_left_ = 0;
  std::uint64_t takeable_ = 0;
  std::uint64_t missing_ = 0;
  std::vector<MessageRemedy> remedies_{};
};

// A context and the libraries of one process take less than that.
std::uint64_t unexplained(const OomMessage& message, const memory::Account& account) {
  const memory::PyTorchMessage& numbers = message.numbers;
  const bool has_processes = numbers.names_this_process || !numbers.other_processes.empty();
  return !has_processes && account.outside_bytes > 2_GiB ? account.outside_bytes : 0;
}

// The device is too small for the blocks in use and the request, whatever is cached.
bool is_too_much(const memory::PyTorchMessage& numbers) {
  const std::uint64_t room =
      std::min(numbers.total_bytes.value_or(UINT64_MAX), numbers.limit_bytes.value_or(UINT64_MAX));
  return numbers.asked_bytes > 0 &&
         saturating_add(numbers.allocated_bytes.value_or(0), numbers.asked_bytes) > room;
}

// Its pool is the driver's: the text has no number for what is cached in it.
void judge_cuda_pool(OomMessage& message) {
  const memory::PyTorchMessage& numbers = message.numbers;
  if (is_too_much(numbers)) message.verdict = Verdict::kShortage;
  if (numbers.limit_bytes) message.remedies.push_back({.kind = RemedyKind::kRaiseLimit});
  message.remedies.push_back({.kind = RemedyKind::kUseLess});
  message.remedies.push_back({.kind = RemedyKind::kSeeWhoHolds});
}

void judge_pytorch(OomMessage& message) {
  const memory::PyTorchMessage& numbers = message.numbers;
  if (numbers.is_absurd) {
    message.remedies = {{.kind = RemedyKind::kCheckSize}};
    return;
  }
  if (numbers.is_rejection) {
    message.verdict = Verdict::kShortage;
    message.remedies = {{.kind = RemedyKind::kRaiseLimit}, {.kind = RemedyKind::kUseLess}};
    return;
  }
  if (message.is_cuda_pool) return judge_cuda_pool(message);
  find_own_process(message);
  message.exceeds_card = numbers.total_bytes && numbers.reserved_bytes() > *numbers.total_bytes &&
                         numbers.reserved_bytes() - *numbers.total_bytes > 16_MiB;
  if (numbers.total_bytes && numbers.asked_bytes > *numbers.total_bytes) {
    message.is_larger_than_card = true;
    message.verdict = Verdict::kShortage;
    message.remedies = {{.kind = RemedyKind::kCheckSize}, {.kind = RemedyKind::kUseLess}};
    return;
  }
  // Without what is cached nothing is known: a number that is missing is not zero.
  if (!numbers.free_bytes || !numbers.allocated_bytes || !numbers.unallocated_bytes ||
      numbers.asked_bytes == 0) {
    message.remedies = {{.kind = RemedyKind::kUseLess}, {.kind = RemedyKind::kSeeWhoHolds}};
    if (is_too_much(numbers)) message.verdict = Verdict::kShortage;
    return;
  }
  const memory::Account account = account_of(message);
  message.verdict = explain(account).verdict;
  message.unexplained_bytes = unexplained(message, account);
  message.remedies = PyTorchRemedies(message, account).all();
}

// --- The rest ------------------------------------------------------------------------------------

void judge_mps(OomMessage& message) {
  const memory::PyTorchMessage& numbers = message.numbers;
  const std::uint64_t held =
      saturating_add(numbers.allocated_bytes.value_or(0), message.other_bytes);
  if (message.settings_variable.empty()) {  // one buffer larger than Metal allows
    message.remedies = {{.kind = RemedyKind::kUseLess}};
    return;
  }
  if (numbers.limit_bytes && numbers.asked_bytes > 0 &&
      saturating_add(held, numbers.asked_bytes) > *numbers.limit_bytes) {
    message.verdict = Verdict::kShortage;
  }
  message.remedies = {{.kind = RemedyKind::kUseLess},
                      {.kind = RemedyKind::kEmptyCache},
                      {.kind = RemedyKind::kMpsWatermark}};
}

void judge_vllm(OomMessage& message) {
  const memory::PyTorchMessage& numbers = message.numbers;
  if (numbers.total_bytes || numbers.limit_bytes) {  // at the start
    if (numbers.free_bytes && numbers.limit_bytes && *numbers.free_bytes < *numbers.limit_bytes) {
      message.verdict = Verdict::kShortage;
    }
    message.remedies = {{.kind = RemedyKind::kVllmLowerShare}, {.kind = RemedyKind::kSeeWhoHolds}};
    return;
  }
  if (message.is_warm_up) {
    message.remedies = {{.kind = RemedyKind::kVllmLowerShare},
                        {.kind = RemedyKind::kVllmShorterContext}};
    return;
  }
  if (numbers.free_bytes && numbers.asked_bytes > *numbers.free_bytes) {
    message.verdict = Verdict::kShortage;
  }
  message.remedies = {{.kind = RemedyKind::kVllmRaiseShare},
                      {.kind = RemedyKind::kVllmShorterContext}};
}

void judge_jax(OomMessage& message) {
  const memory::PyTorchMessage& numbers = message.numbers;
  if (numbers.total_bytes || numbers.free_bytes) {  // of a TPU
    const std::uint64_t room =
        std::min(numbers.total_bytes.value_or(UINT64_MAX), numbers.free_bytes.value_or(UINT64_MAX));
    if (numbers.asked_bytes > room) {
      message.verdict = Verdict::kShortage;
    } else if (numbers.free_bytes && numbers.asked_bytes > 0) {
      message.verdict = Verdict::kFragmentation;
    }
    message.remedies = {{.kind = RemedyKind::kUseLess}};
    return;
  }
  message.remedies = {{.kind = RemedyKind::kUseLess},
                      {.kind = RemedyKind::kXlaFraction},
                      {.kind = RemedyKind::kXlaPreallocation},
                      {.kind = RemedyKind::kSeeWhoHolds}};
}

void judge_kernel(OomMessage& message) {
  message.verdict = Verdict::kShortage;
  message.remedies = {{.kind = RemedyKind::kHostMemory}};
  if (message.is_container_limit) message.remedies.push_back({.kind = RemedyKind::kContainerLimit});
}

// No process is asked for as much in earnest.
bool is_no_real_size(std::uint64_t size) { return size >= 16_TiB; }

std::vector<MessageRemedy> remedies_of(const OomMessage& message) {
  switch (message.writer) {
    case Writer::kCudaRuntime:
    case Writer::kHipRuntime:
    case Writer::kGpuRuntime:
      return {{.kind = RemedyKind::kSeeWhoHolds}, {.kind = RemedyKind::kUseLess}};
    case Writer::kCublas:
    case Writer::kCudnn:
    case Writer::kCudaLibrary:
      return {{.kind = RemedyKind::kLeaveRoom},
              {.kind = RemedyKind::kUseLess},
              {.kind = RemedyKind::kSeeWhoHolds}};
    case Writer::kNccl:
      return {{.kind = RemedyKind::kLeaveRoom},
              {.kind = RemedyKind::kNcclBuffers},
              {.kind = RemedyKind::kSeeWhoHolds}};
    case Writer::kCupy:
      return {{.kind = RemedyKind::kUseLess}, {.kind = RemedyKind::kSeeWhoHolds}};
    case Writer::kTensorFlow:
      if (message.is_host) return {{.kind = RemedyKind::kHostMemory}};
      return {{.kind = RemedyKind::kUseLess},
              {.kind = RemedyKind::kTensorFlowGrowth},
              {.kind = RemedyKind::kSeeWhoHolds}};
    case Writer::kOnnxRuntime:
      return {{.kind = RemedyKind::kUseLess},
              {.kind = RemedyKind::kOnnxArena},
              {.kind = RemedyKind::kSeeWhoHolds}};
    case Writer::kTensorRt:
      return {{.kind = RemedyKind::kTensorRtWorkspace},
              {.kind = RemedyKind::kUseLess},
              {.kind = RemedyKind::kSeeWhoHolds}};
    case Writer::kLlamaCpp:
      if (message.is_host) return {{.kind = RemedyKind::kHostMemory}};
      return {{.kind = RemedyKind::kFewerLayers}, {.kind = RemedyKind::kSeeWhoHolds}};
    case Writer::kRmm:
      return {{.kind = RemedyKind::kRmmPool},
              {.kind = RemedyKind::kUseLess},
              {.kind = RemedyKind::kSeeWhoHolds}};
    case Writer::kPaddle:
      return {{.kind = RemedyKind::kUseLess}, {.kind = RemedyKind::kSeeWhoHolds}};
    case Writer::kMetal:
      return {{.kind = RemedyKind::kUseLess}};
    case Writer::kSglang:
      return {{.kind = RemedyKind::kSglangShare}, {.kind = RemedyKind::kUseLess}};
    case Writer::kRay:
      return {{.kind = RemedyKind::kHostMemory}, {.kind = RemedyKind::kRayThreshold}};
    case Writer::kSharedMemory:
      return {{.kind = RemedyKind::kSharedMemorySize}};
    case Writer::kHeadroom:
      return {{.kind = RemedyKind::kOwnReport}};
    case Writer::kKilled:
      return {{.kind = RemedyKind::kKernelLog}, {.kind = RemedyKind::kHostMemory}};
    default:
      return {{.kind = RemedyKind::kHostMemory}};
  }
}

// The request beside the memory that there was, where a text has both.
std::optional<Verdict> verdict_of(const OomMessage& message) {
  const memory::PyTorchMessage& numbers = message.numbers;
  if (message.writer == Writer::kRay) return Verdict::kShortage;
  if (message.writer == Writer::kHeadroom) return message.verdict;  // it says so itself
  const bool has_room = numbers.asked_bytes <= numbers.free_bytes.value_or(UINT64_MAX) &&
                        saturating_add(numbers.allocated_bytes.value_or(0), numbers.asked_bytes) <=
                            numbers.limit_bytes.value_or(UINT64_MAX);
  return has_room ? std::nullopt : std::optional(Verdict::kShortage);
}

}  // namespace

void judge(OomMessage& message) {
  if (is_pytorch_device(message.writer)) {
    judge_pytorch(message);
  } else if (message.writer == Writer::kPyTorchMps) {
    judge_mps(message);
  } else if (message.writer == Writer::kVllm) {
    judge_vllm(message);
  } else if (message.writer == Writer::kJax) {
    judge_jax(message);
  } else if (message.writer == Writer::kKernel) {
    judge_kernel(message);
  } else {
    message.remedies = remedies_of(message);
    message.verdict = verdict_of(message);
  }
  const bool has_said =
      !message.remedies.empty() && message.remedies.front().kind == RemedyKind::kCheckSize;
  if (is_no_real_size(message.numbers.asked_bytes) && !has_said) {
    message.remedies.insert(message.remedies.begin(), {.kind = RemedyKind::kCheckSize});
  }
}

}  // namespace headroom::diagnose::internal
