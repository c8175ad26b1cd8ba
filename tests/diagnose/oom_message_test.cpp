// Out-of-memory texts as their writers format them, and what each is expected to say (#22).
#include "headroom/diagnose/oom_message.h"

#include <ostream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/bytes.h"

namespace headroom::diagnose {
namespace {

std::uint64_t gib(double value) { return static_cast<std::uint64_t>(value * 0x1p30 + 0.5); }
std::uint64_t mib(double value) { return static_cast<std::uint64_t>(value * 0x1p20 + 0.5); }

struct Row {
  const char* name;
  const char* text;
  const char* writer;
  const char* versions;  // "1.10-2.0", "2.2-", ""
  std::uint64_t asked;
  const char* verdict;  // "" where the numbers do not tell
  const char* own;      // "", "named", "maybe" or a pid found by arithmetic
  const char* remedies;
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

// Formats of PyTorch, up to their first number.
#define TRIED "Tried to allocate 2.00 GiB"
#define ADVICE_SPLIT                                                                   \
  " If reserved memory is >> allocated memory try setting max_split_size_mb to avoid " \
  "fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF"
#define ADVICE_EXPANDABLE(variable)                                                  \
  " If reserved but unallocated memory is large try setting " variable               \
  "=expandable_segments:True to avoid fragmentation.  See documentation for Memory " \
  "Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
#define FRAGMENTED                                                                          \
  "Of the allocated memory 17.10 GiB is allocated by PyTorch, and 4.84 GiB is reserved by " \
  "PyTorch but unallocated."
#define FULL                                                                                  \
  "Of the allocated memory 22.42 GiB is allocated by PyTorch, and 100.00 MiB is reserved by " \
  "PyTorch but unallocated."

const Row kRows[] = {
    // --- PyTorch, by version ---
    {"PyTorch10",
     "RuntimeError: CUDA out of memory. " TRIED
     " (GPU 0; 10.73 GiB total capacity; 7.00 GiB already allocated; 1.56 MiB free; 3.00 GiB "
     "cached)",
     "pytorch_cuda",
     "1.0-1.3",
     gib(2),
     "shortage",
     "",
     "use_less"},
    {"PyTorch14",
     "RuntimeError: CUDA out of memory. " TRIED
     " (GPU 1; 10.73 GiB total capacity; 6.00 GiB already allocated; 100.00 MiB free; 9.00 GiB "
     "reserved in total by PyTorch)",
     "pytorch_cuda",
     "1.4-1.9",
     gib(2),
     "fragmentation",
     "",
     "upgrade_pytorch"},
    {"PyTorch112",
     "RuntimeError: CUDA out of memory. " TRIED
     " (GPU 0; 10.73 GiB total capacity; 6.00 GiB already allocated; 100.00 MiB free; 9.00 GiB "
     "reserved in total by PyTorch)" ADVICE_SPLIT,
     "pytorch_cuda",
     "1.10-1.12",
     gib(2),
     "fragmentation",
     "",
     "max_split_size,upgrade_pytorch"},
    {"PyTorch20",
     "torch.cuda.OutOfMemoryError: CUDA out of memory. " TRIED
     " (GPU 0; 10.73 GiB total capacity; 6.00 GiB already allocated; 100.00 MiB free; 9.00 GiB "
     "reserved in total by PyTorch)" ADVICE_SPLIT,
     "pytorch_cuda",
     "1.13-2.0",
     gib(2),
     "fragmentation",
     "",
     "max_split_size,upgrade_pytorch"},
    {"PyTorch20WithoutItsAdvice",
     "torch.cuda.OutOfMemoryError: CUDA out of memory. " TRIED
     " (GPU 0; 10.73 GiB total capacity; 6.00 GiB already allocated; 100.00 MiB free; 9.00 GiB "
     "reserved in total by PyTorch)",
     "pytorch_cuda",
     "1.13-2.0",
     gib(2),
     "fragmentation",
     "",
     "max_split_size,upgrade_pytorch"},
    {"PyTorch20ShortOfMemory",
     "torch.cuda.OutOfMemoryError: CUDA out of memory. " TRIED
     " (GPU 0; 10.73 GiB total capacity; 10.00 GiB already allocated; 0 bytes free; 10.00 GiB "
     "reserved in total by PyTorch)" ADVICE_SPLIT,
     "pytorch_cuda",
     "1.13-2.0",
     gib(2),
     "shortage",
     "",
     "use_less"},
    {"PyTorch20UnderALimit",
     "CUDA out of memory. " TRIED
     " (GPU 0; 10.73 GiB total capacity; 4.00 GiB already allocated; 6.00 GiB free; 5.00 GiB "
     "allowed; 4.00 GiB reserved in total by PyTorch)" ADVICE_SPLIT,
     "pytorch_cuda",
     "1.10-2.0",
     gib(2),
     "shortage",
     "",
     "raise_limit"},
    {"PyTorch21",
     "torch.cuda.OutOfMemoryError: CUDA out of memory. " TRIED
     ". GPU 0 has a total capacty of 23.65 GiB of which 1.19 GiB is free. Including non-PyTorch "
     "memory, this process has 22.44 GiB memory in use. " FRAGMENTED
     " If reserved but unallocated memory is large try setting max_split_size_mb to avoid "
     "fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF",
     "pytorch_cuda",
     "2.1-2.1",
     gib(2),
     "fragmentation",
     "named",
     "expandable_segments"},
    {"PyTorch22",
     "torch.cuda.OutOfMemoryError: CUDA out of memory. " TRIED
     ". GPU 0 has a total capacity of 23.65 GiB of which 1.19 GiB is free. Including non-PyTorch "
     "memory, this process has 22.44 GiB memory in use. " FRAGMENTED ADVICE_EXPANDABLE(
         "PYTORCH_CUDA_ALLOC_CONF"),
     "pytorch_cuda",
     "2.2-2.4",
     gib(2),
     "fragmentation",
     "named",
     "expandable_segments"},
    {"PyTorch25",
     "torch.OutOfMemoryError: CUDA out of memory. " TRIED
     ". GPU 0 has a total capacity of 23.65 GiB of which 1.19 GiB is free. Process 4711 has 2.00 "
     "GiB memory in use. Including non-PyTorch memory, this process has 20.44 GiB memory in "
     "use. " FRAGMENTED ADVICE_EXPANDABLE("PYTORCH_CUDA_ALLOC_CONF"),
     "pytorch_cuda",
     "2.5-",
     gib(2),
     "fragmentation",
     "named",
     "expandable_segments,end_other_processes"},
    {"PyTorch210",
     "torch.OutOfMemoryError: CUDA out of memory. " TRIED
     ". GPU 3 has a total capacity of 79.15 GiB of which 1.19 GiB is free. Including non-PyTorch "
     "memory, this process has 77.95 GiB memory in use. Of the allocated memory 77.00 GiB is "
     "allocated by PyTorch, and 200.00 MiB is reserved by PyTorch but "
     "unallocated." ADVICE_EXPANDABLE("PYTORCH_ALLOC_CONF"),
     "pytorch_cuda",
     "2.10-2.10",
     gib(2),
     "shortage",
     "named",
     "expandable_segments,use_less"},
    {"PyTorch211",
     "torch.OutOfMemoryError: CUDA out of memory. " TRIED
     ". GPU 0 has a total capacity of 23.65 GiB of which 1.19 GiB is free. Including non-PyTorch "
     "memory, this process has 22.44 GiB memory in use. " FRAGMENTED
     " If reserved but unallocated memory is large try setting "
     "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation "
     "for Memory Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html"
     "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)",
     "pytorch_cuda",
     "2.11-",
     gib(2),
     "fragmentation",
     "named",
     "expandable_segments"},
    {"PyTorch215WithExpandableSegments",
     "torch.OutOfMemoryError: CUDA out of memory. " TRIED
     ". GPU 0 has a total capacity of 23.65 GiB of which 1.19 GiB is free. Including non-PyTorch "
     "memory, this process has 22.44 GiB memory in use. " FRAGMENTED
     " expandable_segments is enabled. If instead the process is running out of virtual address "
     "space (VSZ), expandable segments may be over-reserving VA",
     "pytorch_cuda",
     "2.15-",
     gib(2),
     "fragmentation",
     "named",
     "use_less"},
    {"PyTorchWithPrivatePools",
     "CUDA out of memory. " TRIED
     ". GPU 0 has a total capacity of 23.65 GiB of which 1.19 GiB is free. Including non-PyTorch "
     "memory, this process has 22.44 GiB memory in use. Of the allocated memory 17.10 GiB is "
     "allocated by PyTorch, with 3.00 GiB allocated in private pools (e.g., CUDA Graphs), and "
     "100.00 MiB is reserved by PyTorch but unallocated." ADVICE_EXPANDABLE(
         "PYTORCH_CUDA_ALLOC_CONF"),
     "pytorch_cuda",
     "2.2-",
     gib(2),
     "fragmentation",
     "named",
     "expandable_segments"},
    {"PyTorchAbsurd",
     "CUDA out of memory. Tried to allocate more than 1EB memory.",
     "pytorch_cuda",
     "",
     0,
     "",
     "",
     "check_size"},
    {"PyTorchRejected",
     "CUDA out of memory. Allocation was preemptively rejected because it would exceed "
     "per_process_memory_fraction limit. Requested size: 3.00 GiB",
     "pytorch_cuda",
     "",
     gib(3),
     "shortage",
     "",
     "raise_limit,use_less"},
    {"PyTorchCutOff",
     "CUDA out of memory. " TRIED ".",
     "pytorch_cuda",
     "",
     gib(2),
     "",
     "",
     "use_less,see_who_holds"},
    {"PyTorchWithoutNumbers",
     "warning: CUDA out of memory, skipping the batch",
     "pytorch_cuda",
     "",
     0,
     "",
     "",
     "use_less,see_who_holds"},
    {"PyTorchWithoutItsBeginning",
     TRIED " (GPU 0; 1.96 GiB total capacity; 1.24 GiB already allocated; 2.88 MiB free; 1.25 GiB "
           "reserved in total by PyTorch)",
     "pytorch_cuda",
     "1.4-1.9",
     gib(2),
     "shortage",
     "",
     "upgrade_pytorch,use_less"},

    // --- Whose process is it? ---
    {"ContainerAlone",
     "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 23.65 GiB of "
     "which 12.00 MiB is free. Process 3381 has 23.58 GiB memory in use. " FULL ADVICE_EXPANDABLE(
         "PYTORCH_CUDA_ALLOC_CONF"),
     "pytorch_cuda",
     "2.2-",
     mib(20),
     "fragmentation",
     "3381",
     "expandable_segments"},
    {"ContainerWithAnother",
     "CUDA out of memory. " TRIED
     ". GPU 0 has a total capacity of 23.65 GiB of which 12.00 MiB is free. Process 11 has 3.00 "
     "GiB memory in use. Process 12 has 20.60 GiB memory in use. Of the allocated memory 19.50 GiB "
     "is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.",
     "pytorch_cuda",
     "2.2-",
     gib(2),
     "shortage",
     "12",
     "end_other_processes,expandable_segments"},
    {"ContainerWithTwoAlike",
     "CUDA out of memory. " TRIED
     ". GPU 0 has a total capacity of 23.65 GiB of which 12.00 MiB is free. Process 11 has 11.80 "
     "GiB memory in use. Process 12 has 11.80 GiB memory in use. Of the allocated memory 11.00 GiB "
     "is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.",
     "pytorch_cuda",
     "2.2-",
     gib(2),
     "shortage",
     "maybe",
     "expandable_segments,find_own_process,use_less"},
    {"ContainerAtItsStart",
     "CUDA out of memory. " TRIED
     ". GPU 0 has a total capacity of 23.65 GiB of which 12.00 MiB is free. Process 11 has 23.00 "
     "GiB memory in use. Of the allocated memory 0 bytes is allocated by PyTorch, and 0 bytes is "
     "reserved by PyTorch but unallocated.",
     "pytorch_cuda",
     "2.2-",
     gib(2),
     "shortage",
     "maybe",
     "find_own_process,use_less"},
    {"OthersTooSmallToBeOurs",
     "CUDA out of memory. " TRIED
     ". GPU 0 has a total capacity of 23.65 GiB of which 12.00 MiB is free. Process 11 has 3.00 "
     "GiB memory in use. Of the allocated memory 19.50 GiB is allocated by PyTorch, and 100.00 MiB "
     "is reserved by PyTorch but unallocated.",
     "pytorch_cuda",
     "2.2-",
     gib(2),
     "shortage",
     "",
     "end_other_processes,expandable_segments"},

    // --- Other devices of PyTorch ---
    {"Hip",
     "torch.OutOfMemoryError: HIP out of memory. " TRIED
     ". GPU 0 has a total capacity of 23.98 GiB of which 1.70 GiB is free. Of the allocated memory "
     "17.65 GiB is allocated by PyTorch, and 4.00 GiB is reserved by PyTorch but "
     "unallocated." ADVICE_EXPANDABLE("PYTORCH_HIP_ALLOC_CONF"),
     "pytorch_hip",
     "2.5-",
     gib(2),
     "fragmentation",
     "",
     "expandable_segments,max_split_size"},
    {"HipThatNamesCuda",
     "torch.OutOfMemoryError: HIP out of memory. " TRIED
     ". GPU 0 has a total capacity of 23.98 GiB of which 1.70 GiB is free. Of the allocated memory "
     "17.65 GiB is allocated by PyTorch, and 4.00 GiB is reserved by PyTorch but "
     "unallocated." ADVICE_EXPANDABLE("PYTORCH_CUDA_ALLOC_CONF"),
     "pytorch_hip",
     "2.5-",
     gib(2),
     "fragmentation",
     "",
     "expandable_segments,max_split_size"},
    {"HipOld",
     "RuntimeError: HIP out of memory. " TRIED
     " (GPU 0; 15.98 GiB total capacity; 10.00 GiB already allocated; 100.00 MiB free; 15.00 GiB "
     "reserved in total by PyTorch) If reserved memory is >> allocated memory try setting "
     "max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and "
     "PYTORCH_HIP_ALLOC_CONF",
     "pytorch_hip",
     "1.10-1.12",
     gib(2),
     "fragmentation",
     "",
     "max_split_size,upgrade_pytorch"},
    {"HipWithFreeMemory",
     "HIP out of memory. Tried to allocate 432.00 MiB. GPU 0 has a total capacity of 15.92 GiB of "
     "which 7.12 GiB is free. Of the allocated memory 8.08 GiB is allocated by PyTorch, and 321.96 "
     "MiB is reserved by PyTorch but unallocated." ADVICE_EXPANDABLE("PYTORCH_HIP_ALLOC_CONF"),
     "pytorch_hip",
     "2.2-",
     mib(432),
     "fragmentation",
     "",
     "see_who_holds"},
    {"Xpu",
     "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 4.66 GiB. GPU 0 has a total "
     "capacity of 5.65 GiB of which 5.65 GiB is free. Of the allocated memory 195.50 KiB is "
     "allocated by PyTorch, and 1.81 MiB is reserved by PyTorch but unallocated. Please use "
     "`empty_cache` to release all unoccupied cached memory.",
     "pytorch_xpu",
     "",
     gib(4.66),
     "fragmentation",
     "",
     "see_who_holds"},
    {"XpuExtension",
     "RuntimeError: Current platform can NOT allocate memory block with size larger than 4GB! "
     "Tried "
     "to allocate 6.85 GiB (GPU  0; 15.56 GiB total capacity; 0 bytes already allocated; 0 bytes "
     "reserved in total by PyTorch)",
     "pytorch_xpu",
     "",
     gib(6.85),
     "",
     "",
     "use_less,see_who_holds"},
    {"Npu",
     "RuntimeError: NPU out of memory. " TRIED
     " (NPU 5; 29.50 GiB total capacity; 20.00 GiB already allocated; 20.00 GiB current active; "
     "100.00 MiB free; 28.00 GiB reserved in total by PyTorch) If reserved memory is >> allocated "
     "memory try setting max_split_size_mb to avoid fragmentation.",
     "pytorch_npu",
     "",
     gib(2),
     "fragmentation",
     "",
     "max_split_size"},
    {"Mps",
     "RuntimeError: MPS backend out of memory (MPS allocated: 18.00 GB, other allocations: 107.10 "
     "MB, max allowed: 18.13 GB). Tried to allocate 64.50 MB on private pool. Use "
     "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations (may "
     "cause system failure).",
     "pytorch_mps",
     "1.13-",
     mib(64.5),
     "shortage",
     "",
     "use_less,empty_cache,mps_watermark"},
    {"MpsNew",
     "MPS backend out of memory (MPS allocated: 9.57 GiB, other allocations: 17.35 GiB, max "
     "allowed: 27.20 GiB). Tried to allocate 292.50 MiB on private pool. Use "
     "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit",
     "pytorch_mps",
     "1.13-",
     mib(292.5),
     "shortage",
     "",
     "use_less,empty_cache,mps_watermark"},
    {"MpsBuffer",
     "RuntimeError: Invalid buffer size: 24.00 GB",
     "pytorch_mps",
     "",
     gib(24),
     "",
     "",
     "use_less"},
    {"Cpu",
     "RuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't "
     "allocate memory: you tried to allocate 8589934592 bytes. Error code 12 (Cannot allocate "
     "memory)",
     "pytorch_cpu",
     "",
     gib(8),
     "",
     "",
     "host_memory"},
    {"CpuOnWindows",
     "RuntimeError: [enforce fail at ..\\c10\\core\\impl\\alloc_cpu.cpp:72] data. "
     "DefaultCPUAllocator: not enough memory: you tried to allocate 1073741824 bytes.",
     "pytorch_cpu",
     "",
     gib(1),
     "",
     "",
     "host_memory"},
    {"CpuAbsurd",
     "DefaultCPUAllocator: can't allocate memory: you tried to allocate 70368744177664 bytes. "
     "Error "
     "code 12 (Cannot allocate memory)",
     "pytorch_cpu",
     "",
     gib(65536),
     "",
     "",
     "check_size,host_memory"},

    // --- Drivers and libraries ---
    {"CudaRuntime",
     "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported "
     "at some other API call, so the stacktrace below might be incorrect.",
     "cuda_runtime",
     "",
     0,
     "",
     "",
     "see_who_holds,use_less"},
    {"CudaRuntimeOld",
     "RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/generic/"
     "THCStorage.cu:58",
     "cuda_runtime",
     "",
     0,
     "",
     "",
     "see_who_holds,use_less"},
    {"CudaDriver",
     "failed to allocate 2.20GiB (2362232064 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of "
     "memory",
     "cuda_runtime",
     "",
     gib(2.2),
     "",
     "",
     "see_who_holds,use_less"},
    {"CudaDriverOnTheHost",
     "failed to alloc 17179869184 bytes on host: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
     "cuda_runtime",
     "",
     gib(16),
     "",
     "",
     "see_who_holds,use_less"},
    {"CudaMalloc",
     "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 0: cudaMalloc "
     "failed: out of memory",
     "cuda_runtime",
     "",
     gib(4),
     "",
     "",
     "see_who_holds,use_less"},
    {"HipRuntime",
     "RuntimeError: HIP error: out of memory",
     "hip_runtime",
     "",
     0,
     "",
     "",
     "see_who_holds,use_less"},
    {"Cublas",
     "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
     "cublas",
     "",
     0,
     "",
     "",
     "leave_room,use_less,see_who_holds"},
    {"Cudnn",
     "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
     "cudnn",
     "",
     0,
     "",
     "",
     "leave_room,use_less,see_who_holds"},
    {"Cudnn9",
     "RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
     "cudnn",
     "",
     0,
     "",
     "",
     "leave_room,use_less,see_who_holds"},
    {"Cusolver",
     "RuntimeError: cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling "
     "`cusolverDnCreate(handle)`",
     "cuda_library",
     "",
     0,
     "",
     "",
     "leave_room,use_less,see_who_holds"},
    {"NcclWarning",
     "node1:4711:4720 [0] include/alloc.h:102 NCCL WARN Cuda failure 'out of memory'",
     "nccl",
     "",
     0,
     "",
     "",
     "leave_room,nccl_buffers,see_who_holds"},
    {"NcclError",
     "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled cuda "
     "error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5\nncclUnhandledCudaError: "
     "Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'",
     "nccl",
     "",
     0,
     "",
     "",
     "leave_room,nccl_buffers,see_who_holds"},
    {"Cupy",
     "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,589,934,592 bytes (allocated "
     "so "
     "far: 512 bytes).",
     "cupy",
     "",
     gib(8),
     "",
     "",
     "use_less,see_who_holds"},

    // --- Other frameworks ---
    {"Jax",
     "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to "
     "allocate 4294967296 bytes.\nBufferAssignment OOM Debugging.\n parameter allocation: 6.00MiB",
     "jax",
     "",
     gib(4),
     "",
     "",
     "use_less,xla_fraction,xla_preallocation,see_who_holds"},
    {"JaxNew",
     "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate "
     "16.00GiB.",
     "jax",
     "",
     gib(16),
     "",
     "",
     "use_less,xla_fraction,xla_preallocation,see_who_holds"},
    {"JaxOrdinal",
     "RESOURCE_EXHAUSTED: Failed to allocate request for 9.41GiB (10104307200B) on device ordinal "
     "0",
     "jax",
     "",
     gib(9.41),
     "",
     "",
     "use_less,xla_fraction,xla_preallocation,see_who_holds"},
    {"JaxAllocating",
     "RESOURCE_EXHAUSTED: Out of memory allocating 8589934592 bytes.",
     "jax",
     "",
     gib(8),
     "",
     "",
     "use_less,xla_fraction,xla_preallocation,see_who_holds"},
    {"JaxTpu",
     "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 20.36G of 15.48G hbm. "
     "Exceeded "
     "hbm capacity by 4.88G.",
     "jax",
     "",
     gib(20.36),
     "shortage",
     "",
     "use_less"},
    {"JaxAllocator",
     "2024-05-01 10:00:00.123456: W external/xla/xla/tsl/framework/bfc_allocator.cc:497] Allocator "
     "(GPU_0_bfc) ran out of memory trying to allocate 2.00GiB (rounded to 2147483648)requested by "
     "op",
     "jax",
     "",
     gib(2),
     "",
     "",
     "use_less,xla_fraction,xla_preallocation,see_who_holds"},
    {"TensorFlow",
     "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor "
     "with shape[32,512,1024,32] and type float on /job:localhost/replica:0/task:0/device:GPU:1 by "
     "allocator GPU_1_bfc [Op:Conv2D]",
     "tensorflow",
     "",
     gib(2),
     "",
     "",
     "use_less,tensorflow_growth,see_who_holds"},
    {"TensorFlowAllocator",
     "W tensorflow/core/common_runtime/bfc_allocator.cc:479] Allocator (GPU_0_bfc) ran out of "
     "memory "
     "trying to allocate 2.00GiB (rounded to 2147483648)requested by op Mul",
     "tensorflow",
     "",
     gib(2),
     "",
     "",
     "use_less,tensorflow_growth,see_who_holds"},
    {"VllmCacheBlocks",
     "ValueError: No available memory for the cache blocks. Try increasing "
     "`gpu_memory_utilization` when initializing the engine.",
     "vllm",
     "",
     0,
     "",
     "",
     "vllm_raise_share,vllm_shorter_context"},
    {"VllmStart",
     "ValueError: Free memory on device (31.44/47.38 GiB) on startup is less than desired GPU "
     "memory "
     "utilization (0.95, 45.01 GiB). Decrease GPU memory utilization or reduce GPU memory used by "
     "other processes.",
     "vllm",
     "",
     0,
     "shortage",
     "",
     "vllm_lower_share,see_who_holds"},
    {"VllmStartNamesTheDevice",
     "ValueError: Free memory on device cuda:0 (19.77/22.05 GiB) on startup is less than desired "
     "GPU "
     "memory utilization (0.9, 19.84 GiB).",
     "vllm",
     "",
     0,
     "shortage",
     "",
     "vllm_lower_share,see_who_holds"},
    {"VllmContext",
     "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB "
     "KV cache is needed, which is larger than the available KV cache memory (7.63 GiB). Try "
     "increasing `gpu_memory_utilization` or decreasing `max_model_len`",
     "vllm",
     "",
     gib(16),
     "shortage",
     "",
     "vllm_raise_share,vllm_shorter_context"},

    // --- The machine ---
    {"Kernel",
     "[12345.678901] Out of memory: Killed process 1234 (python) total-vm:104857600kB, "
     "anon-rss:67108864kB, file-rss:0kB, shmem-rss:0kB, UID:1000 pgtables:1kB oom_score_adj:0",
     "kernel",
     "",
     0,
     "shortage",
     "",
     "host_memory"},
    {"KernelOfAContainer",
     "Memory cgroup out of memory: Killed process 1234 (python) total-vm:104857600kB, "
     "anon-rss:67108864kB, file-rss:0kB",
     "kernel",
     "",
     0,
     "shortage",
     "",
     "host_memory,container_limit"},
    {"KernelOfAContainerInTwoLines",
     "Memory cgroup out of memory: Kill process 1234 (python) score 905 or sacrifice child\n"
     "Killed process 1234 (python) total-vm:100kB, anon-rss:50kB, file-rss:0kB",
     "kernel",
     "",
     0,
     "shortage",
     "",
     "host_memory,container_limit"},
    {"KernelConstraint",
     "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=docker,mems_allowed=0,"
     "oom_memcg=/docker/1,task_memcg=/docker/1,task=python,pid=1234,uid=0",
     "kernel",
     "",
     0,
     "shortage",
     "",
     "host_memory,container_limit"},
    {"Slurm",
     "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=123.0.",
     "kernel",
     "",
     0,
     "shortage",
     "",
     "host_memory,container_limit"},
    {"Kubernetes",
     "State: Terminated\n Reason: OOMKilled\n Exit Code: 137",
     "kernel",
     "",
     0,
     "shortage",
     "",
     "host_memory,container_limit"},
    {"Killed", "step 12\nKilled\n", "killed", "", 0, "", "", "kernel_log,host_memory"},
    {"KilledByAShell",
     "run.sh: line 3:  4711 Killed                  python train.py",
     "killed",
     "",
     0,
     "",
     "",
     "kernel_log,host_memory"},
    {"Exit137",
     "container exited with exit code 137",
     "killed",
     "",
     0,
     "",
     "",
     "kernel_log,host_memory"},
    {"BadAlloc",
     "terminate called after throwing an instance of 'std::bad_alloc'",
     "cpp",
     "",
     0,
     "",
     "",
     "host_memory"},
    {"MemoryError",
     "Traceback (most recent call last):\n  File \"a.py\", line 1\nMemoryError\n",
     "python",
     "",
     0,
     "",
     "",
     "host_memory"},
    {"Numpy",
     "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB for an array with "
     "shape "
     "(100000, 10000) and data type float64",
     "numpy",
     "",
     gib(7.45),
     "",
     "",
     "host_memory"},
    {"Errno12",
     "OSError: [Errno 12] Cannot allocate memory",
     "python",
     "",
     0,
     "",
     "",
     "host_memory"},
    {"SharedMemory",
     "RuntimeError: DataLoader worker (pid 1234) is killed by signal: Bus error. It is possible "
     "that "
     "dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
     "shared_memory",
     "",
     0,
     "",
     "",
     "shared_memory_size"},
};
static_assert(std::size(kRows) >= 40);

std::string text_of(const std::optional<VersionRange>& range) {
  if (!range) return "";
  const auto version = [](const memory::PyTorchVersion& of) {
    return std::to_string(of.major) + "." + std::to_string(of.minor);
  };
  return version(range->from) + "-" + (range->to ? version(*range->to) : "");
}

std::string own_text(const OomMessage& message) {
  switch (message.own) {
    case OwnProcess::kNotListed:
      return "";
    case OwnProcess::kNamed:
      return "named";
    case OwnProcess::kByArithmetic:
      return std::to_string(message.own_candidates.at(0));
    case OwnProcess::kMaybe:
      return "maybe";
  }
  return "?";
}

std::string remedies_text(const OomMessage& message) {
  std::string out;
  for (const MessageRemedy& remedy : message.remedies) {
    out += (out.empty() ? "" : ",") + std::string(to_string(remedy.kind));
  }
  return out;
}

void expect_row(const Row& row, const std::string& text) {
  const auto log = read_oom_log(text);
  ASSERT_TRUE(log) << log.error();
  ASSERT_EQ(log->messages.size(), 1U);
  const OomMessage& message = log->messages[0];
  EXPECT_EQ(to_string(message.writer), row.writer);
  EXPECT_EQ(text_of(message.versions), row.versions);
  EXPECT_EQ(message.numbers.asked_bytes, row.asked);
  EXPECT_EQ(message.verdict ? to_string(*message.verdict) : "", row.verdict);
  EXPECT_EQ(own_text(message), row.own);
  EXPECT_EQ(remedies_text(message), row.remedies);
  const memory::Account account = account_of(message);
  EXPECT_EQ(account.sum(), account.total_bytes);
}

class OomMessages : public ::testing::TestWithParam<Row> {};

TEST_P(OomMessages, SayWhatTheyShould) { expect_row(GetParam(), GetParam().text); }

// As a terminal copies it: in colour, broken at any column, with the line ends of Windows.
TEST_P(OomMessages, SayTheSameFromATerminal) {
  const std::string text = GetParam().text;
  if (text.find("Killed") != std::string::npos || text.find("\nMemoryError") != std::string::npos) {
    return;  // those are words of a line
  }
  for (const std::size_t width : {40U, 79U, 120U}) {
    std::string broken = "\x1b[31m";
    for (std::size_t i = 0; i < text.size(); i += width) {
      broken += text.substr(i, width) + "\x1b[0m\r\n";
    }
    expect_row(GetParam(), broken);
  }
}

// As launchers and loggers write it.
TEST_P(OomMessages, SayTheSameBehindPrefixes) {
  for (const std::string prefix : {"[rank3]: ",
                                   "[default3]:",
                                   "(EngineCore pid=518) ERROR 07-29 21:48:54 [core.py:1141] ",
                                   "2026-05-08 11:47:02.257 ",
                                   "[2026-02-24T20:21:58Z] ",
                                   "3: "}) {
    std::string text = prefix;
    for (const char* c = GetParam().text; *c != '\0'; ++c) {
      text += *c;
      if (*c == '\n') text += prefix;
    }
    expect_row(GetParam(), "step 1 loss 2.5\n" + text + "\nbye\n");
  }
}

// What was cut off anywhere is read as far as it goes, or refused: never more than it says.
TEST_P(OomMessages, AreReadAsFarAsTheyGo) {
  const std::string text = GetParam().text;
  for (std::size_t length = 0; length < text.size(); ++length) {
    const auto log = read_oom_log(text.substr(0, length));
    if (!log) continue;
    for (const OomMessage& message : log->messages) {
      const memory::Account account = account_of(message);
      EXPECT_EQ(account.sum(), account.total_bytes) << text.substr(0, length);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, OomMessages, ::testing::ValuesIn(kRows), [](const auto& row) {
  return std::string(row.param.name);
});

}  // namespace
}  // namespace headroom::diagnose
