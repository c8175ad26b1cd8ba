#include "headroom/device/cpu/cpu_device.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>
#include <unordered_map>
#include <utility>

#include "headroom/base/checked.h"
#include "headroom/base/error.h"
#include "headroom/device/cpu/internal/areas.h"
#include "headroom/device/cpu/internal/bytes.h"
#include "headroom/device/cpu/internal/hierarchy.h"
#include "headroom/device/cpu/internal/machine.h"
#include "headroom/device/cpu/internal/measure.h"
#include "headroom/device/cpu/internal/memory.h"
#include "headroom/device/cpu/internal/process.h"
#include "headroom/device/cpu/internal/stream_table.h"
#include "headroom/device/internal/status.h"

namespace headroom::device {
namespace {

using internal::CopyTask;
using internal::Extent;
using internal::fail;
using internal::FillTask;
using internal::PoisonTask;
using internal::to_pointer;

std::uint64_t default_capacity() {
  return round_down(CpuDevice::machine_memory_bytes() / 2, 2_MiB);
}

std::uint64_t checked_capacity(const CpuOptions& options) {
  if (!options.capacity_bytes) return default_capacity();
  const std::uint64_t asked = *options.capacity_bytes;
  const std::uint64_t machine = CpuDevice::machine_memory_bytes();
  const std::string name = to_string(DeviceId{DeviceKind::kCpu, options.index});
  if (asked == 0) {
    throw InvalidArgument(name + ": a capacity of 0 holds nothing; ask for up to " +
                          format_bytes(machine) + ", or leave it out for " +
                          format_bytes(default_capacity()));
  }
  if (asked > machine) {
    throw InvalidArgument(name + ": a capacity of " + format_bytes(asked) +
                          " is more than this machine's " + format_bytes(machine) +
                          " of memory; ask for less, or use a meta device, which needs none");
  }
  return asked;
}

std::uint64_t checked_granularity(const CpuOptions& options) {
  const std::uint64_t asked = options.granularity_bytes;
  const std::uint64_t page = internal::system_page_bytes();
  constexpr std::uint64_t kMax = 1_GiB;
  if (is_power_of_two(asked) && asked >= page && asked <= kMax) return asked;
  throw InvalidArgument(to_string(DeviceId{DeviceKind::kCpu, options.index}) +
                        ": a granularity of " + format_bytes(asked) +
                        " cannot work; use a power of two from " + format_bytes(page) + " to " +
                        format_bytes(kMax));
}

Properties make_properties(const CpuOptions& options) {
  const internal::CpuDescription& cpu = internal::this_cpu();
  return {.id = {DeviceKind::kCpu, options.index},
          .name = cpu.name,
          .total_bytes = checked_capacity(options),
          .granularity_bytes = checked_granularity(options),
          .max_reservation_bytes = CpuDevice::kMaxReservationBytes,
          .multiprocessors = cpu.cores,
          .architecture = cpu.architecture,
          .host_accessible = true,
          .has_virtual_memory = true,
          .hierarchy = cpu.hierarchy};
}

// Sleeping is only as exact as the scheduler, so the last stretch is spent looking at the clock.
void wait_ns(double nanoseconds) {
  if (nanoseconds <= 0) return;
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::microseconds kStretch{100};
  const auto until =
      Clock::now() + std::chrono::nanoseconds(static_cast<std::int64_t>(nanoseconds));
  if (until - Clock::now() > kStretch) std::this_thread::sleep_until(until - kStretch);
  while (Clock::now() < until) {
  }
}

void wait_as(const CallCost& cost, Extent extent) {
  wait_ns(static_cast<double>(extent.handles) * cost.base_ns +
          static_cast<double>(extent.size_bytes) * cost.per_byte_ns);
}

struct FreeHostMemory {
  void operator()(void* pointer) const noexcept { std::free(pointer); }
};
using HostMemory = std::unique_ptr<void, FreeHostMemory>;

std::string process_name() {
  std::string name = internal::read_text("/proc/self/comm").value_or("");
  if (!name.empty() && name.back() == '\n') name.pop_back();
  return name;
}

}  // namespace

struct CpuDevice::State {
  State(const CpuOptions& options, const Properties& properties)
      : latencies(options.latencies),
        memory(options.index,
               {.capacity_bytes = properties.total_bytes,
                .granularity_bytes = properties.granularity_bytes,
                .max_reservation_bytes = properties.max_reservation_bytes,
                .max_mappings = kMaxMappings}),
        streams(options.index) {}

