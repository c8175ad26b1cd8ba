#include "headroom/tensor/stream.h"

#include <utility>

#include "headroom/base/error.h"
#include "headroom/tensor/internal/must.h"

namespace headroom {
namespace {

using tensor::must;

// The scopes of this thread, innermost first. They live on the stack, so this costs nothing.
thread_local constinit const StreamScope* t_innermost = nullptr;

}  // namespace

struct Event::Held {
  device::Device& device;
  device::EventId id;

  Held(device::Device& of, device::EventId event) : device(of), id(event) {}
  ~Held() { (void)device.release_event(id); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
};

bool Event::is_done() const { return must(held_->device.query_event(held_->id)); }

void Event::synchronize() const { must(held_->device.synchronize_event(held_->id)); }

struct Stream::Held {
  device::Device& device;
  device::StreamId id;

  Held(device::Device& of, device::StreamId stream) : device(of), id(stream) {}
  ~Held() { (void)device.release_stream(id); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
};

Stream::Stream(WhichDevice which) : Stream(which.resolve()) {}

Stream::Stream(device::Device& device)
    : device_(&device),
      id_(must(device.create_stream())),
      held_(std::make_shared<Held>(device, id_)) {}

Event Stream::record() const {
  const device::EventId event = must(device_->record_event(id_));
  return Event(std::make_shared<Event::Held>(*device_, event));
}

void Stream::wait(const Event& event) const {
  if (&event.held_->device != device_) {
    throw InvalidArgument("Stream::wait: the event is of " + to_string(event.held_->device.id()) +
                          ", the stream of " + to_string(device_->id()));
  }
  must(device_->wait_event(id_, event.held_->id));
}

void Stream::synchronize() const { must(device_->synchronize_stream(id_)); }

Stream default_stream(device::Device& device) {
  Stream out;
  out.device_ = &device;
  return out;
}

Stream default_stream(WhichDevice which) { return default_stream(which.resolve()); }

StreamScope::StreamScope(const Stream& stream) noexcept
    : stream_(stream), outer_(std::exchange(t_innermost, this)) {}

StreamScope::~StreamScope() { t_innermost = outer_; }

Stream current_stream(device::Device& device) {
  for (const StreamScope* scope = t_innermost; scope != nullptr; scope = scope->outer_) {
    if (&scope->stream_.device() == &device) return scope->stream_;
  }
  return default_stream(device);
}

device::StreamId current_stream_id(const device::Device& device) noexcept {
  for (const StreamScope* scope = t_innermost; scope != nullptr; scope = scope->outer_) {
    if (&scope->stream_.device() == &device) return scope->stream_.id();
  }
  return device::StreamId::kDefault;
}

}  // namespace headroom
