// Storage: one allocation with a category and a version, shared by every tensor that views it.
//
// It frees its memory when its last user drops it. Work that another stream still has queued on it
// is the user's to announce with record_stream, as in PyTorch: the allocator then keeps the block
// from others until that stream has passed it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "headroom/memory/allocator.h"

namespace headroom::tensor {

class Storage {
 public:
  // The category of the thread's CategoryScope, or `category` where no scope says one.
  // Throws OutOfMemory.
  Storage(memory::Allocator& allocator,
          std::uint64_t size_bytes,
          device::StreamId stream,
          memory::Category category);
  ~Storage() { allocator_.free(address_); }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  [[nodiscard]] memory::Allocator& allocator() const noexcept { return allocator_; }
  [[nodiscard]] device::Device& device() const noexcept { return allocator_.device(); }
  // 0 when there are no bytes.
  [[nodiscard]] device::DeviceAddress address() const noexcept { return address_; }
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] memory::Category category() const noexcept { return category_; }
  [[nodiscard]] device::StreamId stream() const noexcept { return stream_; }

  // Storages are numbered as they are made, over all threads.
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  [[nodiscard]] static std::uint64_t next_number() noexcept {
    return numbers_.load(std::memory_order_relaxed);
  }

  // The path of annotations it was made under.
  [[nodiscard]] memory::AnnotationId annotation() const noexcept { return annotation_; }
  // Made in inference mode: nothing of it is saved for backward, and writes are not counted.
  [[nodiscard]] bool is_inference() const noexcept { return is_inference_; }

  // Counts the writes since it was made; what was saved for backward compares it.
  [[nodiscard]] std::uint64_t version() const noexcept {
    return version_.load(std::memory_order_relaxed);
  }
  void bump_version() noexcept {
    if (!is_inference_) version_.fetch_add(1, std::memory_order_relaxed);
  }
  // The op that wrote to it last, or is about to; null where none has. For messages.
  [[nodiscard]] const char* writer() const noexcept {
    return writer_.load(std::memory_order_relaxed);
  }
  void set_writer(const char* op) noexcept { writer_.store(op, std::memory_order_relaxed); }

  // Throws Error when the stream is not one of the device.
  void record_stream(device::StreamId stream);

 private:
  // NOLINTNEXTLINE(readability-identifier-naming): a private member, as the others are
  static inline constinit std::atomic<std::uint64_t> numbers_{0};

  memory::Allocator& allocator_;
  std::uint64_t number_ = numbers_.fetch_add(1, std::memory_order_relaxed);
  std::uint64_t size_bytes_;
  device::StreamId stream_;
  memory::Category category_;
  bool is_inference_;
  memory::AnnotationId annotation_;
  device::DeviceAddress address_;
  std::atomic<std::uint64_t> version_{0};
  std::atomic<const char*> writer_{nullptr};
};

}  // namespace headroom::tensor
