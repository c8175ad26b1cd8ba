#include <algorithm>
#include <array>
#include <iterator>
#include <optional>

#include "headroom/diagnose/internal/oom_writers.h"

namespace headroom::diagnose::internal {
namespace {

struct Anchor {
  std::string_view words;  // without blanks
  Writer writer;
  Strength strength = Strength::kWhole;
};

constexpr Anchor kAnchors[] = {
    {"CUDAoutofmemory", Writer::kPyTorchCuda},
    {"HIPoutofmemory", Writer::kPyTorchHip},
    {"XPUoutofmemory", Writer::kPyTorchXpu},
    {"NPUoutofmemory", Writer::kPyTorchNpu},
    {"MPSbackendoutofmemory", Writer::kPyTorchMps},
    {"Invalidbuffersize:", Writer::kPyTorchMps},
    {"outofmemory.Tried", Writer::kPyTorchOther},
    {"Allocationondevice", Writer::kPyTorchCuda},  // under cudaMallocAsync
    {"Triedtoallocate", Writer::kPyTorchCuda},     // pasted without its beginning
    {"Torch:notenoughmemory:youtriedtoallocate", Writer::kPyTorchCpu},
    {"DefaultCPUAllocator:", Writer::kPyTorchCpu},
    {"BuynewRAM", Writer::kPyTorchCpu, Strength::kPartial},
    {"CUDAerror:outofmemory", Writer::kCudaRuntime},
    {"CUDAdrivererror:outofmemory", Writer::kCudaRuntime},
    {"CUDAruntimeerror:outofmemory", Writer::kCudaRuntime},
    {"cudaruntimeerror(2):outofmemory", Writer::kCudaRuntime},
    {"CUDAfailedwitherroroutofmemory", Writer::kCudaRuntime},
    {"cudaMallocfailed:outofmemory", Writer::kCudaRuntime},
    {"CUDA_ERROR_OUT_OF_MEMORY", Writer::kCudaRuntime},
    {"cudaErrorMemoryAllocation", Writer::kCudaRuntime},
    {"HIPerror:outofmemory", Writer::kHipRuntime},
    {"hipErrorOutOfMemory", Writer::kHipRuntime},
    {"hipErrorMemoryAllocation", Writer::kHipRuntime},
    {"HSA_STATUS_ERROR_OUT_OF_RESOURCES", Writer::kHipRuntime, Strength::kPartial},
    {"CUBLAS_STATUS_ALLOC_FAILED", Writer::kCublas},
    {"HIPBLAS_STATUS_ALLOC_FAILED", Writer::kCublas},
    {"rocblas_status_memory_error", Writer::kCublas},
    {"CUDNN_STATUS_ALLOC_FAILED", Writer::kCudnn},
    {"CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", Writer::kCudnn},
    {"CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED", Writer::kCudnn},
    {"miopenStatusAllocFailed", Writer::kCudnn},
    {"CUSOLVER_STATUS_ALLOC_FAILED", Writer::kCudaLibrary},
    {"CUSPARSE_STATUS_ALLOC_FAILED", Writer::kCudaLibrary},
    {"CUFFT_ALLOC_FAILED", Writer::kCudaLibrary},
    {"insufficientresourceswhencalling`cusparse", Writer::kCudaLibrary},
    {"Erroroutofmemoryatline", Writer::kCudaRuntime},  // bitsandbytes
    {"cudaMallocretryfailed:outofmemory", Writer::kCudaRuntime},
    {"CUDAfailure2:outofmemory", Writer::kCudaRuntime},
    {"Memoryallocationerroronworker", Writer::kCudaRuntime},  // XGBoost
    {"Cudafailure'outofmemory'", Writer::kNccl},
    {"Cudafailure2'outofmemory'", Writer::kNccl},
    {"ncclUnhandledCudaError", Writer::kNccl},  // only where "out of memory" follows
    {"FailedtoCUDAcalloc", Writer::kNccl, Strength::kPartial},
    {"FailedtoCUDAmalloc", Writer::kNccl, Strength::kPartial},
    {"FailedtoCUDAhostalloc", Writer::kNccl, Strength::kPartial},
    {"Outofmemorywhiletryingtoallocate", Writer::kJax},
    {"Failedtoallocaterequestfor", Writer::kJax},
    {"Ranoutofmemoryinmemoryspace", Writer::kJax},
    {"Attemptingtoallocate", Writer::kJax},  // on a TPU
    {"Attemptingtoreserve", Writer::kJax},
    {"Outofmemoryallocating", Writer::kCupy},  // or JAX
    {"OOMwhenallocatingtensorwithshape", Writer::kTensorFlow},
    {"ranoutofmemorytryingtoallocate", Writer::kTensorFlow, Strength::kPartial},
    {"ResourceExhaustedError:failedtoallocatememory", Writer::kTensorFlow},
    {"Failedtoallocatememoryforrequestedbufferofsize", Writer::kOnnxRuntime},
    {"issmallerthanrequestedbytesof", Writer::kOnnxRuntime},
    {"Requestedamountofmemory(", Writer::kTensorRt},
    {"RequestedamountofGPUmemory(", Writer::kTensorRt},
    {"ErrorCode2:OutOfMemory", Writer::kTensorRt, Strength::kPartial},
    {"OutOfMemoryErrorinallocate", Writer::kTensorRt, Strength::kPartial},
    {"CudaErrorinallocate:2(outofmemory)", Writer::kTensorRt, Strength::kPartial},
    {"DefaultAllocator::allocate:2(outofmemory)", Writer::kTensorRt, Strength::kPartial},
    {"CudaRuntime(outofmemory)", Writer::kTensorRt, Strength::kPartial},
    {"Userallocatorerrorallocating", Writer::kTensorRt, Strength::kPartial},
    {"failedtoallocateCUDA", Writer::kLlamaCpp, Strength::kPartial},
    {"failedtoallocateROCm", Writer::kLlamaCpp, Strength::kPartial},
    {"failedtoallocateVulkan", Writer::kLlamaCpp, Strength::kPartial},
    {"failedtoallocateMetal", Writer::kLlamaCpp, Strength::kPartial},
    {"failedtoallocateSYCL", Writer::kLlamaCpp, Strength::kPartial},
    {"unabletoallocateCUDA", Writer::kLlamaCpp, Strength::kPartial},
    {"unabletoallocatebackendbuffer", Writer::kLlamaCpp, Strength::kPartial},
    {"modelrequiresmoresystemmemory(", Writer::kLlamaCpp},  // ollama
    {"ggml_vulkan:Devicememoryallocationofsize", Writer::kLlamaCpp},
    {"kIOGPUCommandBufferCallbackErrorOutOfMemory", Writer::kMetal},
    {"[metal::malloc]Attemptingtoallocate", Writer::kMetal},
    {"OutofmemoryerroronGPU", Writer::kPaddle},
    {"Notenoughmemory.Pleasetrytoincrease--mem-fraction-static", Writer::kSglang},
    {"Prefilloutofmemory.", Writer::kSglang},
    {"Decodeoutofmemory", Writer::kSglang},
    {"duetothenoderunninglowonmemory", Writer::kRay},
    {"killedduetomemorypressure(OOM)", Writer::kRay, Strength::kPartial},
    {"CUDAoutofmemoryoccurredwhenwarmingup", Writer::kVllm},
    {"Noavailablememoryforthecacheblocks", Writer::kVllm},
    {"Freememoryondevice", Writer::kVllm},
    {"Toserveatleastonerequest", Writer::kVllm},
    {"themaximumnumberoftokensthatcanbestoredinKVcache", Writer::kVllm},
    {"Killedprocess", Writer::kKernel},
    {"Killprocess", Writer::kKernel, Strength::kPartial},
    {"oom-kill:constraint=", Writer::kKernel, Strength::kPartial},
    {"invokedoom-killer", Writer::kKernel, Strength::kPartial},
    {"oom-killevent", Writer::kKernel, Strength::kPartial},
    {"oom_killevent", Writer::kKernel, Strength::kPartial},
    {"OOMKilled", Writer::kKernel, Strength::kPartial},
    {":OutOfMemory", Writer::kKernel, Strength::kPartial},  // srun, of a task
    {"State:OUT_OF_MEMORY", Writer::kKernel, Strength::kPartial},
    {"Exceededjobmemorylimit", Writer::kKernel, Strength::kPartial},
    {"Exceededstepmemorylimit", Writer::kKernel, Strength::kPartial},
    {"exceededmemorylimit(", Writer::kKernel, Strength::kPartial},
    {"OUT_OF_ME+", Writer::kKernel, Strength::kPartial},  // sacct
    {"PBS:jobkilled:mem", Writer::kKernel, Strength::kPartial},
    {"killedbytheOOMkiller", Writer::kKernel, Strength::kPartial},  // systemd
    {"result'oom-kill'", Writer::kKernel, Strength::kPartial},
    {"duetomemorypressurefor", Writer::kKernel, Strength::kPartial},    // systemd-oomd
    {"SystemOOMencountered", Writer::kKernel, Strength::kPartial},      // kubelet
    {"hasgoneovermemorylimit", Writer::kKernel, Strength::kPartial},    // HTCondor
    {"TERM_MEMLIMIT", Writer::kKernel, Strength::kPartial},             // LSF
    {"forexceedingmemorylimits", Writer::kKernel, Strength::kPartial},  // YARN
    {"runningbeyondphysicalmemorylimits", Writer::kKernel, Strength::kPartial},
    {"Thenodewaslowonresource:memory", Writer::kKernel, Strength::kPartial},    // Kubernetes
    {"crashedafterusingallavailableRAM", Writer::kKernel, Strength::kPartial},  // Colab
    {"notebooktriedtoallocatemorememorythanisavailable", Writer::kKernel, Strength::kPartial},
    {"std::bad_alloc", Writer::kCpp},
    {"memoryallocationof", Writer::kCpp},  // Rust
    {"[WinError1455]", Writer::kPython},
    {"(oserror1455)", Writer::kPython},
    {"[WinError8]", Writer::kPython},
    {"pagingfileistoosmallforthisoperation", Writer::kPython, Strength::kPartial},
    {"Couldnotallocatetensorwith", Writer::kGpuRuntime},        // DirectML
    {"PT_DEVMEMAllocationfailedforsize", Writer::kGpuRuntime},  // Gaudi
    {"OUT_OF_DEVICE_MEMORY", Writer::kGpuRuntime},              // SYCL, Level Zero, Vulkan
    {"ErrorOutOfDeviceMemory", Writer::kGpuRuntime},
    {"MEM_OBJECT_ALLOCATION_FAILURE", Writer::kGpuRuntime},  // OpenCL
    {"PI_ERROR_OUT_OF_RESOURCES", Writer::kGpuRuntime, Strength::kPartial},
    {"UR_RESULT_ERROR_OUT_OF_RESOURCES", Writer::kGpuRuntime, Strength::kPartial},
    {"fork:Cannotallocatememory", Writer::kPython, Strength::kPartial},
    {"Unabletoallocate", Writer::kNumpy},
    {"[Errno12]", Writer::kPython},
    {"unabletommap", Writer::kPython},
    {"outofsharedmemory", Writer::kSharedMemory},
    {"unabletoallocatesharedmemory(shm)", Writer::kSharedMemory},
    {"unabletowritetofile</torch_", Writer::kSharedMemory},
    {"Errorwhilecreatingsharedmemorysegment", Writer::kSharedMemory},  // NCCL
    {"exitcode137", Writer::kKilled, Strength::kHint},
    {"exitcode:137", Writer::kKilled, Strength::kHint},
    {"exitcode=137", Writer::kKilled, Strength::kHint},
    {"exitstatus137", Writer::kKilled, Strength::kHint},
    {"returncode=-9", Writer::kKilled, Strength::kHint},
    {"exitcode:-9", Writer::kKilled, Strength::kHint},
    {"exitcode-9", Writer::kKilled, Strength::kHint},
    {"killedbysignal:Killed", Writer::kKilled, Strength::kHint},
    {"withcode137", Writer::kKilled, Strength::kHint},
    {"code:137", Writer::kKilled, Strength::kHint},
    {"Exited(137)", Writer::kKilled, Strength::kHint},
    {"(SIGKILL)", Writer::kKilled, Strength::kHint},
    {"bySIGKILL", Writer::kKilled, Strength::kHint},
    {"signalSIGKILL", Writer::kKilled, Strength::kHint},
    {"receivedSIGKILL", Writer::kKilled, Strength::kHint},
    {"ReceivedSIGKILL", Writer::kKilled, Strength::kHint},
    {"signal9(Killed)", Writer::kKilled, Strength::kHint},
    {"bysignal9", Writer::kKilled, Strength::kHint},
    {"SIGNAL:9(Killed)", Writer::kKilled, Strength::kHint},
    {"SIGKILL:9", Writer::kKilled, Strength::kHint},  // of Python's subprocess
    {"outofmemory:askedfor", Writer::kHeadroom},
};

// Characters that may stand right before the value of a field.
constexpr std::string_view kBeforeAValue = ":(['\"=)]";
constexpr std::size_t kNone = std::string_view::npos;

// The anchors by their first character, the longest first.
class Anchors {
 public:
  Anchors() {
    for (const Anchor& anchor : kAnchors) {
      by_first_[static_cast<unsigned char>(anchor.words.front())].push_back(&anchor);
    }
    for (auto& list : by_first_) {
      std::ranges::sort(
          list, std::ranges::greater{}, [](const Anchor* a) { return a->words.size(); });
    }
  }

