#include "bindings/pytorch/torch_allocator.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <mutex>
#include <unordered_map>

#include <c10/core/AllocatorConfig.h>
#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

namespace headroom_torch {

namespace bridge = headroom::bridge;

namespace {

// --- Streams and devices -------------------------------------------------------------------------

bridge::NativeStream to_bridge(cudaStream_t stream) noexcept {
  return reinterpret_cast<bridge::NativeStream>(stream);
}

// PyTorch's own streams live as long as the process, and have odd ids; those of others have their
// handle for an id.
bool is_lasting(const c10::cuda::CUDAStream& stream) noexcept {
  return (static_cast<std::uint64_t>(stream.id()) & 1U) != 0;
}

bridge::PoolKey to_bridge(const c10::MempoolId_t& pool) noexcept {
  return {.graph = pool.first, .user = pool.second};
}
c10::MempoolId_t to_torch(const bridge::PoolKey& pool) noexcept { return {pool.graph, pool.user}; }

c10::DeviceIndex current_device() {
  c10::DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  return device;
}

// Most calls are about a device that is open.
bridge::DeviceMemory& memory_of(c10::DeviceIndex device) {
  if (bridge::DeviceMemory* const memory = bridge::opened_memory(device)) return *memory;
  return bridge::device_memory(device);
}

// --- What else wants to know of a block ----------------------------------------------------------

void tell_profiler(bridge::DeviceMemory& memory,
                   void* block,
                   std::int64_t change,
                   c10::DeviceIndex device) {
  c10::reportMemoryUsageToProfiler(block,
                                   change,
                                   memory.allocated_bytes(),
                                   memory.reserved_bytes(),
                                   c10::Device(c10::DeviceType::CUDA, device));
}

void report_allocation(bridge::DeviceMemory& memory, void* block, c10::DeviceIndex device) {
  if (const c10::impl::PyInterpreter* const trace = c10::impl::GPUTrace::get_trace();
      C10_UNLIKELY(trace != nullptr)) {
    (*trace)->trace_gpu_memory_allocation(c10::kCUDA, reinterpret_cast<uintptr_t>(block));
  }
  if (C10_UNLIKELY(c10::memoryProfilingEnabled())) {
    tell_profiler(memory, block, static_cast<std::int64_t>(memory.block_bytes(block)), device);
  }
}

[[noreturn]] void fail(bridge::DeviceMemory& memory, size_t size, c10::DeviceIndex device) {
  const bridge::Failure& failure = bridge::last_failure();
  TORCH_CHECK(failure.is_out_of_memory, failure.text);
  if (c10::memoryProfilingEnabled()) {
    c10::reportOutOfMemoryToProfiler(static_cast<std::int64_t>(size),
                                     memory.allocated_bytes(),
                                     memory.reserved_bytes(),
                                     c10::Device(c10::DeviceType::CUDA, device));
  }
  throw c10::OutOfMemoryError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)},
                              failure.text);
}

void* take(c10::DeviceIndex device, size_t size, bridge::NativeStream stream, bool is_lasting) {
  if (size == 0) return nullptr;
  bridge::DeviceMemory& memory = memory_of(device);
  void* const block = memory.allocate(size, stream, is_lasting);
  if (C10_UNLIKELY(block == nullptr)) fail(memory, size, device);
  report_allocation(memory, block, device);
  return block;
}

void* take_on_current_stream(c10::DeviceIndex device, size_t size) {
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(device);
  if (stream.id() == 0) return take(device, size, 0, true);
  return take(device, size, to_bridge(stream.stream()), is_lasting(stream));
}

// The device whose block this is, and the block's size; for the profiler only.
void tell_profiler_of_free(void* block) {
  for (int i = 0; i < bridge::opened_count(); ++i) {
    bridge::DeviceMemory* const memory = bridge::opened_memory(i);
    if (memory == nullptr) continue;
    const std::uint64_t size = memory->block_bytes(block);
    if (size == 0) continue;
    tell_profiler(
        *memory, block, -static_cast<std::int64_t>(size), static_cast<c10::DeviceIndex>(i));
    return;
  }
}

