// The cuda backend of a build without cuda.h: there is none, and it says so.
#include <utility>

#include "headroom/device/cuda/cuda_device.h"
#include "headroom/device/internal/status.h"

namespace headroom::device {
namespace {

using internal::fail;

constexpr const char* kWhy =
    "this build has no cuda backend (cuda.h was not found when it was built)";

// No CudaDevice is ever made here, so this is never asked.
Unexpected<DeviceStatus> none() noexcept { return fail(StatusCode::kNotSupported, kWhy); }

}  // namespace

struct CudaDevice::State {};

CudaDevice::CudaDevice(Properties properties, std::unique_ptr<State> state)
    : Device(std::move(properties)), state_(std::move(state)) {}
CudaDevice::~CudaDevice() { detach(); }

Result<std::unique_ptr<CudaDevice>, std::string> CudaDevice::create(CudaOptions /*options*/) {
  return Unexpected(std::string(kWhy));
}

int CudaDevice::count() { return 0; }
std::string CudaDevice::why_none() { return kWhy; }
std::uint64_t CudaDevice::used_bytes() const noexcept { return 0; }
std::optional<std::string> CudaDevice::check_invariants() const { return std::nullopt; }
bool CudaDevice::owns_range(DeviceAddress /*address*/, std::uint64_t /*size*/) noexcept {
  return false;
}

PageSharing* CudaDevice::sharing() noexcept { return nullptr; }

DeviceResult<DeviceAddress> CudaDevice::do_allocate_segment(std::uint64_t) { return none(); }
DeviceResult<void> CudaDevice::do_free_segment(DeviceAddress) { return none(); }
DeviceResult<DeviceAddress> CudaDevice::do_reserve_addresses(std::uint64_t) { return none(); }
DeviceResult<void> CudaDevice::do_release_addresses(DeviceAddress) { return none(); }
DeviceResult<PageHandle> CudaDevice::do_create_pages(std::uint64_t, PageOptions) { return none(); }
DeviceResult<void> CudaDevice::do_release_pages(PageHandle) { return none(); }
DeviceResult<void> CudaDevice::do_map_pages(DeviceAddress, std::span<const PageHandle>) {
  return none();
}
DeviceResult<std::uint64_t> CudaDevice::do_unmap_pages(DeviceAddress, std::uint64_t) {
  return none();
}
DeviceResult<StreamId> CudaDevice::do_create_stream(StreamOptions) { return none(); }
DeviceResult<StreamId> CudaDevice::do_adopt_stream(NativeStream, StreamLife) { return none(); }
DeviceResult<NativeStream> CudaDevice::do_native_stream(StreamId) { return none(); }
DeviceResult<void> CudaDevice::do_release_stream(StreamId) { return none(); }
DeviceResult<void> CudaDevice::do_synchronize_stream(StreamId) { return none(); }
DeviceResult<bool> CudaDevice::do_is_capturing(StreamId) { return none(); }
DeviceResult<EventId> CudaDevice::do_record_event(StreamId, EventOptions) { return none(); }
DeviceResult<bool> CudaDevice::do_query_event(EventId) { return none(); }
DeviceResult<void> CudaDevice::do_wait_event(StreamId, EventId) { return none(); }
DeviceResult<void> CudaDevice::do_synchronize_event(EventId) { return none(); }
DeviceResult<double> CudaDevice::do_elapsed_ms(EventId, EventId) { return none(); }
DeviceResult<void> CudaDevice::do_release_event(EventId) { return none(); }
DeviceResult<void> CudaDevice::do_copy_to_device(DeviceAddress,
                                                 const void*,
                                                 std::uint64_t,
                                                 StreamId) {
  return none();
}
DeviceResult<void> CudaDevice::do_copy_to_host(void*, DeviceAddress, std::uint64_t, StreamId) {
  return none();
}
DeviceResult<void> CudaDevice::do_copy_within(DeviceAddress,
                                              DeviceAddress,
                                              std::uint64_t,
                                              StreamId) {
  return none();
}
DeviceResult<void> CudaDevice::do_copy_peer(
    DeviceAddress, Device&, DeviceAddress, std::uint64_t, StreamId) {
  return none();
}
DeviceResult<void> CudaDevice::do_fill(DeviceAddress, std::uint8_t, std::uint64_t, StreamId) {
  return none();
}
DeviceResult<void> CudaDevice::do_enqueue_host(StreamId, HostTask) { return none(); }
DeviceResult<void*> CudaDevice::do_allocate_pinned(std::uint64_t) { return none(); }
DeviceResult<void> CudaDevice::do_free_pinned(void*) { return none(); }
DeviceResult<MemoryInfo> CudaDevice::do_memory_info() { return none(); }
DeviceResult<std::vector<ProcessMemory>> CudaDevice::do_processes() { return none(); }
DeviceResult<std::vector<MemoryLevel>> CudaDevice::do_measure() { return none(); }

}  // namespace headroom::device