  const CallCosts latencies;
  internal::CpuMemory memory;
  std::mutex pinned_mutex;
  std::unordered_map<void*, HostMemory> pinned;
  internal::StreamTable streams;  // last: what is queued runs before anything it may use goes away
  State* next_abandoned = nullptr;
};

CpuDevice::CpuDevice(Properties properties, std::unique_ptr<State> state)
    : Device(std::move(properties)), state_(std::move(state)) {
  set_tracks_blocks(internal::kHasAddressSanitizer);
}

// After a fork the threads, the mappings and perhaps a lock are gone; at the end of the process
// the threads are parked. Then nothing can be taken apart, and the state is kept for good.
CpuDevice::~CpuDevice() {
  detach();
  const bool is_parked = !is_forked() && internal::cpu_process().is_shutting_down.load() &&
                         state_->streams.has_threads();
  if (!is_forked() && !is_parked) return;
  static constinit std::atomic<State*> abandoned{nullptr};
  State* state = state_.release();
  state->next_abandoned = abandoned.load();
  while (!abandoned.compare_exchange_weak(state->next_abandoned, state)) {
  }
}

std::unique_ptr<CpuDevice> CpuDevice::create(CpuOptions options) {
  if (options.index < 0) throw InvalidArgument("cpu: an index is zero or more");
  Properties properties = make_properties(options);
  auto state = std::make_unique<State>(options, properties);
  return std::unique_ptr<CpuDevice>(new CpuDevice(std::move(properties), std::move(state)));
}

std::uint64_t CpuDevice::machine_memory_bytes() {
  return internal::read_machine_memory().total_bytes;
}

std::uint64_t CpuDevice::live_mappings() noexcept {
  return internal::cpu_process().mappings.load(std::memory_order_relaxed);
}

bool CpuDevice::owns_range(DeviceAddress address, std::uint64_t size_bytes) noexcept {
  return !is_forked() && state_->memory.owns_range(address, size_bytes);
}

// --- Memory ------------------------------------------------------------------------------------

DeviceResult<DeviceAddress> CpuDevice::do_allocate_segment(std::uint64_t size_bytes) {
  auto address = state_->memory.allocate_segment(size_bytes);
  if (address) wait_as(state_->latencies.allocate_segment, {.size_bytes = size_bytes});
  return address;
}

DeviceResult<void> CpuDevice::do_free_segment(DeviceAddress address) {
  const auto freed = state_->memory.free_segment(address, state_->streams);
  if (!freed) return Unexpected(freed.error());
  wait_as(state_->latencies.free_segment, *freed);
  return {};
}

DeviceResult<DeviceAddress> CpuDevice::do_reserve_addresses(std::uint64_t size_bytes) {
  return state_->memory.reserve_addresses(size_bytes);
}

DeviceResult<void> CpuDevice::do_release_addresses(DeviceAddress address) {
  return state_->memory.release_addresses(address);
}

DeviceResult<PageHandle> CpuDevice::do_create_pages(std::uint64_t size_bytes, PageOptions) {
  auto handle = state_->memory.create_pages(size_bytes);
  if (handle) wait_as(state_->latencies.create_pages, {.size_bytes = size_bytes});
  return handle;
}

DeviceResult<void> CpuDevice::do_release_pages(PageHandle handle) {
  const auto released = state_->memory.release_pages(handle);
  if (!released) return Unexpected(released.error());
  wait_as(state_->latencies.release_pages, *released);
  return {};
}

DeviceResult<void> CpuDevice::do_map_pages(DeviceAddress address,
                                           std::span<const PageHandle> handles) {
  const auto mapped = state_->memory.map_pages(address, handles);
  if (!mapped) return Unexpected(mapped.error());
  wait_as(state_->latencies.map_pages, *mapped);
  return {};
}

DeviceResult<std::uint64_t> CpuDevice::do_unmap_pages(DeviceAddress address,
                                                      std::uint64_t size_bytes) {
  const auto unmapped = state_->memory.unmap_pages(address, size_bytes);
  if (!unmapped) return Unexpected(unmapped.error());
  wait_as(state_->latencies.unmap_pages, *unmapped);
  return unmapped->handles;
}

// --- Streams and events ------------------------------------------------------------------------

// The threads share the processors as the system sees fit, so the priority stays a hint.
DeviceResult<StreamId> CpuDevice::do_create_stream(StreamOptions) {
  return state_->streams.create();
}

DeviceResult<StreamId> CpuDevice::do_adopt_stream(NativeStream native, StreamLife /*life*/) {
  return state_->streams.adopt(native);
}

DeviceResult<NativeStream> CpuDevice::do_native_stream(StreamId stream) {
  return state_->streams.native(stream);
}

DeviceResult<void> CpuDevice::do_release_stream(StreamId stream) {
  return state_->streams.release(stream);
}

DeviceResult<void> CpuDevice::do_synchronize_stream(StreamId stream) {
  return state_->streams.synchronize(stream);
}

DeviceResult<bool> CpuDevice::do_is_capturing(StreamId stream) {
  if (auto live = state_->streams.check_is_live(stream); !live) return Unexpected(live.error());
  return false;
}

DeviceResult<EventId> CpuDevice::do_record_event(StreamId stream, EventOptions options) {
  return options.is_timed ? state_->streams.record_timed(stream) : state_->streams.record(stream);
}

DeviceResult<bool> CpuDevice::do_query_event(EventId event) { return state_->streams.query(event); }

DeviceResult<void> CpuDevice::do_wait_event(StreamId stream, EventId event) {
  return state_->streams.make_wait(stream, event);
}

DeviceResult<void> CpuDevice::do_synchronize_event(EventId event) {
  return state_->streams.synchronize(event);
}

DeviceResult<double> CpuDevice::do_elapsed_ms(EventId begin, EventId end) {
  return state_->streams.elapsed_ms(begin, end);
}

DeviceResult<void> CpuDevice::do_release_event(EventId event) {
  return state_->streams.release(event);
}

// --- Work in stream order ----------------------------------------------------------------------

DeviceResult<void> CpuDevice::do_copy_to_device(DeviceAddress to,
                                                const void* from,
                                                std::uint64_t size_bytes,
                                                StreamId stream) {
  return state_->streams.submit(stream, CopyTask{to_pointer(to), from, size_bytes});
}

DeviceResult<void> CpuDevice::do_copy_to_host(void* to,
                                              DeviceAddress from,
                                              std::uint64_t size_bytes,
                                              StreamId stream) {
  return state_->streams.submit(stream, CopyTask{to, to_pointer(from), size_bytes});
}

DeviceResult<void> CpuDevice::do_copy_within(DeviceAddress to,
                                             DeviceAddress from,
                                             std::uint64_t size_bytes,
                                             StreamId stream) {
  return state_->streams.submit(stream, CopyTask{to_pointer(to), to_pointer(from), size_bytes});
}

DeviceResult<void> CpuDevice::do_copy_peer(
    DeviceAddress to, Device&, DeviceAddress from, std::uint64_t size_bytes, StreamId stream) {
  return state_->streams.submit(stream, CopyTask{to_pointer(to), to_pointer(from), size_bytes});
}

DeviceResult<void> CpuDevice::do_fill(DeviceAddress to,
                                      std::uint8_t value,
                                      std::uint64_t size_bytes,
                                      StreamId stream) {
  return state_->streams.submit(stream, FillTask{to_pointer(to), size_bytes, value});
}

DeviceResult<void> CpuDevice::do_enqueue_host(StreamId stream, HostTask task) {
  return state_->streams.submit(stream, task);
}

// --- Host memory and questions -----------------------------------------------------------------

// There is nothing to pin for: the device copies from any memory alike.
DeviceResult<void*> CpuDevice::do_allocate_pinned(std::uint64_t size_bytes) {
  const std::uint64_t machine = properties().hierarchy.back().size_bytes;
  if (size_bytes > machine) {
    return fail(StatusCode::kOutOfHostMemory, "more than the machine has", size_bytes, machine);
  }
  const std::uint64_t page = internal::system_page_bytes();
  HostMemory memory(std::aligned_alloc(page, round_up(size_bytes, page)));
  if (memory == nullptr) {
    return fail(StatusCode::kOutOfHostMemory, "the system gives no more memory", size_bytes);
  }
  void* pointer = memory.get();
  const std::scoped_lock lock(state_->pinned_mutex);
  state_->pinned.emplace(pointer, std::move(memory));
  return pointer;
}

DeviceResult<void> CpuDevice::do_free_pinned(void* pointer) {
  const std::scoped_lock lock(state_->pinned_mutex);
  if (state_->pinned.erase(pointer) == 0) {
    return fail(StatusCode::kUnknownHandle,
                "not pinned memory of this device, or freed",
                internal::to_address(pointer));
  }
  return {};
}

DeviceResult<MemoryInfo> CpuDevice::do_memory_info() {
  const std::uint64_t total = properties().total_bytes;
  return MemoryInfo{.free_bytes = total - state_->memory.used_bytes(), .total_bytes = total};
}

DeviceResult<std::vector<ProcessMemory>> CpuDevice::do_processes() {
  return std::vector{ProcessMemory{.pid = getpid(),
                                   .used_bytes = state_->memory.used_bytes(),
                                   .name = process_name(),
                                   .is_self = true}};
}

DeviceResult<std::vector<MemoryLevel>> CpuDevice::do_measure() {
  const std::uint64_t available = internal::read_machine_memory().available_bytes;
  return internal::measure_levels(properties().hierarchy,
                                  std::min(properties().total_bytes, available / 4));
}

// --- Blocks, for AddressSanitizer --------------------------------------------------------------

void CpuDevice::do_block_allocated(DeviceAddress address,
                                   std::uint64_t size_bytes,
                                   StreamId stream) noexcept {
  state_->streams.submit_poison(stream, {to_pointer(address), size_bytes, false});
}

void CpuDevice::do_block_freed(DeviceAddress address,
                               std::uint64_t size_bytes,
                               StreamId stream) noexcept {
  state_->streams.submit_poison(stream, {to_pointer(address), size_bytes, true});
}

}  // namespace headroom::device