void give(void* block) {
  if (block == nullptr) return;
  if (const c10::impl::PyInterpreter* const trace = c10::impl::GPUTrace::get_trace();
      C10_UNLIKELY(trace != nullptr)) {
    (*trace)->trace_gpu_memory_deallocation(c10::kCUDA, reinterpret_cast<uintptr_t>(block));
  }
  if (C10_UNLIKELY(c10::memoryProfilingEnabled())) tell_profiler_of_free(block);
  const bool is_known = bridge::free_block(block);
  TORCH_CHECK(is_known, "invalid device pointer: ", block);
}

// While caching is switched off.
void* take_uncached(size_t size) {
  void* block = nullptr;
  if (size != 0) C10_CUDA_CHECK(cudaMalloc(&block, size));
  return block;
}
void give_uncached(void* block) { C10_CUDA_CHECK(cudaFree(block)); }

HeadroomAllocator* g_installed = nullptr;  // NOLINT(readability-identifier-naming)

void delete_block(void* block) { give(block); }

}  // namespace

// --- Blocks --------------------------------------------------------------------------------------

c10::DataPtr HeadroomAllocator::allocate(size_t size) {
  const c10::DeviceIndex device = current_device();
  const c10::Device where(c10::DeviceType::CUDA, device);
  if (C10_UNLIKELY(!isEnabled())) {
    void* const block = take_uncached(size);
    return {block, block, &give_uncached, where};
  }
  void* const block = take_on_current_stream(device, size);
  return {block, block, &delete_block, where};
}

c10::DeleterFnPtr HeadroomAllocator::raw_deleter() const {
  return isEnabled() ? &delete_block : &give_uncached;
}

void HeadroomAllocator::copy_data(void* to, const void* from, std::size_t count) const {
  C10_CUDA_CHECK(cudaMemcpy(to, from, count, cudaMemcpyKind::cudaMemcpyDeviceToDevice));
}

void* HeadroomAllocator::raw_alloc(size_t size) {
  return take_on_current_stream(current_device(), size);
}

void* HeadroomAllocator::raw_alloc_with_stream(size_t size, cudaStream_t stream) {
  return take(current_device(), size, to_bridge(stream), false);
}

void HeadroomAllocator::raw_delete(void* block) { give(block); }

void HeadroomAllocator::recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) {
  // Memory that somebody else deletes is not ours: of another process, say.
  if (data.get() == nullptr || data.get_deleter() != &delete_block) return;
  memory_of(data.device().index())
      .record_stream(
          data.get(), stream.id() == 0 ? 0 : to_bridge(stream.stream()), is_lasting(stream));
}

void* HeadroomAllocator::getBaseAllocation(void* block, size_t* size) {
  for (int i = 0; i < bridge::opened_count(); ++i) {
    bridge::DeviceMemory* const memory = bridge::opened_memory(i);
    void* const base = memory == nullptr ? nullptr : memory->segment_of(block, size);
    if (base != nullptr) return base;
  }
  TORCH_CHECK(false, "invalid device pointer: ", block);
}

// --- Starting, stopping, limits ------------------------------------------------------------------

void HeadroomAllocator::init(int) { is_initialized_.store(true, std::memory_order_release); }

double HeadroomAllocator::getMemoryFraction(c10::DeviceIndex device) {
  return memory_of(device).memory_fraction();
}

void HeadroomAllocator::setMemoryFraction(double fraction, c10::DeviceIndex device) {
  TORCH_CHECK(
      0 <= fraction && fraction <= 1, "invalid fraction:", fraction, ". Please set within [0, 1].");
  memory_of(device).set_memory_fraction(fraction);
}

void HeadroomAllocator::emptyCache(c10::MempoolId_t pool) {
  (void)bridge::empty_caches(to_bridge(pool));
}

void HeadroomAllocator::cacheInfo(c10::DeviceIndex device, size_t* largest) {
  *largest = std::max(*largest, static_cast<size_t>(memory_of(device).largest_request_bytes()));
}

