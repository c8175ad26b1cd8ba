// HeadroomAllocator: headroom's allocator as PyTorch's CUDA allocator. It translates and decides
// nothing: what it calls is in bridge/.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <c10/cuda/CUDACachingAllocator.h>

#include "bindings/pytorch/bridge/bridge.h"

namespace headroom_torch {

namespace cca = c10::cuda::CUDACachingAllocator;

class HeadroomAllocator final : public cca::CUDAAllocator {
 public:
  // --- Blocks ---
  c10::DataPtr allocate(size_t size) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, std::size_t count) const override;
  void* raw_alloc(size_t size) override;
  void* raw_alloc_with_stream(size_t size, cudaStream_t stream) override;
  void raw_delete(void* block) override;
  void recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) override;
  void* getBaseAllocation(void* block, size_t* size) override;

  // --- Starting, stopping, limits ---
  void init(int device_count) override;
  bool initialized() override { return is_initialized_.load(std::memory_order_acquire); }
  void enable(bool value) override { is_enabled_.store(value, std::memory_order_relaxed); }
  bool isEnabled() const override { return is_enabled_.load(std::memory_order_relaxed); }
  double getMemoryFraction(c10::DeviceIndex device) override;
  void setMemoryFraction(double fraction, c10::DeviceIndex device) override;
  void emptyCache(c10::MempoolId_t pool) override;
  void cacheInfo(c10::DeviceIndex device, size_t* largest) override;
  std::vector<cca::StreamSegmentSize> getExpandableSegmentSizes(c10::DeviceIndex device) override;

  // --- Statistics and history ---
  cca::DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override;
  void resetPeakStats(c10::DeviceIndex device) override;
  cca::SnapshotInfo snapshot(c10::MempoolId_t pool, bool include_traces) override;
  bool isHistoryEnabled() override;
  void recordHistory(bool enabled,
                     cca::CreateContextFn context_recorder,
                     size_t max_entries,
                     cca::RecordContext when,
                     bool clears,
                     const std::vector<std::string>& skip_actions) override;
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& fields) override;
  void pushCompileContext(std::string& text) override;
  void popCompileContext() override;
  void setUserMetadata(const std::string& text) override;
  std::string getUserMetadata() override;
  void attachOutOfMemoryObserver(cca::OutOfMemoryObserver observer) override;
  void attachAllocatorTraceTracker(cca::AllocatorTraceTracker tracker) override;

  // --- Pools ---
  void beginAllocateToPool(c10::DeviceIndex device,
                           c10::MempoolId_t pool,
                           std::function<bool(cudaStream_t)> filter) override;
  void endAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool) override;
  void releasePool(c10::DeviceIndex device, c10::MempoolId_t pool) override;
  int getPoolUseCount(c10::DeviceIndex device, c10::MempoolId_t pool) override;
  void createOrIncrefPool(c10::DeviceIndex device,
                          c10::MempoolId_t pool,
                          std::shared_ptr<cca::CUDAAllocator> source) override;
  void setUseOnOOM(c10::DeviceIndex device, c10::MempoolId_t pool, bool use_on_oom) override;
  void setNoSplit(c10::DeviceIndex device, c10::MempoolId_t pool) override;
  bool checkPoolLiveAllocations(c10::DeviceIndex device,
                                c10::MempoolId_t pool,
                                const std::unordered_set<void*>& expected) override;
  std::shared_ptr<cca::AllocatorState> getCheckpointState(c10::DeviceIndex device,
                                                          c10::MempoolId_t pool) override;
  cca::CheckpointDelta setCheckpointPoolState(c10::DeviceIndex device,
                                              std::shared_ptr<cca::AllocatorState> state) override;

  // --- Other devices and processes ---
  cca::ShareableHandle shareIpcHandle(void* block) override;
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override;
  void enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex peer) override;
  cudaError_t memcpyAsync(void* to,
                          int to_device,
                          const void* from,
                          int from_device,
                          size_t count,
                          cudaStream_t stream,
                          bool p2p_enabled) override;

  // Public code tests for "native" before it uses what only PyTorch's own allocator used to have;
  // this one has all of it.
  std::string name() override { return "native"; }

 private:
  std::atomic<bool> is_initialized_{false};
  std::atomic<bool> is_enabled_{true};
};

// Makes it PyTorch's allocator, for the rest of the process. Throws c10::Error where CUDA has
// started already.
void install(const headroom::bridge::Settings& settings);
[[nodiscard]] bool is_installed() noexcept;

// The times of annotations are counted from here.
void start_clock();

}  // namespace headroom_torch
