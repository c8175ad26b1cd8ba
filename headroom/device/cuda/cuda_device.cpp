#include "headroom/device/cuda/cuda_device.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <unistd.h>
#include <utility>

#include "headroom/device/cuda/internal/context.h"
#include "headroom/device/cuda/internal/driver.h"
#include "headroom/device/cuda/internal/measure.h"
#include "headroom/device/cuda/internal/memory.h"
#include "headroom/device/cuda/internal/nvml.h"
#include "headroom/device/cuda/internal/properties.h"
#include "headroom/device/cuda/internal/streams.h"
#include "headroom/device/internal/processes.h"
#include "headroom/device/internal/status.h"

namespace headroom::device {

using internal::CaptureMode;
using internal::CudaContext;
using internal::CudaDriver;
using internal::CudaScope;
using internal::fail;

struct CudaDevice::State {
  State(const CudaDriver& the_driver, const internal::CudaDescription& card, bool owns_default)
      : driver(the_driver),
        pci_bus_id(card.pci_bus_id),
        context(driver, card.properties.id.index, card.device, card.pci_bus_id),
        memory(context,
               {.capacity_bytes = card.properties.total_bytes,
                .granularity_bytes = card.properties.granularity_bytes,
                .max_reservation_bytes = card.properties.max_reservation_bytes,
                .max_mappings = kMaxMappings},
               {.by_network = card.can_be_read_by_network,
                .by_processes = card.can_be_read_by_processes}),
        streams(context, owns_default),
        sharing(memory) {}

  void take_apart() noexcept;

