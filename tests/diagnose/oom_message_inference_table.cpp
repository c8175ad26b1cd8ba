// Messages of programs that serve models or move data, and of schedulers.
#include "tests/diagnose/oom_message_table.h"

namespace headroom::diagnose::testing {

std::vector<MessageRow> inference_messages() {
  return {
      // --- Serving ---
      {.name = "OnnxRuntime",
       .text = "[E:onnxruntime:, sequential_executor.cc:514 ExecuteKernel] Non-zero status code "
               "returned while running Conv node. Name:'c' Status Message: "
               "/onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:376 void* "
               "onnxruntime::BFCArena::AllocateRawInternal(size_t, bool) Failed to allocate memory "
               "for requested buffer of size 268435456",
       .writer = "onnxruntime",
       .asked = mib(256),
       .remedies = "use_less,onnxruntime_arena,see_who_holds"},
      {.name = "OnnxRuntimeLimit",
       .text = "bfc_arena.cc:342 void* onnxruntime::BFCArena::AllocateRawInternal(size_t, bool) "
               "Available memory of 1342177280 is smaller than requested bytes of 2147483648",
       .writer = "onnxruntime",
       .asked = gib(2),
       .verdict = "shortage",
       .remedies = "use_less,onnxruntime_arena,see_who_holds"},
      {.name = "OnnxRuntimeSizeIsGarbage",
       .text = "onnxruntime::BFCArena::AllocateRawInternal Failed to allocate memory for requested "
               "buffer of size 4611686018427387904",
       .writer = "onnxruntime",
       .asked = 4611686018427387904U,
       .remedies = "check_size,use_less,onnxruntime_arena,see_who_holds"},
      {.name = "TensorRtBuilder",
       .text = "[TRT] [E] 2: [virtualMemoryBuffer.cpp::resizePhysical::145] Error Code 2: "
               "OutOfMemory (no further information)\n[TRT] [W] Requested amount of GPU memory "
               "(4294967296 bytes) could not be allocated. There may not be enough free memory for "
               "allocation to succeed.",
       .writer = "tensorrt",
       .asked = gib(4),
       .remedies = "tensorrt_workspace,use_less,see_who_holds"},
      {.name = "TensorRtSize",
       .text = "[E] [virtualMemoryBuffer.cpp::resizePhysical::140] Error Code 2: OutOfMemory "
               "(Requested size was 8589934592 bytes.)",
       .writer = "tensorrt",
       .asked = gib(8),
       .remedies = "tensorrt_workspace,use_less,see_who_holds"},
      {.name = "TensorRtOld",
       .text = "[TensorRT] ERROR: ../rtSafe/safeRuntime.cpp (25) - Cuda Error in allocate: 2 (out "
               "of memory)",
       .writer = "tensorrt",
       .remedies = "tensorrt_workspace,use_less,see_who_holds"},
      {.name = "LlamaCpp",
       .text = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 1: "
               "cudaMalloc failed: out of memory\nggml_gallocr_reserve_n: failed to allocate CUDA1 "
               "buffer of size 4294967296\nllama_init_from_model: failed to initialize the context",
       .writer = "llama_cpp",
       .asked = gib(4),
       .remedies = "llama_cpp_fewer_layers,see_who_holds"},
      {.name = "LlamaCppSecondLineAlone",
       .text = "alloc_tensor_range: failed to allocate ROCm0 buffer of size 4294967296",
       .writer = "llama_cpp",
       .asked = gib(4),
       .remedies = "llama_cpp_fewer_layers,see_who_holds"},
      {.name = "LlamaCppPool",
       .text =
           "CUDA error: out of memory\n  current device: 0, in function alloc at "
           "ggml/src/ggml-cuda/ggml-cuda.cu:445\n  cuMemCreate(&handle, reserve_size, &prop, 0)",
       .writer = "llama_cpp",
       .remedies = "llama_cpp_fewer_layers,see_who_holds"},
      {.name = "LlamaCppVulkan",
       .text = "ggml_vulkan: Device memory allocation of size 1073741824 failed.",
       .writer = "llama_cpp",
       .asked = gib(1),
       .remedies = "llama_cpp_fewer_layers,see_who_holds"},
      {.name = "MetalBuffer",
       .text = "RuntimeError: [metal::malloc] Attempting to allocate 42949672960 bytes which is "
               "greater than the maximum allowed buffer size of 21474836480 bytes.",
       .writer = "metal",
       .asked = gib(40),
       .verdict = "shortage",
       .remedies = "use_less"},
      {.name = "MetalCommandBuffer",
       .text = "[METAL] Command buffer execution failed: Insufficient Memory "
               "(00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
       .writer = "metal",
       .remedies = "use_less"},
      {.name = "Sglang",
       .text = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
       .writer = "sglang",
       .remedies = "sglang_share,use_less"},
      {.name = "VllmContextNew",
       .text = "ValueError: To serve at least one request with the models's max seq len (131072), "
               "16.00 GiB KV cache is needed, which is larger than the available KV cache memory "
               "(7.63 GiB). Based on the available memory, the estimated maximum model length is "
               "62512.",
       .writer = "vllm",
       .asked = gib(16),
       .verdict = "shortage",
       .remedies = "vllm_raise_share,vllm_shorter_context"},
      {.name = "VllmWarmUp",
       .text = "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy "
               "requests. Please try lowering `max_num_seqs` or `gpu_memory_utilization` when "
               "initializing the engine.",
       .writer = "vllm",
       .remedies = "vllm_lower_share,vllm_shorter_context"},

      // --- Data and other frameworks ---
      {.name = "RmmPool",
       .text = "MemoryError: std::bad_alloc: out_of_memory: RMM failure "
               "at:/opt/rmm/mr/device/pool_memory_resource.hpp:196: Maximum pool size exceeded",
       .writer = "rmm",
       .remedies = "rmm_pool,use_less,see_who_holds"},
      {.name = "RmmDevice",
       .text = "MemoryError: std::bad_alloc: out_of_memory: CUDA error (failed to allocate "
               "8589934592 bytes) at: /opt/include/rmm/mr/device/cuda_memory_resource.hpp:62: "
               "cudaErrorMemoryAllocation out of memory",
       .writer = "rmm",
       .asked = gib(8),
       .remedies = "rmm_pool,use_less,see_who_holds"},
      {.name = "Thrust",
       .text =
           "terminate called after throwing an instance of 'thrust::system::detail::bad_alloc'\n"
           "  what():  std::bad_alloc: cudaErrorMemoryAllocation: out of memory",
       .writer = "cuda_runtime",
       .remedies = "see_who_holds,use_less"},
      {.name = "Numba",
       .text = "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results in "
               "CUDA_ERROR_OUT_OF_MEMORY",
       .writer = "cuda_runtime",
       .remedies = "see_who_holds,use_less"},
      {.name = "Xgboost",
       .text = "xgboost.core.XGBoostError: Exception in gpu_hist: device_vector.cuh:100: Memory "
               "allocation error on worker 0: Caching allocator\n- Free memory: 1GB\n- Requested "
               "memory: 4GB",
       .writer = "cuda_runtime",
       .asked = gib(4),
       .remedies = "see_who_holds,use_less"},
      {.name = "Paddle",
       .text = "ResourceExhaustedError:\n\nOut of memory error on GPU 0. Cannot allocate "
               "2.500000GB memory on GPU 0, 21.000000GB memory has been allocated and available "
               "memory is only 1.500000GB.",
       .writer = "paddle",
       .asked = gib(2.5),
       .verdict = "shortage",
       .remedies = "use_less,see_who_holds"},
      {.name = "Cusparse",
       .text = "RuntimeError: CUDA error: insufficient resources when calling "
               "`cusparseCreate(handle)`",
       .writer = "cuda_library",
       .remedies = "leave_room,use_less,see_who_holds"},
      {.name = "CupyLimit",
       .text = "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 4,294,967,296 bytes "
               "(allocated so far: 8,589,934,592 bytes, limit set to: 10,737,418,240 bytes).",
       .writer = "cupy",
       .asked = gib(4),
       .verdict = "shortage",
       .remedies = "use_less,see_who_holds"},
      {.name = "TensorFlowOnTheHost",
       .text = "ResourceExhaustedError: OOM when allocating tensor with shape[1024,1024,1024] and "
               "type float on /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu",
       .writer = "tensorflow",
       .asked = gib(4),
       .remedies = "host_memory"},
      {.name = "TensorFlowEager",
       .text = "tensorflow.python.framework.errors_impl.ResourceExhaustedError: failed to allocate "
               "memory [Op:AddV2]",
       .writer = "tensorflow",
       .remedies = "use_less,tensorflow_growth,see_who_holds"},
      {.name = "JaxDriver",
       .text = "XlaRuntimeError: RESOURCE_EXHAUSTED: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
       .writer = "jax",
       .remedies = "use_less,xla_fraction,xla_preallocation,see_who_holds"},

      // --- Main memory, and who watches it ---
      {.name = "Ray",
       .text = "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on "
               "memory.\nMemory on the node (IP: 10.0.0.2, ID: ab) where the task (actor ID: cd, "
               "name=Trainer.__init__, pid=4331, memory used=12.00GB) was running was 60.00GB / "
               "62.00GB (0.967742), which exceeds the memory usage threshold of 0.95.",
       .writer = "ray",
       .verdict = "shortage",
       .remedies = "host_memory,ray_threshold"},
      {.name = "RayRaylet",
       .text = "(raylet) node_manager.cc:3277: 2 Workers (tasks / actors) killed due to memory "
               "pressure (OOM), 0 Workers crashed due to other reasons",
       .writer = "ray",
       .verdict = "shortage",
       .remedies = "host_memory,ray_threshold"},
      {.name = "SlurmTask",
       .text = "srun: error: node01: task 0: Out Of Memory",
       .writer = "kernel",
       .verdict = "shortage",
       .remedies = "host_memory,container_limit"},
      {.name = "SlurmLimit",
       .text = "slurmstepd: error: Exceeded job memory limit at some point.",
       .writer = "kernel",
       .verdict = "shortage",
       .remedies = "host_memory,container_limit"},
      {.name = "KubernetesEviction",
       .text = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 80Mi.",
       .writer = "kernel",
       .verdict = "shortage",
       .remedies = "host_memory"},
      {.name = "Yarn",
       .text = "Container killed by YARN for exceeding memory limits. 5.5 GB of 5.5 GB physical "
               "memory used.",
       .writer = "kernel",
       .verdict = "shortage",
       .remedies = "host_memory,container_limit"},
      {.name = "Lsf",
       .text = "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.",
       .writer = "kernel",
       .verdict = "shortage",
       .remedies = "host_memory,container_limit"},
      {.name = "Docker",
       .text = "train exited with code 137",
       .writer = "killed",
       .remedies = "kernel_log,host_memory"},
      {.name = "Torchrun",
       .text = "Signal 9 (SIGKILL) received by PID 4711",
       .writer = "killed",
       .remedies = "kernel_log,host_memory"},
      {.name = "Mpirun",
       .text = "mpirun noticed that process rank 3 with PID 4711 on node n1 exited on signal 9 "
               "(Killed).",
       .writer = "killed",
       .remedies = "kernel_log,host_memory"},
      {.name = "PagingFile",
       .text = "OSError: [WinError 1455] The paging file is too small for this operation to "
               "complete.",
       .writer = "python",
       .remedies = "host_memory"},
      {.name = "Fork",
       .text = "bash: fork: Cannot allocate memory",
       .writer = "python",
       .remedies = "host_memory"},
      {.name = "SharedMemoryOfNccl",
       .text = "Last error:\nError while creating shared memory segment /dev/shm/nccl-x (size "
               "9637888)",
       .writer = "shared_memory",
       .remedies = "shared_memory_size"},
      {.name = "SharedMemoryOfATensor",
       .text = "RuntimeError: unable to allocate shared memory(shm) for file </torch_1_2_3>: No "
               "space left on device (28)",
       .writer = "shared_memory",
       .remedies = "shared_memory_size"},
  };
}

}  // namespace headroom::diagnose::testing
