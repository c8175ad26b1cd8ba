// Messages of other devices and their runtimes, of PyTorch under cudaMallocAsync, and of the
// machine's schedulers.
#include "tests/diagnose/oom_message_table.h"

namespace headroom::diagnose::testing {
namespace {

// With backend:cudaMallocAsync: the numbers, one a line.
#define CUDA_POOL(CURRENT, ASKED, LIMIT)                                                      \
  "torch.OutOfMemoryError: Allocation on device 1 would exceed allowed memory."               \
  " (out of memory)\nCurrently allocated     : " CURRENT "\nRequested               : " ASKED \
  "\nDevice limit            : 8.00 GiB\nFree (according to CUDA): 0 bytes\n"                 \
  "PyTorch limit (set by user-supplied memory fraction)\n"                                    \
  "                        : " LIMIT

#define CUDA_IN_PLACE \
  "RuntimeError: [TensorRT-LLM][ERROR] CUDA runtime error in ::cudaMallocAsync(ptr, n, pool, "

}  // namespace

std::vector<MessageRow> device_messages() {
  return {
      {.name = "CudaPool",
       .text = CUDA_POOL("7.38 GiB", "800.00 MiB", "17179869184.00 GiB"),
       .writer = "pytorch_cuda",
       .versions = "2.5-",
       .asked = mib(800),
       .verdict = "shortage",
       .remedies = "use_less,see_who_holds"},
      {.name = "CudaPoolThatMayHaveCached",
       .text = CUDA_POOL("5.00 GiB", "800.00 MiB", "17179869184.00 GiB"),
       .writer = "pytorch_cuda",
       .versions = "2.5-",
       .asked = mib(800),
       .remedies = "use_less,see_who_holds"},
      {.name = "CudaPoolUnderALimit",
       .text = CUDA_POOL("3.50 GiB", "800.00 MiB", "4.00 GiB"),
       .writer = "pytorch_cuda",
       .versions = "2.5-",
       .asked = mib(800),
       .verdict = "shortage",
       .remedies = "raise_limit,use_less,see_who_holds"},
      {.name = "CudaPoolFirstWordsOnly",
       .text = "torch.OutOfMemoryError: Allocation on device",
       .writer = "pytorch_cuda",
       .remedies = "use_less,see_who_holds"},
      {.name = "DecimalCommas",
       .text =
           "RuntimeError: CUDA out of memory. Tried to allocate 1,50 GiB (GPU 0; 23,69 GiB total "
           "capacity; 20,11 GiB already allocated; 1,02 GiB free; 21,30 GiB reserved in total by "
           "PyTorch)",
       .writer = "pytorch_cuda",
       .versions = "1.4-1.9",
       .asked = gib(1.5),
       .verdict = "fragmentation",
       .remedies = "upgrade_pytorch"},
      {.name = "AbsurdWithNumbers",
       .text =
           "CUDA out of memory. Tried to allocate 26214400.00 GiB. GPU 0 has a total capacity of "
           "79.15 GiB of which 1.00 GiB is free. Of the allocated memory 77.10 GiB is allocated "
           "by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.",
       .writer = "pytorch_cuda",
       .versions = "2.2-",
       .asked = gib(26214400),
       .verdict = "shortage",
       .remedies = "check_size,use_less"},
      {.name = "MusaOfAPlugIn",
       .text =
           "RuntimeError: MUSA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total "
           "capacity; 6.90 GiB already allocated; 14.31 MiB free; 7.10 GiB reserved in total by "
           "PyTorch)",
       .writer = "pytorch_other",
       .asked = mib(20),
       .verdict = "fragmentation",
       .remedies = "use_less"},
      {.name = "XpuWithoutFreeMemory",
       .text = "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 4.00 GiB. GPU 0 has a "
               "total capacity of 15.11 GiB. Of the allocated memory 13.50 GiB is allocated by "
               "PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated. Please use "
               "`empty_cache` to release all unoccupied cached memory.",
       .writer = "pytorch_xpu",
       .asked = gib(4),
       .verdict = "shortage",
       .remedies = "use_less,see_who_holds"},
      {.name = "CpuOfTorch1",
       .text =
           "RuntimeError: $ Torch: not enough memory: you tried to allocate 1GB. Buy new RAM! at "
           "/pytorch/aten/src/TH/THGeneral.cpp:201",
       .writer = "pytorch_cpu",
       .asked = gib(1),
       .remedies = "host_memory"},
      {.name = "TpuAllocates",
       .text = "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Error allocating device "
               "buffer: Attempting to allocate 1.00G. That was not possible. There are 672.85M "
               "free.; (0x0x0_HBM0)",
       .writer = "jax",
       .asked = gib(1),
       .verdict = "shortage",
       .remedies = "use_less"},
      {.name = "TpuInPieces",
       .text =
           "RESOURCE_EXHAUSTED: Error loading program: Attempting to reserve 4.00G at the bottom "
           "of memory. That was not possible. There are 7.48G free, 0B reserved, and 3.48G "
           "reservable.",
       .writer = "jax",
       .asked = gib(4),
       .verdict = "fragmentation",
       .remedies = "use_less"},
      {.name = "CudaInACall",
       .text = CUDA_IN_PLACE "stream->get()): out of memory (/src/tllmBuffers.h:115)",
       .writer = "cuda_runtime",
       .remedies = "see_who_holds,use_less"},
      {.name = "CudaWithItsPlace",
       .text = "CUDA error 2 at ggml-cuda.cu:7233: out of memory",
       .writer = "cuda_runtime",
       .remedies = "see_who_holds,use_less"},
      {.name = "PyCuda",
       .text = "pycuda._driver.MemoryError: cuMemAlloc failed: out of memory",
       .writer = "cuda_runtime",
       .remedies = "see_who_holds,use_less"},
      {.name = "CudaCheck",
       .text = "syncedmem.cpp:71] Check failed: error == cudaSuccess (2 vs. 0)  out of memory",
       .writer = "cuda_runtime",
       .remedies = "see_who_holds,use_less"},
      {.name = "Faiss",
       .text =
           "RuntimeError: StandardGpuResources: alloc fail type TemporaryMemoryOverflow dev 0 "
           "space Device stream 0x56 size 1610612736 bytes (cudaMalloc error out of memory [2])",
       .writer = "cuda_runtime",
       .asked = gib(1.5),
       .remedies = "see_who_holds,use_less"},
      {.name = "Hsa",
       .text = "HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary "
               "resources. code: 0x1008 Available Free mem : 0 MB",
       .writer = "hip_runtime",
       .remedies = "see_who_holds,use_less"},
      {.name = "NcclBuffer",
       .text = "node1:1:2 [0] include/alloc.h:178 NCCL WARN Failed to CUDA calloc async 10485760 "
               "bytes",
       .writer = "nccl",
       .asked = mib(10),
       .remedies = "leave_room,nccl_buffers,see_who_holds"},
      {.name = "LevelZero",
       .text = "RuntimeError: level_zero backend failed with error: 39 "
               "(UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
       .writer = "gpu_runtime",
       .remedies = "see_who_holds,use_less"},
      {.name = "OpenCl",
       .text = "pyopencl._cl.MemoryError: clEnqueueNDRangeKernel failed: "
               "MEM_OBJECT_ALLOCATION_FAILURE",
       .writer = "gpu_runtime",
       .remedies = "see_who_holds,use_less"},
      {.name = "DirectMl",
       .text = "RuntimeError: Could not allocate tensor with 1073741824 bytes. There is not enough "
               "GPU video memory available!",
       .writer = "gpu_runtime",
       .asked = gib(1),
       .remedies = "see_who_holds,use_less"},
      {.name = "Gaudi",
       .text = "RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for "
               "size::268435456 (256)MB",
       .writer = "gpu_runtime",
       .asked = mib(256),
       .remedies = "see_who_holds,use_less"},
      {.name = "OllamaInMainMemory",
       .text = "Error: model requires more system memory (5.6 GiB) than is available (3.4 GiB)",
       .writer = "llama_cpp",
       .asked = gib(5.6),
       .verdict = "shortage",
       .remedies = "host_memory"},
      {.name = "SglangPrefill",
       .text =
           "RuntimeError: Prefill out of memory. Try to lower your batch size.\nTry to allocate "
           "8192 tokens.",
       .writer = "sglang",
       .remedies = "sglang_share,use_less"},
      {.name = "Kubelet",
       .text = "Warning  SystemOOM  kubelet  System OOM encountered, victim process: python, pid: "
               "4711",
       .writer = "kernel",
       .verdict = "shortage",
       .remedies = "host_memory"},
      {.name = "Systemd",
       .text = "systemd[1]: train.service: A process of this unit has been killed by the OOM "
               "killer.\nsystemd[1]: train.service: Failed with result 'oom-kill'.",
       .writer = "kernel",
       .verdict = "shortage",
       .remedies = "host_memory"},
      {.name = "DockerInspect",
       .text = R"("State": {"Status": "exited", "OOMKilled": true, "ExitCode": 137})",
       .writer = "kernel",
       .verdict = "shortage",
       .remedies = "host_memory,container_limit"},
      {.name = "SlurmAccounting",
       .text = "123.batch   batch   lab   4 OUT_OF_ME+   0:125",
       .writer = "kernel",
       .verdict = "shortage",
       .remedies = "host_memory,container_limit"},
      {.name = "SlurmOld",
       .text = "slurmstepd: error: Job 123 exceeded memory limit (4200000 > 4194304), being killed",
       .writer = "kernel",
       .verdict = "shortage",
       .remedies = "host_memory,container_limit"},
      {.name = "Pbs",
       .text = "=>> PBS: job killed: mem 67123456kb exceeded limit 67108864kb",
       .writer = "kernel",
       .verdict = "shortage",
       .remedies = "host_memory,container_limit"},
      {.name = "Condor",
       .text = "Job has gone over memory limit of 2048 megabytes. Peak usage: 2100 megabytes.",
       .writer = "kernel",
       .verdict = "shortage",
       .remedies = "host_memory,container_limit"},
      {.name = "DeepspeedLauncher",
       .text =
           "['/usr/bin/python', '-u', 'train.py', '--local_rank=7'] exits with return code = -9",
       .writer = "killed",
       .remedies = "kernel_log,host_memory"},
      {.name = "Rust",
       .text = "memory allocation of 34359738368 bytes failed",
       .writer = "cpp",
       .asked = gib(32),
       .remedies = "host_memory"},
      {.name = "PagingFileOfRust",
       .text = "OSError: The paging file is too small for this operation to complete. (os error "
               "1455)",
       .writer = "python",
       .remedies = "host_memory"},
  };
}

}  // namespace headroom::diagnose::testing