  [[nodiscard]] const Anchor* at_start_of(std::string_view text) const {
    for (const Anchor* anchor : by_first_[static_cast<unsigned char>(text.front())]) {
      if (text.starts_with(anchor->words)) return anchor;
    }
    return nullptr;
  }

 private:
  std::array<std::vector<const Anchor*>, 256> by_first_{};
};

bool has_a_tried(Writer writer) {
  return is_pytorch_device(writer) || writer == Writer::kPyTorchMps;
}

struct Runtime {
  std::string_view words;  // in what it prints
  Writer writer;
};
constexpr Runtime kRuntimes[] = {{"cuda", Writer::kCudaRuntime},
                                 {"CUDA", Writer::kCudaRuntime},
                                 {"Cuda", Writer::kCudaRuntime},
                                 {"cuMem", Writer::kCudaRuntime},
                                 {"hipMalloc", Writer::kHipRuntime},
                                 {"hipError", Writer::kHipRuntime},
                                 {"HIP", Writer::kHipRuntime},
                                 {"sycl", Writer::kGpuRuntime},
                                 {"SYCL", Writer::kGpuRuntime},
                                 {"OpenCL", Writer::kGpuRuntime},
                                 {"ulkan", Writer::kGpuRuntime}};

// The runtime that is named last before the words.
std::optional<Writer> runtime_named_in(std::string_view before) {
  std::optional<Writer> out;
  std::size_t last = 0;
  for (const Runtime& runtime : kRuntimes) {
    const std::size_t at = before.rfind(runtime.words);
    if (at == std::string_view::npos || (out && at < last)) continue;
    out = runtime.writer;
    last = at;
  }
  return out;
}

}  // namespace

// `cudaMalloc(...): out of memory`, `cudaSuccess (2 vs. 0) out of memory`: the words end a sentence
// or a field of an error, behind the name of the runtime.
std::vector<Spot> find_hints(std::string_view text) {
  constexpr std::string_view kWords = "outofmemory";
  constexpr std::size_t kNear = 160;
  std::vector<Spot> out;
  for (std::size_t at = text.find(kWords); at != std::string_view::npos;
       at = text.find(kWords, at + 1)) {
    const std::string_view before = text.substr(at - std::min(at, kNear), std::min(at, kNear));
    const bool is_value = before.ends_with("error") ||
                          (!before.empty() && kBeforeAValue.find(before.back()) != kNone);
    const auto writer = is_value ? runtime_named_in(before) : std::nullopt;
    if (writer) out.push_back({.at = at, .writer = *writer, .strength = Strength::kHint});
  }
  return out;
}

std::vector<Spot> find_spots(std::string_view text) {
  constexpr std::string_view kTried = "Triedtoallocate";
  constexpr std::size_t kSameSentence = 300;
  const Anchors anchors;
  std::vector<Spot> out;
  bool is_open = false;  // the last message has not yet said what it tried
  for (std::size_t i = 0; i < text.size();) {
    const Anchor* anchor = anchors.at_start_of(text.substr(i));
    if (anchor == nullptr) {
      ++i;
      continue;
    }
    const bool is_tried = anchor->words == kTried;
    const bool goes_on = is_tried && is_open && !out.empty() && i - out.back().at < kSameSentence;
    if (!goes_on) {
      out.push_back({.at = i, .writer = anchor->writer, .strength = anchor->strength});
    }
    is_open = !anchor->words.ends_with("Tried") && !is_tried && has_a_tried(anchor->writer);
    i += anchor->words.size();
  }
  return out;
}

}  // namespace headroom::diagnose::internal
