#include "cli/doctor/message_text.h"

#include <algorithm>

#include <fmt/format.h>

#include "headroom/base/bytes.h"
#include "headroom/base/checked.h"

namespace headroom::cli {
namespace {

using diagnose::MessageRemedy;
using diagnose::OomMessage;
using diagnose::OwnProcess;
using diagnose::RemedyKind;
using diagnose::Writer;

std::string version_text(const memory::PyTorchVersion& version) {
  return fmt::format("{}.{}", version.major, version.minor);
}

bool may_be_own(const OomMessage& message, std::uint64_t pid) {
  return std::ranges::find(message.own_candidates, pid) != message.own_candidates.end();
}

std::string pids_text(const OomMessage& message) {
  std::string out;
  for (const std::uint64_t pid : message.own_candidates) {
    out += (out.empty() ? "" : ", ") + std::to_string(pid);
  }
  return out;
}

std::string process_text(const OomMessage& message, std::uint64_t pid) {
  if (!may_be_own(message, pid)) return fmt::format("held by process {}, not yours", pid);
  if (message.own == OwnProcess::kByArithmetic) {
    return fmt::format(
        "held by process {}, which is this program: it holds what PyTorch reserved, and the card "
        "has no room for that twice (in a container the driver numbers processes differently)",
        pid);
  }
  return fmt::format("held by process {}, which may be this program itself", pid);
}

// The size in the message is the segment's; the tensor was smaller or as large.
std::string asked_text(const OomMessage& message) {
  const std::uint64_t asked = message.numbers.asked_bytes;
  if (message.writer == Writer::kOnnxRuntime) {
    return "requested by onnxruntime's arena, which grows in powers of two unless told otherwise";
  }
  if (message.writer == Writer::kVllm) return "needed for the key-value cache of one request";
  if (message.writer == Writer::kTensorFlow)
    return "requested: the tensor, computed from its shape and type";
  if (message.numbers.total_bytes && message.writer == Writer::kJax) {
    return "needed by the compiled program";
  }
  if (!is_pytorch_device(message.writer)) return "requested";
  if (message.is_larger_than_card) return "requested from the device: more than the whole card has";
  constexpr const char* kOf = "requested from the device. ";
  if (asked == memory::kSmallSegmentBytes) {
    return std::string(kOf) +
           "PyTorch takes 2 MiB for any tensor up to 1 MiB: the tensor may be tiny, and the "
           "device is full";
  }
  if (asked == memory::kLargeSegmentBytes) {
    return std::string(kOf) + "PyTorch takes 20 MiB for any tensor of 1 to 10 MiB";
  }
  return std::string(kOf) + "It is the tensor, rounded up to a multiple of 2 MiB";
}

std::string limit_text(Writer writer) {
  switch (writer) {
    case Writer::kPyTorchMps:
      return "the limit: PYTORCH_MPS_HIGH_WATERMARK_RATIO (1.7 unless set) times what Metal "
             "recommends";
    case Writer::kVllm:
      return "the share of the card that vLLM wants at its start (gpu_memory_utilization)";
    case Writer::kMetal:
      return "the largest buffer that Metal makes on this machine";
    case Writer::kCupy:
      return "the limit, set by CUPY_GPU_MEMORY_LIMIT or set_limit";
    default:
      return "the limit, set by set_per_process_memory_fraction or by the settings";
  }
}

std::string end_text(const OomMessage& message) {
  const device::ProcessMemory* largest = nullptr;
  for (const device::ProcessMemory& process : message.numbers.other_processes) {
    if (may_be_own(message, static_cast<std::uint64_t>(process.pid))) continue;
    if (largest == nullptr || process.used_bytes > largest->used_bytes) largest = &process;
  }
  if (largest == nullptr) return "end other processes on the device";
  return fmt::format("end other processes on the device: process {} has {}",
                     largest->pid,
                     format_bytes(largest->used_bytes));
}

std::string limit_remedy_text(const OomMessage& message, const MessageRemedy& remedy) {
  if (!message.numbers.limit_bytes) return "raise the fraction (set_per_process_memory_fraction)";
  const std::string from = "raise the limit of " + format_bytes(*message.numbers.limit_bytes);
  if (!remedy.is_enough) return from + ", as far as the device has free memory";
  const std::uint64_t least =
      saturating_add(message.numbers.reserved_bytes(), message.numbers.asked_bytes);
  return fmt::format(
      "{} to at least {} ({} bytes)", from, format_bytes(least), format_count(least));
}

std::string expandable_text(const OomMessage& message) {
  std::string out = fmt::format(
      "set {}=expandable_segments:True: cached memory beside live blocks becomes usable",
      message.settings_variable);
  if (message.writer == Writer::kPyTorchHip) {
    out += " (on ROCm 7 and PyTorch 2.12 or later; before, it is ignored with a warning)";
  }
  return out;
}

std::string use_less_text(Writer writer) {
  if (writer == Writer::kJax || writer == Writer::kTensorFlow) {
    return "use less memory: a smaller batch, or compute activations again (rematerialisation); or "
           "use a larger device";
  }
  if (writer == Writer::kPyTorchMps || writer == Writer::kMetal)
    return "use less memory: a smaller batch, a smaller model or 16-bit numbers";
  if (writer == Writer::kOnnxRuntime || writer == Writer::kTensorRt || writer == Writer::kSglang)
    return "use less memory: smaller inputs, a smaller batch or numbers of fewer bits; or use a "
           "larger device";
  if (writer == Writer::kRmm)
    return "use less memory: process the data in smaller pieces, or use a larger device";
  return "use less memory: a smaller batch, checkpointed activations or 16-bit numbers; or use a "
         "larger device";
}

std::string vllm_share_text(const OomMessage& message) {
  const auto& numbers = message.numbers;
  if (!numbers.free_bytes || !numbers.total_bytes || *numbers.total_bytes == 0) {
    return "lower gpu_memory_utilization";
  }
  const double share =
      static_cast<double>(*numbers.free_bytes) / static_cast<double>(*numbers.total_bytes);
  return fmt::format("lower gpu_memory_utilization to {:.2f}: that share of the card is free",
                     std::max(0.0, static_cast<double>(static_cast<int>(share * 100)) / 100));
}

std::string host_text(const OomMessage& message) {
  std::string out = "this is about main memory, not the GPU's: ";
  if (message.writer == Writer::kPyTorchCpu || message.writer == Writer::kNumpy) {
    return out +
           "use a smaller array or numbers of fewer bits, load it in pieces, or use a machine with "
           "more main memory";
  }
  return out +
         "use fewer DataLoader workers and prefetched batches, load weights in pieces or map them "
         "(mmap), or use a machine with more main memory";
}

std::string vendor_tool(Writer writer) {
  switch (writer) {
    case Writer::kPyTorchHip:
    case Writer::kHipRuntime:
      return "rocm-smi";
    case Writer::kPyTorchXpu:
      return "xpu-smi";
    case Writer::kPyTorchNpu:
      return "npu-smi info";
    case Writer::kPyTorchOther:
    case Writer::kGpuRuntime:
      return "the vendor's tool";
    default:
      return "nvidia-smi";
  }
}

std::string total_text(const OomMessage& message) {
  if (message.writer == Writer::kRay) return "the main memory of the machine";
  if (message.writer == Writer::kJax) return "the memory of the device";
  return fmt::format("the memory of GPU {}", message.numbers.device);
}

}  // namespace

std::string version_text(const OomMessage& message) {
  if (!message.versions) return {};
  std::string from = version_text(message.versions->from);
  if (!message.versions->to) return from + " or later";
  if (*message.versions->to == message.versions->from) return from;
  return from + " to " + version_text(*message.versions->to);
}

std::string writer_text(const OomMessage& message) {
  const std::string version = version_text(message);
  const std::string pytorch = "PyTorch" + (version.empty() ? "" : " " + version);
  switch (message.writer) {
    case Writer::kPyTorchCuda:
      return pytorch +
             (message.is_cuda_pool ? ", on CUDA, with backend:cudaMallocAsync" : ", on CUDA");
    case Writer::kPyTorchHip:
      return pytorch + ", on ROCm (HIP)";
    case Writer::kPyTorchXpu:
      return pytorch + ", on an Intel GPU (XPU)";
    case Writer::kPyTorchNpu:
      return pytorch + ", on an Ascend NPU";
    case Writer::kPyTorchOther:
      return pytorch + ", on a device of a vendor's plug-in";
    case Writer::kPyTorchMps:
      return pytorch + ", on an Apple GPU (MPS)";
    case Writer::kPyTorchCpu:
      return "PyTorch, about main memory";
    case Writer::kCudaRuntime:
      return "the CUDA runtime or driver";
    case Writer::kHipRuntime:
      return "the HIP runtime";
    case Writer::kCublas:
      return "cuBLAS (or its counterpart on ROCm), which allocates outside PyTorch";
    case Writer::kCudnn:
      return "cuDNN (or MIOpen), which allocates outside PyTorch";
    case Writer::kCudaLibrary:
      return "a CUDA library, which allocates outside PyTorch";
    case Writer::kNccl:
      return "NCCL, whose buffers are outside PyTorch's memory";
    case Writer::kCupy:
      return "CuPy";
    case Writer::kJax:
      return "XLA, as JAX uses it";
    case Writer::kTensorFlow:
      return "TensorFlow";
    case Writer::kVllm:
      return "vLLM";
    case Writer::kKernel:
      return "the kernel's out-of-memory killer, or a program that watches it";
    case Writer::kCpp:
      return "a program in C++ or Rust, about main memory";
    case Writer::kPython:
      return "Python, about main memory";
    case Writer::kNumpy:
      return "NumPy, about main memory";
    case Writer::kSharedMemory:
      return "PyTorch's DataLoader, about shared memory";
    case Writer::kKilled:
      return "a shell or launcher: the program was killed (signal 9)";
    case Writer::kOnnxRuntime:
      return "onnxruntime's arena, of main memory or of a GPU";
    case Writer::kTensorRt:
      return "TensorRT, whose memory is outside PyTorch's";
    case Writer::kLlamaCpp:
      return "llama.cpp (ggml), which ollama uses too";
    case Writer::kRmm:
      return "RMM, RAPIDS' allocator, about the GPU's memory";
    case Writer::kPaddle:
      return "PaddlePaddle";
    case Writer::kMetal:
      return "Metal, Apple's GPU driver";
    case Writer::kSglang:
      return "SGLang";
    case Writer::kRay:
      return "Ray's memory monitor, about main memory";
    case Writer::kGpuRuntime:
      return "the runtime or driver of a GPU (SYCL, OpenCL, Vulkan, DirectML, Gaudi)";
    case Writer::kHeadroom:
      return "headroom's own allocator";
  }
  return "?";
}

std::string verdict_text(const OomMessage& message) {
  if (message.is_larger_than_card) {
    return fmt::format("shortage: the request of {} is larger than the whole card, which has {}",
                       format_bytes(message.numbers.asked_bytes),
                       format_bytes(*message.numbers.total_bytes));
  }
  if (message.writer == Writer::kKilled) {
    return "The text does not say why: the kernel's out-of-memory killer is the usual cause, but "
           "any process may send signal 9";
  }
  if (message.writer == Writer::kRay) {
    return "shortage: main memory ran low, and Ray ended a worker before the kernel would have";
  }
  if (message.is_host && message.writer == Writer::kLlamaCpp) {
    return "shortage: the model needs more main memory than is free";
  }
  if (message.is_host) return "shortage: main memory ran out: this tensor is not on a GPU";
  if (message.writer == Writer::kKernel) {
    return message.is_container_limit
               ? "shortage: main memory ran out: the container or job reached its limit"
               : "shortage: main memory ran out";
  }
  if (!message.verdict && !message.missing_part.empty()) {
    return fmt::format(
        "The text is cut: the number beside '{}' is missing, which decides whether memory was "
        "short "
        "or fragmented. Paste the whole message",
        message.missing_part);
  }
  if (!message.verdict) {
    return "The message does not say whether memory was short or fragmented: it has no numbers for "
           "that";
  }
  if (message.verdict == memory::Verdict::kFragmentation) {
    return "fragmentation: enough memory is free, but not in one piece";
  }
  if (message.writer == Writer::kVllm && message.numbers.limit_bytes) {
    return "shortage: at the start, less memory is free than vLLM was told to use";
  }
  std::string out = "shortage: the memory in use and the memory requested are more than there is";
  if (!message.missing_part.empty()) {
    out +=
        fmt::format(" (the text is cut: the number beside '{}' is missing, but cannot change that)",
                    message.missing_part);
  }
  return out;
}

std::vector<ExplainedNumber> number_text(const OomMessage& message) {
  const memory::PyTorchMessage& numbers = message.numbers;
  std::vector<ExplainedNumber> out;
  const auto add = [&](const std::optional<std::uint64_t>& size, std::string meaning) {
    if (size) out.push_back({.size_bytes = *size, .meaning = std::move(meaning)});
  };
  if (numbers.asked_bytes != 0) add(numbers.asked_bytes, asked_text(message));
  add(numbers.total_bytes, total_text(message));
  add(numbers.free_bytes,
      is_pytorch_device(message.writer)
          ? "free on the card, after PyTorch gave back all that it could"
          : "free");
  add(numbers.this_process_bytes,
      message.writer == Writer::kKernel || message.writer == Writer::kRay
          ? "of main memory were used by the process that was killed"
          : "held by this process: PyTorch's reserved memory, the CUDA context, libraries");
  for (const device::ProcessMemory& process : numbers.other_processes) {
    add(process.used_bytes, process_text(message, static_cast<std::uint64_t>(process.pid)));
  }
  add(numbers.limit_bytes, limit_text(message.writer));
  add(numbers.allocated_bytes,
      message.writer == Writer::kPyTorchMps ? "allocated by PyTorch, its cache included"
                                            : "allocated: live tensors, each rounded up");
  if (message.writer == Writer::kPyTorchMps && numbers.limit_bytes) {
    add(message.other_bytes,
        "held by this process in Metal, outside of PyTorch's allocator: graphs, other libraries");
  }
  add(numbers.private_pool_bytes,
      "of that, in private pools (CUDA graphs): they keep it, and under no setting can another "
      "tensor use it");
  add(numbers.unallocated_bytes,
      "reserved but unallocated: cached, in pieces stuck beside live tensors. None was large "
      "enough, and none could be given back");
  return out;
}

std::string remedy_text(const OomMessage& message, const MessageRemedy& remedy) {
  switch (remedy.kind) {
    case RemedyKind::kExpandableSegments:
      return expandable_text(message);
    case RemedyKind::kMaxSplitSize:
      return fmt::format("set {}=max_split_size_mb:256: blocks larger than 256 MiB are not split",
                         message.settings_variable);
    case RemedyKind::kUpgradePyTorch:
      return "upgrade PyTorch to 2.1 or later, which has expandable segments: this release refuses "
             "them";
    case RemedyKind::kRaiseLimit:
      return limit_remedy_text(message, remedy);
    case RemedyKind::kEndOtherProcesses:
      return end_text(message);
    case RemedyKind::kFindOwnProcess:
      return fmt::format(
          "{} {} may be this program itself: find out before you end any; in a container the "
          "message does not say",
          message.own_candidates.size() == 1 ? "process" : "processes",
          pids_text(message));
    case RemedyKind::kUseLess:
      return use_less_text(message.writer);
    case RemedyKind::kEmptyCache:
      return message.writer == Writer::kPyTorchXpu ? "call torch.xpu.empty_cache()"
                                                   : "call torch.mps.empty_cache() between steps";
    case RemedyKind::kMpsWatermark:
      return "set PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0: this removes the limit, and the machine "
             "may "
             "swap or hang";
    case RemedyKind::kLeaveRoom:
      return "leave room for it beside PyTorch's cache: call "
             "torch.cuda.set_per_process_memory_fraction(0.9) at the start, or "
             "torch.cuda.empty_cache() before the call that failed; create the library's handle "
             "early";
    case RemedyKind::kSeeWhoHolds:
      if (message.unexplained_bytes > 0) {
        return fmt::format(
            "run {}: {} of the card is neither PyTorch's nor free, and the text does not say whose "
            "it is; another process or a library may hold it",
            vendor_tool(message.writer),
            format_bytes(message.unexplained_bytes));
      }
      return fmt::format("run {} to see which processes hold the memory of the device",
                         vendor_tool(message.writer));
    case RemedyKind::kNcclBuffers:
      return "lower NCCL_BUFFSIZE or NCCL_MAX_NCHANNELS, or use fewer communicators";
    case RemedyKind::kXlaFraction:
      return "set XLA_PYTHON_CLIENT_MEM_FRACTION: JAX takes 0.75 of the device unless it is set";
    case RemedyKind::kXlaPreallocation:
      return "set XLA_PYTHON_CLIENT_PREALLOCATE=false if other programs share the device";
    case RemedyKind::kTensorFlowGrowth:
      return "set TF_FORCE_GPU_ALLOW_GROWTH=true if other programs share the device, or "
             "TF_GPU_ALLOCATOR=cuda_malloc_async against fragmentation";
    case RemedyKind::kVllmRaiseShare:
      return "raise gpu_memory_utilization, if the rest of the card is free";
    case RemedyKind::kVllmLowerShare:
      return vllm_share_text(message);
    case RemedyKind::kVllmShorterContext:
      return "lower max_model_len or max_num_seqs, quantise the model, or raise "
             "tensor_parallel_size";
    case RemedyKind::kHostMemory:
      return host_text(message);
    case RemedyKind::kContainerLimit:
      return "raise the limit of the container or job (docker --memory, resources.limits.memory, "
             "sbatch --mem)";
    case RemedyKind::kSharedMemorySize:
      return "raise shared memory (docker --shm-size=8g or --ipc=host), or use fewer DataLoader "
             "workers";
    case RemedyKind::kKernelLog:
      return "check whether it was the kernel: dmesg -T | grep -i 'killed process'";
    case RemedyKind::kOwnReport:
      return "follow the numbered lines at the end of that report, which have its numbers; or "
             "record the program (headroom.torch.record, or trace::History), and run headroom "
             "doctor on the recording";
    case RemedyKind::kCheckSize:
      if (message.is_larger_than_card) {
        return "check how the size is computed: no setting makes room for a tensor that is "
               "larger than the card";
      }
      return "check how the size is computed: no machine has that much; often a negative or "
             "uninitialised number is the cause";
    case RemedyKind::kOnnxArena:
      return "have the arena take no more than is asked for: "
             "arena_extend_strategy=kSameAsRequested, "
             "and gpu_mem_limit beside other programs (options of the CUDA execution provider)";
    case RemedyKind::kTensorRtWorkspace:
      return "lower the workspace (IBuilderConfig::setMemoryPoolLimit, trtexec "
             "--memPoolSize=workspace:1024): a tactic that is skipped costs speed, not the engine";
    case RemedyKind::kFewerLayers:
      return "put fewer layers on the GPU (-ngl), shorten the context (-c), quantise its cache "
             "(--cache-type-k q8_0) or split over more GPUs (--tensor-split)";
    case RemedyKind::kRmmPool:
      return "let the pool grow further (maximum_pool_size), or let it spill: managed memory "
             "(rmm.reinitialize(managed_memory=True)), CUDF_SPILL=on";
    case RemedyKind::kSglangShare:
      return "raise --mem-fraction-static, if the rest of the card is free";
    case RemedyKind::kRayThreshold:
      return "give each task more CPUs, so that fewer run at once; RAY_memory_usage_threshold "
             "moves "
             "the threshold";
  }
  return "?";
}

std::string record_text(const OomMessage& message) {
  const bool is_pytorch =
      message.writer == Writer::kPyTorchCuda || message.writer == Writer::kPyTorchHip;
  if (is_pytorch || (message.writer >= Writer::kCudaRuntime && message.writer <= Writer::kNccl)) {
    return std::string("\nThe message does not say which tensors hold the memory. To find out") +
           (is_pytorch ? "" : ", in PyTorch") +
           ", record:\n\n"
           "    torch.cuda.memory._record_memory_history(max_entries=1_000_000)\n"
           "    ...                         # your program, in try: ... finally:\n"
           "    torch.cuda.memory._dump_snapshot(\"snapshot.pickle\")\n\n";
  }
  if (message.writer == Writer::kJax) {
    return "\nTo find out who holds the memory, record a profile, which pprof reads:\n\n"
           "    jax.profiler.save_device_memory_profile(\"memory.prof\")\n";
  }
  return {};
}

}  // namespace headroom::cli
