// Every out-of-memory text: who wrote it, what its numbers say, which process is ours, and which
// remedies exist for that writer and version. Values only; `cli/doctor/doctor_message.cpp` has the
// words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/memory/account.h"
#include "headroom/memory/config.h"
#include "headroom/memory/parse_pytorch_message.h"

namespace headroom::diagnose {

enum class Writer : std::uint8_t {
  kPyTorchCuda,
  kPyTorchHip,
  kPyTorchXpu,
  kPyTorchNpu,
  kPyTorchOther,  // of a vendor's plug-in: MUSA, MLU
  kPyTorchMps,
  kPyTorchCpu,
  kCudaRuntime,
  kHipRuntime,
  kCublas,
  kCudnn,
  kCudaLibrary,  // cuSOLVER, cuSPARSE, cuFFT
  kNccl,
  kCupy,
  kJax,
  kTensorFlow,
  kVllm,
  kKernel,  // its OOM killer
  kCpp,     // std::bad_alloc
  kPython,  // MemoryError, errno 12
  kNumpy,
  kSharedMemory,  // of a DataLoader
  kKilled,        // by signal 9, for whatever reason
  kOnnxRuntime,
  kTensorRt,
  kLlamaCpp,  // ggml, so ollama too
  kRmm,       // RAPIDS
  kPaddle,
  kMetal,  // Apple's driver, as ggml and MLX report it
  kSglang,
  kRay,         // its memory monitor, which ends workers
  kGpuRuntime,  // SYCL, OpenCL, Vulkan, DirectML, Gaudi
  kHeadroom,    // our own allocator's report: OutOfMemory::what()
};

inline constexpr std::size_t kWriters = static_cast<std::size_t>(Writer::kHeadroom) + 1;

// As `--json` has it: `pytorch_cuda`, `cublas`, `kernel`.
[[nodiscard]] std::string_view to_string(Writer writer) noexcept;

// Of PyTorch, both ends included; an open end is whatever is newest.
struct VersionRange {
  memory::PyTorchVersion from{};
  std::optional<memory::PyTorchVersion> to{};

  friend bool operator==(const VersionRange&, const VersionRange&) = default;
};

// Which of the processes in the text is the one that failed.
enum class OwnProcess : std::uint8_t {
  kNotListed,     // none of them
  kNamed,         // "this process has"
  kByArithmetic,  // it can be no other: the card would not hold both
  kMaybe,         // one of `own_candidates`, or none
};

enum class RemedyKind : std::uint8_t {
  kExpandableSegments,
  kMaxSplitSize,
  kUpgradePyTorch,  // to 2.1, for expandable segments
  kRaiseLimit,
  kEndOtherProcesses,
  kFindOwnProcess,  // before anything is ended
  kUseLess,         // a smaller batch, checkpointing, a larger card
  kEmptyCache,      // of MPS or XPU
  kMpsWatermark,
  kLeaveRoom,    // PyTorch's cache took what a library needs
  kSeeWhoHolds,  // nvidia-smi, rocm-smi
  kNcclBuffers,
  kXlaFraction,
  kXlaPreallocation,
  kTensorFlowGrowth,
  kVllmRaiseShare,
  kVllmLowerShare,
  kVllmShorterContext,
  kHostMemory,  // more of it, or fewer workers
  kContainerLimit,
  kSharedMemorySize,
  kKernelLog,  // dmesg says whether it was the OOM killer
  kCheckSize,  // no machine has that
  kOnnxArena,
  kTensorRtWorkspace,
  kFewerLayers,  // of llama.cpp, on the GPU
  kRmmPool,
  kSglangShare,
  kRayThreshold,
  kOwnReport,  // the report of headroom's allocator has its own
};

[[nodiscard]] std::string_view to_string(RemedyKind kind) noexcept;

struct MessageRemedy {
  RemedyKind kind = RemedyKind::kUseLess;
  std::uint64_t gain_bytes = 0;  // an upper bound; 0 where the text does not say
  bool is_enough = false;        // for this request, by itself

  friend bool operator==(const MessageRemedy&, const MessageRemedy&) = default;
};

struct OomMessage {
  Writer writer = Writer::kPyTorchCuda;
  std::optional<VersionRange> versions{};  // of PyTorch, where its format tells
  // The variable that such a program reads its settings from; empty where none exists.
  std::string_view settings_variable{};
  // The numbers; 0 or unset where the text has none. For MPS the limit is "max allowed", for the
  // kernel `this_process_bytes` is what the process had in memory, for vLLM the limit is its share.
  memory::PyTorchMessage numbers{};
  std::uint64_t other_bytes = 0;       // MPS: of this process, outside of PyTorch's allocator
  std::optional<std::uint64_t> pid{};  // of the process that was killed
  bool is_container_limit = false;     // of a cgroup, not of the machine
  bool is_warm_up = false;    // of vLLM: outside its share, when it tries its largest batch
  bool is_host = false;       // main memory, by a writer that is mostly about a device
  bool is_cuda_pool = false;  // of PyTorch under cudaMallocAsync, which does not say what is cached
  OwnProcess own = OwnProcess::kNotListed;
  std::vector<std::uint64_t> own_candidates{};  // pids: one if known
  bool exceeds_card = false;  // more reserved than the card has: lent by the driver, or misread
  bool is_larger_than_card = false;  // the request alone
  // Of a text that was cut: the words of its first number that is missing, such as `is free`.
  std::string_view missing_part{};
  // Neither PyTorch's nor free, where no line says which process holds it; 0 where it is little.
  std::uint64_t unexplained_bytes = 0;
  // The log shows that the program was started with these settings.
  bool sets_expandable_segments = false;
  bool sets_max_split_size = false;
  std::optional<memory::Verdict> verdict{};  // unset: the numbers do not tell
  std::vector<MessageRemedy> remedies{};     // most promising first
  std::size_t count = 1;                     // how often this very message is in the text
  std::vector<std::string> speakers{};       // the ranks or workers that wrote it, if lines say
};

struct OomLog {
  std::vector<OomMessage> messages{};  // distinct ones, in the order of their last occurrence
  std::size_t count = 0;               // of all
};

// All messages of a text, whatever surrounds them. An error is one sentence: there is none. The
// release of PyTorch, where the reader knows it, narrows what the formats leave open.
[[nodiscard]] Result<OomLog, std::string> read_oom_log(
    std::string_view text, const std::optional<memory::PyTorchVersion>& version = std::nullopt);

// Whether that release of PyTorch may have written the message.
[[nodiscard]] bool may_be_of(const OomMessage& message, const memory::PyTorchVersion& version);

[[nodiscard]] constexpr bool is_pytorch_device(Writer writer) noexcept {
  return writer <= Writer::kPyTorchOther;
}

// The account of the numbers, with our own process as ours.
[[nodiscard]] memory::Account account_of(const OomMessage& message);

}  // namespace headroom::diagnose