  const CudaDriver& driver;
  const std::string pci_bus_id;
  CudaContext context;
  internal::CudaMemory memory;
  internal::CudaStreams streams;
  internal::CudaSharing sharing;
  std::optional<std::uint64_t> share_bytes{};  // of the card, where it is not all ours to take
  State* next_abandoned = nullptr;
};

// All that is queued runs first, whoever queued it: what uses our memory may be in any stream. In
// a context that is broken or gone there is nothing to wait for and nothing to give back; it is
// not released either, because a host task may still write to memory that would go with it.
void CudaDevice::State::take_apart() noexcept {
  if (!context.is_retained()) return;
  {
    const CudaScope scope(context, CaptureMode::kRelaxed);
    if (!scope || !context.call(driver.cuCtxSynchronize)) return;
    streams.wait_for_tasks();
    memory.clear();
    streams.clear();
  }
  context.release();
}

CudaDevice::CudaDevice(Properties properties, std::unique_ptr<State> state)
    : Device(std::move(properties)), state_(std::move(state)) {}

// In the child of a fork the driver does not work and a lock may be held for ever: the state is
// kept for good, where a leak checker finds it.
CudaDevice::~CudaDevice() {
  detach();
  if (!is_forked()) {
    state_->take_apart();
    return;
  }
  static constinit std::atomic<State*> abandoned{nullptr};
  State* state = state_.release();
  state->next_abandoned = abandoned.load();
  while (!abandoned.compare_exchange_weak(state->next_abandoned, state)) {
  }
}

Result<std::unique_ptr<CudaDevice>, std::string> CudaDevice::create(CudaOptions options) {
  const auto& driver = internal::cuda_driver();
  if (!driver) return Unexpected(driver.error());
  const std::string name = to_string(DeviceId{DeviceKind::kCuda, options.index});
  if (internal::is_cuda_driver_forked()) {
    return Unexpected(name +
                      ": the process was forked after the NVIDIA driver was started, and it does "
                      "not survive that; start the driver in the child only");
  }
  if (options.index < 0 || options.index >= count()) {
    return Unexpected(name + " does not exist: the driver found " + std::to_string(count()) +
                      (count() == 1 ? " GPU" : " GPUs"));
  }
  auto card = internal::describe_cuda_device(**driver, options.index);
  if (!card) return Unexpected(card.error());
  if (options.capacity_bytes) {
    if (*options.capacity_bytes == 0 || *options.capacity_bytes > card->properties.total_bytes) {
      return Unexpected(name + " has " + format_bytes(card->properties.total_bytes) +
                        ", so it cannot have a capacity of " +
                        format_bytes(*options.capacity_bytes));
    }
    card->properties.total_bytes = *options.capacity_bytes;
  }
  auto state = std::make_unique<State>(**driver, *card, options.owns_default_stream);
  state->share_bytes = options.capacity_bytes;
  return std::unique_ptr<CudaDevice>(new CudaDevice(std::move(card->properties), std::move(state)));
}

int CudaDevice::count() { return internal::cuda_device_count(); }

std::string CudaDevice::why_none() {
  const auto& driver = internal::cuda_driver();
  return driver ? "" : driver.error();
}

std::uint64_t CudaDevice::used_bytes() const noexcept { return state_->memory.used_bytes(); }

std::optional<std::string> CudaDevice::check_invariants() const {
  return state_->memory.check_invariants();
}

bool CudaDevice::owns_range(DeviceAddress address, std::uint64_t size_bytes) noexcept {
  return !is_forked() && state_->memory.owns_range(address, size_bytes);
}

// --- Memory ------------------------------------------------------------------------------------

DeviceResult<DeviceAddress> CudaDevice::do_allocate_segment(std::uint64_t size_bytes) {
  return state_->memory.allocate_segment(size_bytes);
}

DeviceResult<void> CudaDevice::do_free_segment(DeviceAddress address) {
  return state_->memory.free_segment(address);
}

DeviceResult<DeviceAddress> CudaDevice::do_reserve_addresses(std::uint64_t size_bytes) {
  if (!properties().has_virtual_memory) {
    return fail(StatusCode::kNotSupported, "this card has no virtual memory management");
  }
  return state_->memory.reserve_addresses(size_bytes);
}

DeviceResult<void> CudaDevice::do_release_addresses(DeviceAddress address) {
  return state_->memory.release_addresses(address);
}

DeviceResult<PageHandle> CudaDevice::do_create_pages(std::uint64_t size_bytes,
                                                     PageOptions options) {
  if (!properties().has_virtual_memory) {
    return fail(StatusCode::kNotSupported, "this card has no virtual memory management");
  }
  return state_->memory.create_pages(size_bytes, options);
}

PageSharing* CudaDevice::sharing() noexcept { return &state_->sharing; }

DeviceResult<void> CudaDevice::do_release_pages(PageHandle handle) {
  return state_->memory.release_pages(handle);
}

DeviceResult<void> CudaDevice::do_map_pages(DeviceAddress address,
                                            std::span<const PageHandle> handles) {
  return state_->memory.map_pages(address, handles);
}

DeviceResult<std::uint64_t> CudaDevice::do_unmap_pages(DeviceAddress address,
                                                       std::uint64_t size_bytes) {
  return state_->memory.unmap_pages(address, size_bytes);
}

// --- Streams and events ------------------------------------------------------------------------

DeviceResult<StreamId> CudaDevice::do_create_stream(StreamOptions options) {
  return state_->streams.create(options);
}

DeviceResult<StreamId> CudaDevice::do_adopt_stream(NativeStream native, StreamLife life) {
  return state_->streams.adopt(native, life);
}

DeviceResult<NativeStream> CudaDevice::do_native_stream(StreamId stream) {
  return state_->streams.native(stream);
}

DeviceResult<void> CudaDevice::do_release_stream(StreamId stream) {
  return state_->streams.release(stream);
}

DeviceResult<void> CudaDevice::do_synchronize_stream(StreamId stream) {
  return state_->streams.synchronize(stream);
}

DeviceResult<bool> CudaDevice::do_is_capturing(StreamId stream) {
  return state_->streams.is_capturing(stream);
}

DeviceResult<EventId> CudaDevice::do_record_event(StreamId stream, EventOptions options) {
  return state_->streams.record(stream, options);
}

DeviceResult<bool> CudaDevice::do_query_event(EventId event) {
  return state_->streams.query(event);
}

DeviceResult<void> CudaDevice::do_wait_event(StreamId stream, EventId event) {
  return state_->streams.make_wait(stream, event);
}

DeviceResult<void> CudaDevice::do_synchronize_event(EventId event) {
  return state_->streams.synchronize(event);
}

DeviceResult<double> CudaDevice::do_elapsed_ms(EventId begin, EventId end) {
  return state_->streams.elapsed_ms(begin, end);
}

DeviceResult<void> CudaDevice::do_release_event(EventId event) {
  return state_->streams.release(event);
}

// --- Work in stream order ----------------------------------------------------------------------

DeviceResult<void> CudaDevice::do_copy_to_device(DeviceAddress to,
                                                 const void* from,
                                                 std::uint64_t size_bytes,
                                                 StreamId stream) {
  return state_->streams.submit(stream, [&](CUstream native) {
    return state_->context.call(
        state_->driver.cuMemcpyHtoDAsync, CUdeviceptr{to}, from, size_bytes, native);
  });
}

DeviceResult<void> CudaDevice::do_copy_to_host(void* to,
                                               DeviceAddress from,
                                               std::uint64_t size_bytes,
                                               StreamId stream) {
  return state_->streams.submit(stream, [&](CUstream native) {
    return state_->context.call(
        state_->driver.cuMemcpyDtoHAsync, to, CUdeviceptr{from}, size_bytes, native);
  });
}

DeviceResult<void> CudaDevice::do_copy_within(DeviceAddress to,
                                              DeviceAddress from,
                                              std::uint64_t size_bytes,
                                              StreamId stream) {
  return state_->streams.submit(stream, [&](CUstream native) {
    return state_->context.call(
        state_->driver.cuMemcpyDtoDAsync, CUdeviceptr{to}, CUdeviceptr{from}, size_bytes, native);
  });
}

DeviceResult<void> CudaDevice::do_copy_peer(DeviceAddress to,
                                            Device& source,
                                            DeviceAddress from,
                                            std::uint64_t size_bytes,
                                            StreamId stream) {
  if (source.id() == id()) return do_copy_within(to, from, size_bytes, stream);
  return state_->streams.submit(stream, [&](CUstream native) -> DeviceResult<void> {
    // Memory of the source is live, so its context is, and is only asked for by name here.
    const CudaDriver& driver = state_->driver;
    CudaContext& context = state_->context;
    const auto ours = context.get();
    CUdevice their_device = 0;
    CUcontext theirs = nullptr;
    auto done = !ours ? DeviceResult<void>(Unexpected(ours.error()))
                      : context.call(driver.cuDeviceGet, &their_device, source.id().index);
    if (done) done = context.call(driver.cuDevicePrimaryCtxRetain, &theirs, their_device);
    if (!done) return done;
    done = context.call(driver.cuMemcpyPeerAsync,
                        CUdeviceptr{to},
                        *ours,
                        CUdeviceptr{from},
                        theirs,
                        size_bytes,
                        native);
    (void)driver.cuDevicePrimaryCtxRelease(their_device);
    return done;
  });
}

DeviceResult<void> CudaDevice::do_fill(DeviceAddress to,
                                       std::uint8_t value,
                                       std::uint64_t size_bytes,
                                       StreamId stream) {
  return state_->streams.submit(stream, [&](CUstream native) {
    return state_->context.call(
        state_->driver.cuMemsetD8Async, CUdeviceptr{to}, value, size_bytes, native);
  });
}

DeviceResult<void> CudaDevice::do_enqueue_host(StreamId stream, HostTask task) {
  return state_->streams.enqueue_host(stream, task);
}

// --- Host memory and questions -----------------------------------------------------------------

DeviceResult<void*> CudaDevice::do_allocate_pinned(std::uint64_t size_bytes) {
  return state_->memory.allocate_pinned(size_bytes);
}

DeviceResult<void> CudaDevice::do_free_pinned(void* pointer) {
  return state_->memory.free_pinned(pointer);
}

DeviceResult<MemoryInfo> CudaDevice::do_memory_info() {
  auto info = state_->memory.info();
  if (info && state_->share_bytes) {
    const std::uint64_t left = *state_->share_bytes - used_bytes();
    info = MemoryInfo{.free_bytes = std::min(info->free_bytes, left),
                      .total_bytes = *state_->share_bytes};
  }
  return info;
}

// Before there is a context nobody can say what is used, and this process is not on the card.
DeviceResult<std::vector<ProcessMemory>> CudaDevice::do_processes() {
  auto listed = internal::nvml_processes(state_->pci_bus_id);
  if (!state_->context.is_retained()) return listed;
  const auto info = state_->memory.info();
  if (!info) return Unexpected(info.error());
  const std::uint64_t context_bytes = state_->context.context_bytes();
  if (!listed && context_bytes == 0) return listed;
  return internal::complete_processes(
      listed ? *std::move(listed) : std::vector<ProcessMemory>{},
      {.pid = getpid(), .bytes = used_bytes() + context_bytes, .is_all = context_bytes != 0},
      info->total_bytes - info->free_bytes);
}

DeviceResult<std::vector<MemoryLevel>> CudaDevice::do_measure() {
  const std::vector<MemoryLevel>& levels = properties().hierarchy;
  std::uint64_t bytes = internal::wanted_workspace_bytes(levels);
  auto space = state_->memory.allocate_segment(bytes);
  // A card that is nearly full is measured with less, as far as that goes.
  while (!space && space.error().code == StatusCode::kOutOfMemory && bytes > 8_MiB) {
    bytes /= 2;
    space = state_->memory.allocate_segment(bytes);
  }
  if (!space) return Unexpected(space.error());
  auto measured = internal::measure_cuda_levels(
      state_->context, levels, {.address = *space, .size_bytes = bytes});
  const auto freed = state_->memory.free_segment(*space);
  if (measured && !freed) return Unexpected(freed.error());
  return measured;
}

}  // namespace headroom::device