std::vector<cca::StreamSegmentSize> HeadroomAllocator::getExpandableSegmentSizes(
    c10::DeviceIndex device) {
  std::vector<cca::StreamSegmentSize> sizes;
  for (const bridge::Segment& segment : memory_of(device).segments({})) {
    if (!segment.is_expandable) continue;
    auto* const stream = reinterpret_cast<cudaStream_t>(segment.stream);
    const auto known = std::ranges::find_if(sizes, [&](const cca::StreamSegmentSize& size) {
      return size.stream == stream && size.is_small_pool == !segment.is_large;
    });
    if (known != sizes.end()) {
      known->total_size += segment.size_bytes;
    } else {
      sizes.emplace_back(stream, !segment.is_large, segment.size_bytes);
    }
  }
  return sizes;
}

// --- Pools ---------------------------------------------------------------------------------------

void HeadroomAllocator::beginAllocateToPool(c10::DeviceIndex device,
                                            c10::MempoolId_t pool,
                                            std::function<bool(cudaStream_t)> filter) {
  const auto ask = [filter = std::move(filter)](bridge::NativeStream stream) {
    return filter(reinterpret_cast<cudaStream_t>(stream));
  };
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(device);
  memory_of(device).begin_allocate_to_pool(
      to_bridge(pool), ask, stream.id() == 0 ? 0 : to_bridge(stream.stream()));
}

void HeadroomAllocator::endAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool) {
  memory_of(device).end_allocate_to_pool(to_bridge(pool));
}

void HeadroomAllocator::releasePool(c10::DeviceIndex device, c10::MempoolId_t pool) {
  memory_of(device).release_pool(to_bridge(pool));
}

int HeadroomAllocator::getPoolUseCount(c10::DeviceIndex device, c10::MempoolId_t pool) {
  return memory_of(device).pool_use_count(to_bridge(pool));
}

void HeadroomAllocator::createOrIncrefPool(c10::DeviceIndex device,
                                           c10::MempoolId_t pool,
                                           std::shared_ptr<cca::CUDAAllocator> source) {
  bridge::DeviceMemory& memory = memory_of(device);
  memory.retain_pool(to_bridge(pool));
  if (source == nullptr) return;
  memory.set_pool_source(to_bridge(pool),
                         {.allocate =
                              [source, device](std::size_t size, bridge::NativeStream stream) {
                                const c10::cuda::CUDAGuard guard(device);
                                return source->raw_alloc_with_stream(
                                    size, reinterpret_cast<cudaStream_t>(stream));
                              },
                          .free = [source](void* segment) { source->raw_delete(segment); }});
}

void HeadroomAllocator::setUseOnOOM(c10::DeviceIndex device,
                                    c10::MempoolId_t pool,
                                    bool use_on_oom) {
  memory_of(device).set_pool_use_on_failure(to_bridge(pool), use_on_oom);
}

void HeadroomAllocator::setNoSplit(c10::DeviceIndex device, c10::MempoolId_t pool) {
  memory_of(device).set_pool_no_split(to_bridge(pool));
}

bool HeadroomAllocator::checkPoolLiveAllocations(c10::DeviceIndex device,
                                                 c10::MempoolId_t pool,
                                                 const std::unordered_set<void*>& expected) {
  bridge::DeviceMemory& memory = memory_of(device);
  TORCH_CHECK(memory.pool_use_count(to_bridge(pool)) > 0, "Could not find pool of id");
  return memory.holds_exactly(to_bridge(pool), expected);
}

namespace {

struct Checkpoint final : cca::AllocatorState {
  bridge::PoolState pool{};
};

}  // namespace

std::shared_ptr<cca::AllocatorState> HeadroomAllocator::getCheckpointState(c10::DeviceIndex device,
                                                                           c10::MempoolId_t pool) {
  auto state = std::make_shared<Checkpoint>();
  state->pool = memory_of(device).pool_state(to_bridge(pool));
  return state;
}

cca::CheckpointDelta HeadroomAllocator::setCheckpointPoolState(
    c10::DeviceIndex device, std::shared_ptr<cca::AllocatorState> state) {
  const auto* const checkpoint = dynamic_cast<const Checkpoint*>(state.get());
  TORCH_CHECK(checkpoint != nullptr, "the state is not of headroom's allocator");
  const bridge::PoolChange change = memory_of(device).restore_pool(checkpoint->pool);
  cca::CheckpointDelta delta;
  delta.ptrs_freed = change.freed;
  const c10::Device where(c10::DeviceType::CUDA, device);
  for (void* const block : change.allocated) {
    delta.dataptrs_allocd.emplace_back(block, block, &delete_block, where);
  }
  return delta;
}

