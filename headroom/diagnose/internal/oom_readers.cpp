// The numbers of each writer. Texts are squeezed: they have no blanks.
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "headroom/diagnose/internal/oom_writers.h"
#include "headroom/diagnose/internal/squeezed.h"

namespace headroom::diagnose::internal {
namespace {

// --- Other libraries -----------------------------------------------------------------------------

// `shape[32,512,1024]andtypefloat`: TensorFlow does not say how much that is.
std::uint64_t tensor_bytes(std::string_view text) {
  const std::size_t from = text.find("shape[");
  const std::size_t end = from == std::string_view::npos ? from : text.find(']', from);
  if (end == std::string_view::npos) return 0;
  struct Type {
    std::string_view name;
    std::uint64_t bytes;
  };
  constexpr std::array<Type, 13> kTypes{Type{"float", 4},
                                        Type{"double", 8},
                                        Type{"half", 2},
                                        Type{"bfloat16", 2},
                                        Type{"int64", 8},
                                        Type{"int32", 4},
                                        Type{"int16", 2},
                                        Type{"int8", 1},
                                        Type{"uint8", 1},
                                        Type{"bool", 1},
                                        Type{"complex64", 8},
                                        Type{"complex128", 16},
                                        Type{"uint32", 4}};
  std::uint64_t bytes = 0;
  constexpr std::string_view kType = "andtype";
  const std::size_t at = text.find(kType, end);
  if (at == std::string_view::npos) return 0;
  for (const Type& type : kTypes) {
    if (text.substr(at + kType.size()).starts_with(type.name)) bytes = type.bytes;
  }
  for (std::string_view rest = text.substr(from + 6, end - from - 6); !rest.empty();) {
    const auto size = leading_number(rest);
    if (!size) return 0;
    const bool is_absurd = *size != 0 && bytes > device::kAbsurdSize / *size;
    bytes = is_absurd ? device::kAbsurdSize : bytes * *size;
    const std::size_t comma = rest.find(',');
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return bytes;
}

std::optional<ReadMessage> read_tensorflow(const Spot& spot,
                                           std::string_view before,
                                           std::string_view text) {
  ReadMessage out = plain_message(spot);
  if (text.starts_with("ResourceExhaustedError")) return out;
  if (text.starts_with("OOM")) {
    out.message.numbers.asked_bytes = tensor_bytes(text);
    const std::string_view on = text.substr(0, std::min<std::size_t>(text.size(), 400));
    out.message.numbers.device = static_cast<int>(
        std::min<std::uint64_t>(number_behind(on, "device:GPU:").value_or(0), 1024));
    out.message.is_host = has(on, "device:CPU:");
    return out;
  }
  // The allocator is the same in JAX; where the line came from says whose it was.
  if (has(text.substr(0, 300), "Thecallerindicatesthatthisisnotafailure")) return std::nullopt;
  const std::string_view near = last_of(before, 200);
  if (has(near, "external/xla") || has(near, "external/tsl") || has(near, "xla/tsl")) {
    out.message.writer = Writer::kJax;
  }
  out.message.numbers.asked_bytes = size_behind(text, "ranoutofmemorytryingtoallocate").value_or(0);
  return out;
}

std::optional<ReadMessage> read_jax(const Spot& spot, std::string_view text) {
  ReadMessage out = plain_message(spot);
  memory::PyTorchMessage& numbers = out.message.numbers;
  for (const std::string_view words : {"Outofmemorywhiletryingtoallocate",
                                       "Failedtoallocaterequestfor",
                                       "Outofmemoryallocating"}) {
    if (text.starts_with(words)) numbers.asked_bytes = size_behind(text, words).value_or(0);
  }
  // A TPU: `Attempting to allocate 1.00G. That was not possible. There are 672.85M free.`
  for (const std::string_view words : {"Attemptingtoallocate", "Attemptingtoreserve"}) {
    if (!text.starts_with(words)) continue;
    if (!has(text.substr(0, 120), "Thatwasnotpossible")) return std::nullopt;
    numbers.asked_bytes = size_behind(text, words).value_or(0);
    numbers.free_bytes = size_behind(text, "Thereare");
  }
  // A TPU: `Used 20.36G of 15.48G hbm`. The whole program is what was asked for.
  if (text.starts_with("Ranout")) {
    numbers.asked_bytes = size_behind(text, "Used").value_or(0);
    const std::size_t used = text.find("Used");
    if (used != std::string_view::npos) numbers.total_bytes = size_behind(text.substr(used), "of");
  }
  return out;
}

ReadMessage read_cupy_or_jax(const Spot& spot, std::string_view before, std::string_view text) {
  const bool is_jax = before.ends_with("RESOURCE_EXHAUSTED:") || before.ends_with("exhausted:");
  ReadMessage out = *read_jax(spot, text);
  out.message.writer = is_jax ? Writer::kJax : Writer::kCupy;
  out.message.numbers.allocated_bytes = size_behind(text, "allocatedsofar:");
  out.message.numbers.limit_bytes = size_behind(text, "limitsetto:");
  return out;
}

// `Freememoryondevicecuda:0(31.44/47.38GiB)onstartup...utilization(0.95,45.01GiB)`.
void read_vllm_start(std::string_view text, memory::PyTorchMessage& numbers) {
  const std::size_t bracket = text.find('(');
  const std::size_t slash = text.find('/', bracket);
  const std::size_t end = text.find(')', bracket);
  if (bracket == std::string_view::npos || slash == std::string_view::npos || slash > end) return;
  const auto total = leading_size(text.substr(slash + 1));
  if (!total) return;
  const std::string unit(text.substr(end - 3, 3));
  const auto free = leading_size(std::string(text.substr(bracket + 1, slash - bracket - 1)) + unit);
  numbers.total_bytes = total->bytes;
  if (free) numbers.free_bytes = free->bytes;
  constexpr std::string_view kShare = "utilization(";
  const std::size_t share = text.find(kShare, end);
  const std::size_t comma = text.find(',', share);
  if (share == std::string_view::npos || comma == std::string_view::npos) return;
  if (const auto size = leading_size(text.substr(comma + 1))) numbers.limit_bytes = size->bytes;
}

std::optional<ReadMessage> read_vllm(const Spot& spot, std::string_view text) {
  ReadMessage out = plain_message(spot);
  memory::PyTorchMessage& numbers = out.message.numbers;
  out.message.is_warm_up = text.starts_with("CUDAoutofmemory");
  if (text.starts_with("Freememory")) {
    if (!has(text, "onstartupislessthan")) return std::nullopt;
    read_vllm_start(text, numbers);
  }
  if (text.starts_with("Toserve")) {
    const std::size_t need = text.find("KVcacheisneeded");
    const std::size_t from = text.substr(0, need).find_last_of("(,");
    if (need != std::string_view::npos && from != std::string_view::npos) {
      const auto size = leading_size(text.substr(from + 1));
      if (size) numbers.asked_bytes = size->bytes;
    }
    numbers.free_bytes = size_behind(text, "availableKVcachememory(");
  }
  return out;
}

// --- The machine ---------------------------------------------------------------------------------

std::optional<ReadMessage> read_kernel(const Spot& spot,
                                       std::string_view before,
                                       std::string_view text) {
  ReadMessage out = plain_message(spot);
  OomMessage& message = out.message;
  for (const std::string_view words : {"Killedprocess", "Killprocess", ",pid=", ",pid:"}) {
    if (!message.pid) message.pid = number_behind(text.substr(0, 600), words);
  }
  message.numbers.total_bytes = std::nullopt;
  message.numbers.this_process_bytes = size_behind(text, "anon-rss:");
  // Lines before may say it: what was decided, or an older kernel's announcement.
  const std::string_view near = last_of(before, 600);
  constexpr std::array<std::string_view, 13> kOfJobs{"hasgoneover",
                                                     "exceededmemorylimit",
                                                     "OUT_OF_ME+",
                                                     "PBS:",
                                                     "OOMKilled",
                                                     "oom-killevent",
                                                     "oom_killevent",
                                                     ":OutOfMemory",
                                                     "State:OUT_OF_MEMORY",
                                                     "Exceeded",
                                                     "TERM_MEMLIMIT",
                                                     "forexceedingmemorylimits",
                                                     "runningbeyondphysical"};
  message.is_container_limit =
      has(near, "Memorycgroupoutofmemory:") || has(near, "CONSTRAINT_MEMCG") ||
      has(text.substr(0, 200), "CONSTRAINT_MEMCG") ||
      std::ranges::any_of(kOfJobs, [&](std::string_view words) { return text.starts_with(words); });
  // `"OOMKilled": false` of docker inspect.
  if (text.starts_with("OOMKilled") && has(text.substr(0, 18), "false")) return std::nullopt;
  if (text.starts_with(":OutOfMemory") && !has(last_of(before, 20), "task")) return std::nullopt;
  // Somebody's script may say `Killed process 12`; the kernel says why.
  const bool is_kernel = before.ends_with("utofmemory:") || has(text.substr(0, 200), "total-vm:");
  if (spot.strength == Strength::kWhole && !is_kernel) {
    message.writer = Writer::kKilled;
    out.strength = Strength::kHint;
  }
  return out;
}

std::optional<ReadMessage> read_host(const Spot& spot, std::string_view text) {
  ReadMessage out = plain_message(spot);
  memory::PyTorchMessage& numbers = out.message.numbers;
  if (spot.writer == Writer::kPyTorchCpu) {
    numbers.asked_bytes = size_behind(text, "youtriedtoallocate").value_or(0);
    if (numbers.asked_bytes == 0) out.strength = Strength::kPartial;
  }
  if (spot.writer == Writer::kNumpy) {
    const auto size = size_behind(text, "Unabletoallocate");
    if (!size) return std::nullopt;
    numbers.asked_bytes = *size;
  }
  if (spot.writer == Writer::kPython && text.starts_with("unabletommap")) {
    if (!has(text.substr(0, 2000), "Cannotallocatememory")) return std::nullopt;
    numbers.asked_bytes = size_behind(text, "unabletommap").value_or(0);
  }
  return out;
}

// `std::bad_alloc` with more behind it is somebody's class that derives from it: RMM's, Thrust's.
std::optional<ReadMessage> read_cpp(const Spot& spot, std::string_view text) {
  ReadMessage out = plain_message(spot);
  if (text.starts_with("memoryallocationof")) {
    if (!has(text.substr(0, 60), "bytesfailed")) return std::nullopt;
    out.message.numbers.asked_bytes = number_behind(text, "allocationof").value_or(0);
    return out;
  }
  constexpr std::string_view kMore = "std::bad_alloc:";
  if (!text.starts_with(kMore)) return out;
  if (has(text, "RMM") || has(text, "rmm/")) {
    out.message.writer = Writer::kRmm;
    out.message.numbers.asked_bytes = size_behind(text, "failedtoallocate").value_or(0);
    return out;
  }
  const std::string_view rest = text.substr(kMore.size());
  if (rest.empty() || rest.starts_with("out_of_memory:")) return std::nullopt;  // it comes next
  return out;
}

std::optional<ReadMessage> read_nccl(const Spot& spot, std::string_view text) {
  const std::string_view near = text.substr(0, 1000);
  if (text.starts_with("nccl") && !has(near, "outofmemory")) return std::nullopt;
  ReadMessage out = plain_message(spot);
  for (const std::string_view words : {"callocasync", "calloc", "malloc", "hostalloc"}) {
    if (!text.starts_with("FailedtoCUDA" + std::string(words))) continue;
    out.message.numbers.asked_bytes = number_behind(text, words).value_or(0);
    break;
  }
  return out;
}

int device_behind(std::string_view text, std::string_view words) {
  const auto number = number_behind(text, words);
  return number && *number < 1024 ? static_cast<int>(*number) : 0;
}

// `allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory`, and what drivers and
// libraries say, most of them without a number.
ReadMessage read_runtime(const Spot& spot, std::string_view before, std::string_view text) {
  ReadMessage out = plain_message(spot);
  const std::string_view near = last_of(before, 120);
  for (const std::string_view words : {"allocating", "failedtoallocate", "failedtoalloc", "size"}) {
    const std::size_t at = near.rfind(words);
    if (at == std::string_view::npos) continue;
    if (const auto size = leading_size(near.substr(at + words.size()))) {
      out.message.numbers.asked_bytes = size->bytes;
    }
  }
  if (text.starts_with("Memoryallocationerroronworker")) {
    out.message.numbers.asked_bytes = size_behind(text, "Requestedmemory:").value_or(0);
  }
  // llama.cpp names its source on either side; JAX wraps the driver's error.
  if (has(near, "ggml_") || has(text.substr(0, 200), "ggml")) {
    out.message.writer = Writer::kLlamaCpp;
    out.message.numbers.device = std::max(device_behind(near, "ondevice"),
                                          device_behind(text.substr(0, 200), "currentdevice:"));
  } else if (before.ends_with("RESOURCE_EXHAUSTED:")) {
    out.message.writer = Writer::kJax;
  }
  return out;
}

// --- Inference -----------------------------------------------------------------------------------

ReadMessage read_onnx_runtime(const Spot& spot, std::string_view before, std::string_view text) {
  ReadMessage out = plain_message(spot);
  memory::PyTorchMessage& numbers = out.message.numbers;
  if (text.starts_with("Failed")) {
    numbers.asked_bytes = number_behind(text, "requestedbufferofsize").value_or(0);
    return out;
  }
  // `Available memory of 1000 is smaller than requested bytes of 2000`: of the arena's limit.
  numbers.asked_bytes = number_behind(text, "requestedbytesof").value_or(0);
  const std::string_view near = last_of(before, 60);
  numbers.free_bytes = number_behind(near, "Availablememoryof");
  return out;
}

ReadMessage read_tensorrt(const Spot& spot, std::string_view text) {
  ReadMessage out = plain_message(spot);
  for (const std::string_view words : {"Requestedamountofmemory(",
                                       "RequestedamountofGPUmemory(",
                                       "Requestedsizewas",
                                       "Userallocatorerrorallocating"}) {
    const auto size = number_behind(text.substr(0, 120), words);
    if (!size) continue;
    out.message.numbers.asked_bytes = *size;
    out.strength = Strength::kWhole;
    break;
  }
  return out;
}

// `failed to allocate CUDA1 buffer of size 10345253120`. These counts have no unit, and what the
// next line begins with is no unit of theirs.
std::optional<ReadMessage> read_llama_cpp(const Spot& spot, std::string_view text) {
  ReadMessage out = plain_message(spot);
  if (text.starts_with("model")) {
    out.message.is_host = true;
    out.message.numbers.asked_bytes = size_behind(text, "systemmemory(").value_or(0);
    out.message.numbers.free_bytes = size_behind(text, "thanisavailable(");
    return out;
  }
  if (text.starts_with("ggml_vulkan")) {
    out.message.numbers.asked_bytes = number_behind(text, "allocationofsize").value_or(0);
    return out;
  }
  const std::string_view near = text.substr(0, 60);
  const std::size_t buffer = near.find("buffer");
  if (buffer == std::string_view::npos) return std::nullopt;
  out.message.numbers.asked_bytes = number_behind(near, "bufferofsize").value_or(0);
  const std::size_t digits = near.find_first_of("0123456789");
  if (digits < buffer)
    out.message.numbers.device = device_behind(near.substr(digits - 1), near.substr(digits - 1, 1));
  return out;
}

ReadMessage read_metal(const Spot& spot, std::string_view before, std::string_view text) {
  ReadMessage out = plain_message(spot);
  if (has(last_of(before, 200), "ggml")) out.message.writer = Writer::kLlamaCpp;
  if (text.starts_with("[metal::malloc]")) {
    out.message.numbers.asked_bytes = size_behind(text, "Attemptingtoallocate").value_or(0);
    out.message.numbers.limit_bytes = size_behind(text, "maximumallowedbuffersizeof");
  }
  return out;
}

// Most have no number: DirectML and Gaudi say how much was asked for.
std::optional<ReadMessage> read_gpu_runtime(const Spot& spot, std::string_view text) {
  ReadMessage out = plain_message(spot);
  if (text.starts_with("Couldnotallocate")) {
    if (!has(text.substr(0, 120), "GPUvideomemory")) return std::nullopt;
    out.message.numbers.asked_bytes = number_behind(text, "tensorwith").value_or(0);
  }
  if (text.starts_with("PT_DEVMEM")) {
    out.message.numbers.asked_bytes = number_behind(text, "size::").value_or(0);
  }
  return out;
}

// `Cannot allocate 1.5GB memory on GPU 0, 22GB memory has been allocated and available memory is
// only 1.65GB`.
ReadMessage read_paddle(const Spot& spot, std::string_view text) {
  ReadMessage out = plain_message(spot);
  memory::PyTorchMessage& numbers = out.message.numbers;
  numbers.device = device_behind(text, "OutofmemoryerroronGPU");
  numbers.asked_bytes = size_behind(text, "Cannotallocate").value_or(0);
  numbers.free_bytes = size_behind(text, "availablememoryisonly");
  return out;
}

// `(..., pid=4331, memory used=2.22GB) was running was 59.49GB / 62.58GB (0.95), which exceeds`.
ReadMessage read_ray(const Spot& spot, std::string_view text) {
  ReadMessage out = plain_message(spot);
  const std::string_view near = text.substr(0, 1000);
  out.message.pid = number_behind(near, "pid=");
  out.message.numbers.this_process_bytes = size_behind(near, "memoryused=");
  const std::size_t at = near.find("wasrunningwas");
  if (at != std::string_view::npos) {
    out.message.numbers.total_bytes = size_behind(near.substr(at), "/");
  }
  return out;
}

// `out of memory: asked for 2GiB (2,147,483,648 bytes) on stream 0`, the account, and the verdict.
ReadMessage read_headroom(const Spot& spot, std::string_view text) {
  ReadMessage out = plain_message(spot);
  const std::size_t bracket = text.substr(0, 60).find('(');
  const auto exact =
      bracket == std::string_view::npos ? std::nullopt : leading_size(text.substr(bracket + 1));
  out.message.numbers.asked_bytes =
      exact ? exact->bytes : size_behind(text, "askedfor").value_or(0);
  if (has(text, "shortage:therequestneeds")) out.message.verdict = memory::Verdict::kShortage;
  if (has(text, "fragmentation:therequestneeds")) {
    out.message.verdict = memory::Verdict::kFragmentation;
  }
  return out;
}

}  // namespace

std::optional<ReadMessage> read_spot(const Spot& spot,
                                     std::string_view before,
                                     std::string_view text) {
  switch (spot.writer) {
    case Writer::kPyTorchCuda:
    case Writer::kPyTorchHip:
    case Writer::kPyTorchXpu:
    case Writer::kPyTorchNpu:
    case Writer::kPyTorchOther:
      return read_pytorch(spot, before, text);
    case Writer::kPyTorchMps:
      return read_mps(spot, text);
    case Writer::kCudaRuntime:
    case Writer::kHipRuntime:
      return read_runtime(spot, before, text);
    case Writer::kNccl:
      return read_nccl(spot, text);
    case Writer::kCupy:
      return read_cupy_or_jax(spot, before, text);
    case Writer::kJax:
      return read_jax(spot, text);
    case Writer::kTensorFlow:
      return read_tensorflow(spot, before, text);
    case Writer::kVllm:
      return read_vllm(spot, text);
    case Writer::kKernel:
      return read_kernel(spot, before, text);
    case Writer::kPyTorchCpu:
    case Writer::kNumpy:
    case Writer::kPython:
      return read_host(spot, text);
    case Writer::kCpp:
      return read_cpp(spot, text);
    case Writer::kOnnxRuntime:
      return read_onnx_runtime(spot, before, text);
    case Writer::kTensorRt:
      return read_tensorrt(spot, text);
    case Writer::kLlamaCpp:
      return read_llama_cpp(spot, text);
    case Writer::kMetal:
      return read_metal(spot, before, text);
    case Writer::kPaddle:
      return read_paddle(spot, text);
    case Writer::kRay:
      return read_ray(spot, text);
    case Writer::kGpuRuntime:
      return read_gpu_runtime(spot, text);
    case Writer::kHeadroom:
      return read_headroom(spot, text);
    default:
      return plain_message(spot);
  }
}

}  // namespace headroom::diagnose::internal
