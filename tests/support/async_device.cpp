#include "tests/support/async_device.h"

#include <utility>

#include "headroom/base/error.h"
#include "headroom/tensor/kernels.h"

#include "tests/support/async_kernels.h"

namespace headroom::testing {
namespace {

using device::CpuDevice;
using device::DeviceAddress;
using device::DeviceKind;
using device::Properties;
using device::StreamId;

std::unique_ptr<CpuDevice> make_inner(const AsyncOptions& options) {
  return CpuDevice::create({.index = options.index, .capacity_bytes = options.capacity_bytes});
}

Properties properties_over(const CpuDevice& inner) {
  Properties out = inner.properties();
  out.id.kind = DeviceKind::kCuda;
  out.name = "an asynchronous device of the tests";
  out.multiprocessors = 13;
  out.architecture = "async";
  out.host_accessible = false;
  return out;
}

struct GateTask {
  AsyncGates& gates;
  AsyncGates::Ticket ticket;
};

void run_gate(void* data) noexcept {
  const std::unique_ptr<GateTask> task(static_cast<GateTask*>(data));
  task->gates.pass(task->ticket);
}

}  // namespace

AsyncDevice::AsyncDevice(const AsyncOptions& options) : AsyncDevice(options, make_inner(options)) {}

AsyncDevice::AsyncDevice(const AsyncOptions& options, std::unique_ptr<CpuDevice> inner)
    : Device(properties_over(*inner)),
      gates_(options.pace, options.seed, options.patience),
      inner_(std::move(inner)) {
  tensor::register_kernels(DeviceKind::kCuda, async_kernels());
  default_stream_ = inner_->create_stream().value();
  set_tracks_blocks(true);
}

AsyncDevice::~AsyncDevice() {
  if (!is_forked()) drain();
  detach();
}

DeviceAddress AsyncDevice::far(DeviceAddress address) noexcept { return address | kFar; }

AsyncDevice::Result<DeviceAddress> AsyncDevice::far(Result<DeviceAddress> address) noexcept {
  if (address) *address = far(*address);
  return address;
}

StreamId AsyncDevice::inner(StreamId stream) const noexcept {
  return stream == StreamId::kDefault ? default_stream_ : stream;
}

StreamId AsyncDevice::outer(StreamId stream) const noexcept {
  return stream == default_stream_ ? StreamId::kDefault : stream;
}

template <class Work>
AsyncDevice::Result<void> AsyncDevice::queue(StreamId stream, const Work& work) {
  auto gate = std::make_unique<GateTask>(GateTask{gates_, gates_.add(inner(stream))});
  if (auto queued = inner_->enqueue_host(inner(stream), {.run = run_gate, .data = gate.get()});
      !queued) {
    return queued;
  }
  (void)gate.release();
  return work(inner(stream));
}

template <class Work>
AsyncDevice::Result<void> AsyncDevice::queue_and_log(StreamId stream, const Work& work) {
  if (log_ != nullptr) log_->add(stream, [this, stream, work] { return queue(stream, work); });
  return queue(stream, work);
}

// Waits for all that is queued.
void AsyncDevice::drain() noexcept {
  for (const StreamId stream : gates_.open_all()) (void)inner_->synchronize_stream(stream);
}

bool AsyncDevice::owns_range(DeviceAddress address, std::uint64_t size_bytes) noexcept {
  return is_far(address) && inner_->owns_range(near(address), size_bytes);
}

// --- Memory -------------------------------------------------------------------------------------

AsyncDevice::Result<DeviceAddress> AsyncDevice::do_allocate_segment(std::uint64_t size_bytes) {
  return far(inner_->allocate_segment(size_bytes));
}

AsyncDevice::Result<void> AsyncDevice::do_free_segment(DeviceAddress address) {
  drain();
  return inner_->free_segment(near(address));
}

AsyncDevice::Result<DeviceAddress> AsyncDevice::do_reserve_addresses(std::uint64_t size_bytes) {
  return far(inner_->reserve_addresses(size_bytes));
}

AsyncDevice::Result<void> AsyncDevice::do_release_addresses(DeviceAddress address) {
  return inner_->release_addresses(near(address));
}

AsyncDevice::Result<device::PageHandle> AsyncDevice::do_create_pages(std::uint64_t size_bytes,
                                                                     device::PageOptions options) {
  return inner_->create_pages(size_bytes, options);
}

AsyncDevice::Result<void> AsyncDevice::do_release_pages(PageHandle handle) {
  return inner_->release_pages(handle);
}

AsyncDevice::Result<void> AsyncDevice::do_map_pages(DeviceAddress address,
                                                    std::span<const PageHandle> handles) {
  return inner_->map_pages(near(address), handles);
}

AsyncDevice::Result<std::uint64_t> AsyncDevice::do_unmap_pages(DeviceAddress address,
                                                               std::uint64_t size_bytes) {
  return inner_->unmap_pages(near(address), size_bytes);
}

// --- Streams and events -------------------------------------------------------------------------

AsyncDevice::Result<StreamId> AsyncDevice::do_create_stream(device::StreamOptions options) {
  return inner_->create_stream(options);
}

AsyncDevice::Result<StreamId> AsyncDevice::do_adopt_stream(device::NativeStream native,
                                                           device::StreamLife life) {
  if (native == 0) return StreamId::kDefault;
  auto adopted = inner_->adopt_stream(native, life);
  if (adopted) *adopted = outer(*adopted);
  return adopted;
}

AsyncDevice::Result<device::NativeStream> AsyncDevice::do_native_stream(StreamId stream) {
  return inner_->native_stream(inner(stream));
}

AsyncDevice::Result<void> AsyncDevice::do_release_stream(StreamId stream) {
  return inner_->release_stream(stream);
}

AsyncDevice::Result<void> AsyncDevice::do_synchronize_stream(StreamId stream) {
  gates_.open(inner(stream));
  return inner_->synchronize_stream(inner(stream));
}

AsyncDevice::Result<bool> AsyncDevice::do_is_capturing(StreamId stream) {
  return inner_->is_capturing(inner(stream));
}

AsyncDevice::Result<device::EventId> AsyncDevice::do_record_event(StreamId stream,
                                                                  device::EventOptions options) {
  auto event = inner_->record_event(inner(stream), options);
  if (event) gates_.recorded(*event, inner(stream));
  return event;
}

AsyncDevice::Result<bool> AsyncDevice::do_query_event(EventId event) {
  gates_.open(event);
  return inner_->query_event(event);
}

AsyncDevice::Result<void> AsyncDevice::do_wait_event(StreamId stream, EventId event) {
  gates_.waits(inner(stream), event);
  return inner_->wait_event(inner(stream), event);
}

AsyncDevice::Result<void> AsyncDevice::do_synchronize_event(EventId event) {
  gates_.open(event);
  return inner_->synchronize_event(event);
}

AsyncDevice::Result<double> AsyncDevice::do_elapsed_ms(EventId begin, EventId end) {
  gates_.open(begin);
  gates_.open(end);
  return inner_->elapsed_ms(begin, end);
}

AsyncDevice::Result<void> AsyncDevice::do_release_event(EventId event) {
  gates_.released(event);
  return inner_->release_event(event);
}

// --- Work in stream order -----------------------------------------------------------------------

AsyncDevice::Result<void> AsyncDevice::do_copy_to_device(DeviceAddress to,
                                                         const void* from,
                                                         std::uint64_t size_bytes,
                                                         StreamId stream) {
  const auto copy = [=, this](const void* bytes) {
    return queue(stream, [=, this](StreamId own) {
      return inner_->copy_to_device(near(to), bytes, size_bytes, own);
    });
  };
  if (log_ != nullptr) {
    log_->add_upload(stream, from, size_bytes, [copy](const AsyncLog::Bytes& bytes) {
      return copy(bytes.data());
    });
  }
  return copy(from);
}

AsyncDevice::Result<void> AsyncDevice::do_copy_to_host(void* to,
                                                       DeviceAddress from,
                                                       std::uint64_t size_bytes,
                                                       StreamId stream) {
  if (log_ != nullptr) log_->add_unrepeatable("a copy to the host");
  return queue(stream,
               [&](StreamId own) { return inner_->copy_to_host(to, near(from), size_bytes, own); });
}

AsyncDevice::Result<void> AsyncDevice::do_copy_within(DeviceAddress to,
                                                      DeviceAddress from,
                                                      std::uint64_t size_bytes,
                                                      StreamId stream) {
  return queue_and_log(stream, [=, this](StreamId own) {
    return inner_->copy_within(near(to), near(from), size_bytes, own);
  });
}

AsyncDevice::Result<void> AsyncDevice::do_copy_peer(DeviceAddress to,
                                                    Device& source,
                                                    DeviceAddress from,
                                                    std::uint64_t size_bytes,
                                                    StreamId stream) {
  if (log_ != nullptr) log_->add_unrepeatable("a copy from another device");
  Device& other = *dynamic_cast<AsyncDevice&>(source).inner_;
  return queue(stream, [&](StreamId own) {
    return inner_->copy_peer(near(to), other, near(from), size_bytes, own);
  });
}

AsyncDevice::Result<void> AsyncDevice::do_fill(DeviceAddress to,
                                               std::uint8_t value,
                                               std::uint64_t size_bytes,
                                               StreamId stream) {
  return queue_and_log(
      stream, [=, this](StreamId own) { return inner_->fill(near(to), value, size_bytes, own); });
}

// A task with data owns it, mostly, and can run once.
AsyncDevice::Result<void> AsyncDevice::do_enqueue_host(StreamId stream, device::HostTask task) {
  if (log_ != nullptr && task.data != nullptr) log_->add_unrepeatable("a host task with data");
  return queue_and_log(stream, [=, this](StreamId own) { return inner_->enqueue_host(own, task); });
}

AsyncDevice::Result<void> AsyncDevice::enqueue_launch(StreamId stream, device::HostTask task) {
  return queue(stream, [&](StreamId own) { return inner_->enqueue_host(own, task); });
}

// --- Host memory, questions, blocks -------------------------------------------------------------

AsyncDevice::Result<void*> AsyncDevice::do_allocate_pinned(std::uint64_t size_bytes) {
  return inner_->allocate_pinned(size_bytes);
}

AsyncDevice::Result<void> AsyncDevice::do_free_pinned(void* pointer) {
  return inner_->free_pinned(pointer);
}

AsyncDevice::Result<device::MemoryInfo> AsyncDevice::do_memory_info() {
  return inner_->memory_info();
}

AsyncDevice::Result<std::vector<device::ProcessMemory>> AsyncDevice::do_processes() {
  return inner_->processes();
}

AsyncDevice::Result<std::vector<device::MemoryLevel>> AsyncDevice::do_measure() {
  return inner_->measure();
}

// The inner device hears of blocks too, for AddressSanitizer. A stream that was released takes no
// more work: its blocks stay as they are.
void AsyncDevice::begin_block(DeviceAddress address,
                              std::uint64_t size_bytes,
                              StreamId stream) noexcept {
  inner_->block_allocated(near(address), size_bytes, inner(stream));
  (void)inner_->fill(near(address), kPoison, size_bytes, inner(stream));
}

void AsyncDevice::end_block(DeviceAddress address,
                            std::uint64_t size_bytes,
                            StreamId stream) noexcept {
  (void)inner_->fill(near(address), kPoison, size_bytes, inner(stream));
  inner_->block_freed(near(address), size_bytes, inner(stream));
}

void AsyncDevice::do_block_allocated(DeviceAddress address,
                                     std::uint64_t size_bytes,
                                     StreamId stream) noexcept {
  if (log_ != nullptr) {
    log_->add(stream, [=, this] {
      begin_block(address, size_bytes, stream);
      return Result<void>();
    });
  }
  begin_block(address, size_bytes, stream);
}

void AsyncDevice::do_block_freed(DeviceAddress address,
                                 std::uint64_t size_bytes,
                                 StreamId stream) noexcept {
  if (log_ != nullptr) {
    log_->add(stream, [=, this] {
      end_block(address, size_bytes, stream);
      return Result<void>();
    });
  }
  end_block(address, size_bytes, stream);
}

}  // namespace headroom::testing