// --- Other devices and processes -----------------------------------------------------------------

cca::ShareableHandle HeadroomAllocator::shareIpcHandle(void* block) {
  for (int i = 0; i < bridge::opened_count(); ++i) {
    bridge::DeviceMemory* const memory = bridge::opened_memory(i);
    if (memory == nullptr || memory->segment_of(block, nullptr) == nullptr) continue;
    const bridge::ShareableBlock shared = memory->share(block);
    return {shared.offset_bytes, shared.handle};
  }
  TORCH_CHECK(false, "invalid device pointer: ", block);
}

std::shared_ptr<void> HeadroomAllocator::getIpcDevPtr(std::string handle) {
  const c10::DeviceIndex device = current_device();
  std::shared_ptr<void> opened = memory_of(device).open_shared(handle);
  void* const base = opened.get();
  // Unmapped once no kernel of this device uses it.
  return {base, [opened = std::move(opened), device](void*) mutable {
            const c10::cuda::CUDAGuard guard(device);
            (void)cudaDeviceSynchronize();
            opened.reset();
          }};
}

void HeadroomAllocator::enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex peer) {
  memory_of(peer).allow_peer(device);
  // Memory that other libraries take with cudaMalloc.
  const c10::cuda::CUDAGuard guard(device);
  const cudaError_t enabled = cudaDeviceEnablePeerAccess(peer, 0);
  if (enabled == cudaErrorPeerAccessAlreadyEnabled) {
    (void)cudaGetLastError();
  } else {
    C10_CUDA_CHECK(enabled);
  }
}

cudaError_t HeadroomAllocator::memcpyAsync(void* to,
                                           int to_device,
                                           const void* from,
                                           int from_device,
                                           size_t count,
                                           cudaStream_t stream,
                                           bool p2p_enabled) {
  if (p2p_enabled || to_device == from_device) {
    return cudaMemcpyAsync(to, from, count, cudaMemcpyDeviceToDevice, stream);
  }
  // Mapped memory is not copied from card to card by the plain call.
  return cudaMemcpyPeerAsync(to, to_device, from, from_device, count, stream);
}

// --- Installing ----------------------------------------------------------------------------------

namespace {

// What libraries registered to be asked when memory is short: memory of other processes, say.
bool run_free_callbacks() {
  bool has_freed = false;
  for (const std::string& name : c10::FreeCudaMemoryCallbacksRegistry()->Keys()) {
    has_freed |= c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
  }
  return has_freed;
}

void tell_ignored(const std::vector<std::string>& variables) {
  if (variables.empty()) return;
  std::string names;
  for (const std::string& name : variables) names += (names.empty() ? "" : ", ") + name;
  std::fprintf(stderr,
               "headroom: ignored: %s (for PyTorch's own allocator; HEADROOM_ALLOC_CONF sets "
               "headroom's)\n",
               names.c_str());
}

}  // namespace

void install(const bridge::Settings& settings) {
  TORCH_CHECK(g_installed == nullptr, "headroom is PyTorch's allocator already");
  TORCH_CHECK(
      !cca::get()->initialized(),
      "CUDA has started already, and PyTorch's allocator has memory: enable headroom before "
      "the first tensor on a GPU, or start the program with 'python -m headroom.torch'");
  tell_ignored(bridge::configure(settings));
  start_clock();
  // Never destroyed: tensors in static variables are freed while the program ends.
  static const auto& allocator =
      *new std::shared_ptr<HeadroomAllocator>(std::make_shared<HeadroomAllocator>());
  torch::cuda::CUDAPluggableAllocator::changeCurrentAllocator(allocator);
  // For torch.accelerator, which asks by the type of device. PyTorch's own has priority 0 or 1.
  c10::SetAllocator(c10::DeviceType::CUDA, allocator.get(), 1);
  bridge::add_free_callback(run_free_callbacks);
  g_installed = allocator.get();
}

bool is_installed() noexcept { return g_installed != nullptr && cca::get() == g_installed; }

}  // namespace headroom_torch
