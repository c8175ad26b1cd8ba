// Memory that frees itself: Buffer holds bytes, Array<T> elements.
//
//   Buffer scratch(allocator, 4_MiB);                          // throws OutOfMemory
//   Array<float> weights(allocator, 1024);
//   weights.copy_from(std::vector<float>(1024, 0.5F));
//   scratch.record_stream(side);                               // side reads it too
//   scratch.reset();                                           // freed now
#pragma once

#include <cstdint>
#include <limits>
#include <new>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/memory/allocator.h"

namespace headroom::memory {

class Buffer {
 public:
  Buffer() = default;
  // Throws as Allocator::allocate does.
  Buffer(Allocator& allocator, std::uint64_t size_bytes, StreamId stream = StreamId::kDefault)
      : allocator_(&allocator),
        address_(allocator.allocate(size_bytes, stream)),
        size_bytes_(size_bytes),
        stream_(stream) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer taken(std::move(other));
    swap(taken);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { reset(); }

  [[nodiscard]] DeviceAddress address() const noexcept { return address_; }
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] StreamId stream() const noexcept { return stream_; }
  [[nodiscard]] bool empty() const noexcept { return size_bytes_ == 0; }
  // Null for a buffer that was default made, reset or moved from.
  [[nodiscard]] Allocator* allocator() const noexcept { return allocator_; }

  void record_stream(StreamId stream) const {
    if (allocator_ == nullptr || address_ == 0) return;
    if (auto recorded = allocator_->record_stream(address_, stream); !recorded) {
      throw Error(to_string(recorded.error()));
    }
  }

  // Frees the memory now.
  void reset() noexcept {
    if (allocator_ != nullptr) allocator_->free(address_);
    (void)release();
  }

  // Hands the address to the caller, who frees it.
  [[nodiscard]] DeviceAddress release() noexcept {
    allocator_ = nullptr;
    size_bytes_ = 0;
    return std::exchange(address_, 0);
  }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(allocator_, other.allocator_);
    std::swap(address_, other.address_);
    std::swap(size_bytes_, other.size_bytes_);
    std::swap(stream_, other.stream_);
  }

  Allocator* allocator_ = nullptr;
  DeviceAddress address_ = 0;
  std::uint64_t size_bytes_ = 0;
  StreamId stream_ = StreamId::kDefault;
};

// Elements that can be copied as bytes. They are not initialised.
template <class T>
  requires std::is_trivially_copyable_v<T>
class Array {
 public:
  Array() = default;
  Array(Allocator& allocator, std::uint64_t size, StreamId stream = StreamId::kDefault)
      : buffer_(allocator, bytes_for(size), stream) {}

  [[nodiscard]] std::uint64_t size() const noexcept { return buffer_.size_bytes() / sizeof(T); }
  [[nodiscard]] bool empty() const noexcept { return buffer_.empty(); }
  [[nodiscard]] DeviceAddress address() const noexcept { return buffer_.address(); }
  [[nodiscard]] const Buffer& buffer() const noexcept { return buffer_; }

  // The elements themselves, where the processor can touch them; throws InvalidArgument elsewhere.
  [[nodiscard]] std::span<T> span() const {
    if (empty()) return {};
    if (!device().properties().host_accessible) {
      throw InvalidArgument("Array::span: the processor cannot touch memory of " +
                            to_string(device().id()) + "; use copy_to");
    }
    return {reinterpret_cast<T*>(buffer_.address()), static_cast<std::size_t>(size())};
  }

  // Copies in stream order and waits for it.
  void copy_from(std::span<const T> from) {
    check_count("copy_from", from.size());
    if (from.empty()) return;
    finish(device().copy_to_device(
        buffer_.address(), from.data(), from.size_bytes(), buffer_.stream()));
  }
  void copy_to(std::span<T> to) const {
    check_count("copy_to", to.size());
    if (to.empty()) return;
    finish(device().copy_to_host(to.data(), buffer_.address(), to.size_bytes(), buffer_.stream()));
  }
  [[nodiscard]] std::vector<T> to_vector() const {
    std::vector<T> out(static_cast<std::size_t>(size()));
    copy_to(out);
    return out;
  }
  void record_stream(StreamId stream) const { buffer_.record_stream(stream); }
  void reset() noexcept { buffer_.reset(); }

 private:
  static std::uint64_t bytes_for(std::uint64_t size) {
    // Past 2^64 is past every device; the allocator refuses this size with its report.
    if (size > std::numeric_limits<std::uint64_t>::max() / sizeof(T)) return UINT64_MAX;
    return size * sizeof(T);
  }

  [[nodiscard]] device::Device& device() const { return buffer_.allocator()->device(); }

  void check_count(const char* what, std::size_t count) const {
    if (count != size()) {
      throw InvalidArgument(std::string("Array::") + what + ": " + std::to_string(count) +
                            " elements for an array of " + std::to_string(size()));
    }
  }

  void finish(const device::DeviceResult<void>& copied) const {
    if (!copied) throw Error(to_string(copied.error()));
    if (auto waited = device().synchronize_stream(buffer_.stream()); !waited) {
      throw Error(to_string(waited.error()));
    }
  }

  Buffer buffer_;
};

}  // namespace headroom::memory
