#include "headroom/tensor/pinned.h"

#include <utility>

#include "headroom/memory/annotation.h"
#include "headroom/tensor/internal/must.h"
#include "headroom/tensor/tape.h"

namespace headroom {
namespace {

constexpr const char* kSpan = "copy to device";

void announce_start(void*) noexcept { memory::announce_scope(kSpan, true); }
void announce_end(void*) noexcept { memory::announce_scope(kSpan, false); }

}  // namespace

PinnedBuffer::PinnedBuffer(device::Device& device, std::uint64_t size_bytes)
    : device_(&device),
      size_bytes_(size_bytes),
      data_(tensor::must(device.allocate_pinned(size_bytes == 0 ? 1 : size_bytes))) {}

PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) (void)device_->free_pinned(data_);
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : device_(other.device_),
      size_bytes_(other.size_bytes_),
      data_(std::exchange(other.data_, nullptr)) {}

void copy_from_pinned(const Tensor& to, const void* from) {
  if (!to.is_contiguous()) {
    throw InvalidArgument("copy_from_pinned: a contiguous tensor is wanted, not one with strides");
  }
  tensor::check_in_place("copy_from_pinned", to);
  if (!to.is_meta() && to.numel() > 0) {
    device::Device& device = to.device();
    const device::StreamId stream = current_stream_id(device);
    tensor::must(device.enqueue_host(stream, {.run = announce_start}));
    tensor::must(device.copy_to_device(to.address(), from, to.size_bytes(), stream));
    tensor::must(device.enqueue_host(stream, {.run = announce_end}));
  }
  to.storage().bump_version();
}

}  // namespace headroom
