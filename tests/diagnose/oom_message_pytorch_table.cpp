// Messages of PyTorch: its versions, whose process it is, its other devices.
#include "tests/diagnose/oom_message_table.h"

namespace headroom::diagnose::testing {

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

std::vector<MessageRow> pytorch_messages() {
  return {
      // --- PyTorch, by version ---
      {"PyTorch10",
       "RuntimeError: CUDA out of memory. " TRIED
       " (GPU 0; 10.73 GiB total capacity; 7.00 GiB already allocated; 1.56 MiB free; 3.00 GiB "
       "cached)",
       "pytorch_cuda",
       "1.0-1.3",
       gib(2),
       "fragmentation",
       "",
       "upgrade_pytorch"},
      {"PyTorch13WithInactive",
       "RuntimeError: CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 11.17 GiB total "
       "capacity; 6.05 GiB already allocated; 1.02 GiB free; 3.79 GiB cached; 12.00 MiB inactive)",
       "pytorch_cuda",
       "1.0-1.3",
       gib(1.5),
       "fragmentation",
       "",
       "upgrade_pytorch"},
      {"PyTorch13WithLittleCached",
       "RuntimeError: CUDA out of memory. " TRIED
       " (GPU 0; 10.73 GiB total capacity; 9.50 GiB already allocated; 1.56 MiB free; 179.00 KiB "
       "cached)",
       "pytorch_cuda",
       "1.0-1.3",
       gib(2),
       "shortage",
       "",
       "upgrade_pytorch,use_less"},
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
       "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See "
       "documentation "
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
       "shortage",
       "named",
       "expandable_segments,use_less"},
      {"PyTorchNearlyFull",
       "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total "
       "capacity of 79.15 GiB of which 4.19 MiB is free. Including non-PyTorch memory, this "
       "process has 79.14 GiB memory in use. Of the allocated memory 78.40 GiB is allocated by "
       "PyTorch, and 24.15 MiB is reserved by PyTorch but unallocated.",
       "pytorch_cuda",
       "2.5-",
       mib(20),
       "fragmentation",
       "named",
       "expandable_segments,use_less"},
      {"PyTorch20BesideAnUnknownHolder",
       "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 32.00 MiB (GPU 0; 23.69 "
       "GiB total capacity; 3.02 GiB already allocated; 12.69 MiB free; 3.05 GiB reserved in total "
       "by PyTorch)" ADVICE_SPLIT,
       "pytorch_cuda",
       "1.13-2.0",
       mib(32),
       "fragmentation",
       "",
       "upgrade_pytorch,see_who_holds,use_less"},
      {"PyTorchLargerThanTheCard",
       "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1117.50 GiB. GPU 0 has a "
       "total capacity of 23.65 GiB of which 22.81 GiB is free. Including non-PyTorch memory, this "
       "process has 0.80 GiB memory in use. Of the allocated memory 512.10 MiB is allocated by "
       "PyTorch, and 9.23 MiB is reserved by PyTorch but unallocated." ADVICE_EXPANDABLE(
           "PYTORCH_CUDA_ALLOC_CONF"),
       "pytorch_cuda",
       "2.5-",
       gib(1117.5),
       "shortage",
       "named",
       "check_size,use_less"},
      {"PyTorchStartedWithTheSetting",
       "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py\n"
       "torch.OutOfMemoryError: CUDA out of memory. " TRIED
       ". GPU 0 has a total capacity of 23.65 GiB of which 1.19 GiB is free. Including non-PyTorch "
       "memory, this process has 22.44 GiB memory in use. " FRAGMENTED ADVICE_EXPANDABLE(
           "PYTORCH_CUDA_ALLOC_CONF"),
       "pytorch_cuda",
       "2.5-",
       gib(2),
       "fragmentation",
       "named",
       "use_less"},
      {"PyTorchCutBehindAllocated",
       "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total "
       "capacity of 139.80 GiB of which 2.10 GiB is free. Including non-PyTorch memory, this "
       "process has 137.66 GiB memory in use. Of the allocated memory 101.00 GiB is allocated by "
       "PyTorch",
       "pytorch_cuda",
       "2.5-",
       gib(4),
       "",
       "named",
       "use_less,see_who_holds"},
      {"PyTorchCutInBrackets",
       "RuntimeError: CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 15.78 GiB total "
       "capacity; 8.04 GiB already allocated; 512.19 MiB free; 13.90 Gi",
       "pytorch_cuda",
       "1.0-1.12",
       gib(1.5),
       "",
       "",
       "use_less,see_who_holds"},
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
       TRIED
       " (GPU 0; 1.96 GiB total capacity; 1.24 GiB already allocated; 2.88 MiB free; 1.25 GiB "
       "reserved in total by PyTorch)",
       "pytorch_cuda",
       "1.4-1.9",
       gib(2),
       "shortage",
       "",
       "check_size,use_less"},

      // --- Whose process is it? ---
      {"ContainerAlone",
       "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 23.65 GiB "
       "of "
       "which 12.00 MiB is free. Process 3381 has 23.58 GiB memory in use. " FULL ADVICE_EXPANDABLE(
           "PYTORCH_CUDA_ALLOC_CONF"),
       "pytorch_cuda",
       "2.2-",
       mib(20),
       "fragmentation",
       "3381",
       "expandable_segments,use_less"},
      {"ContainerWithAnother",
       "CUDA out of memory. " TRIED
       ". GPU 0 has a total capacity of 23.65 GiB of which 12.00 MiB is free. Process 11 has 3.00 "
       "GiB memory in use. Process 12 has 20.60 GiB memory in use. Of the allocated memory 19.50 "
       "GiB "
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
       "GiB memory in use. Process 12 has 11.80 GiB memory in use. Of the allocated memory 11.00 "
       "GiB "
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
       "GiB memory in use. Of the allocated memory 19.50 GiB is allocated by PyTorch, and 100.00 "
       "MiB "
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
       ". GPU 0 has a total capacity of 23.98 GiB of which 1.70 GiB is free. Of the allocated "
       "memory "
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
       ". GPU 0 has a total capacity of 23.98 GiB of which 1.70 GiB is free. Of the allocated "
       "memory "
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
       "HIP out of memory. Tried to allocate 432.00 MiB. GPU 0 has a total capacity of 15.92 GiB "
       "of "
       "which 7.12 GiB is free. Of the allocated memory 8.08 GiB is allocated by PyTorch, and "
       "321.96 "
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
       "100.00 MiB free; 28.00 GiB reserved in total by PyTorch) If reserved memory is >> "
       "allocated "
       "memory try setting max_split_size_mb to avoid fragmentation.",
       "pytorch_npu",
       "",
       gib(2),
       "fragmentation",
       "",
       "max_split_size"},
      {"Mps",
       "RuntimeError: MPS backend out of memory (MPS allocated: 18.00 GB, other allocations: "
       "107.10 "
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

  };
}

}  // namespace headroom::diagnose::testing
