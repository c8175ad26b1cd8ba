// std::pmr over memory the processor can touch: an allocator of the cpu device, or pinned memory.
//
//   AllocatorResource resource(headroom::allocator("cpu"));
//   std::pmr::vector<float> values(1024, &resource);
//
// Counted, limited and reported like everything else; a failure throws memory::OutOfMemory.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <new>

#include "headroom/base/error.h"
#include "headroom/memory/allocator.h"

namespace headroom::memory {

class AllocatorResource final : public std::pmr::memory_resource {
 public:
  // Throws InvalidArgument when the processor cannot touch the allocator's memory.
  explicit AllocatorResource(Allocator& allocator) : allocator_(allocator) {
    if (!allocator.device().properties().host_accessible) {
      throw InvalidArgument("AllocatorResource: the processor cannot touch memory of " +
                            to_string(allocator.device().id()) +
                            "; use an allocator of a cpu device, or PinnedResource");
    }
  }

 private:
  // pmr asks for a pointer even for no bytes; this one is never followed.
  static void* nothing() noexcept {
    alignas(kMinBlockBytes) static std::byte sentinel[1];
    return sentinel;
  }

  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    if (alignment > kMinBlockBytes) throw std::bad_alloc();
    if (bytes == 0) return nothing();
    return reinterpret_cast<void*>(allocator_.allocate(bytes));
  }
  void do_deallocate(void* pointer, std::size_t bytes, std::size_t /*alignment*/) override {
    if (bytes != 0) allocator_.free(reinterpret_cast<DeviceAddress>(pointer));
  }
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    const auto* same = dynamic_cast<const AllocatorResource*>(&other);
    return same != nullptr && &same->allocator_ == &allocator_;
  }

  Allocator& allocator_;
};

// Host memory that a device copies from fastest. Not the device's memory, so not in its account.
class PinnedResource final : public std::pmr::memory_resource {
 public:
  explicit PinnedResource(device::Device& device) : device_(device) {}

 private:
  static constexpr std::size_t kAlignment = 64;

  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    if (alignment > kAlignment) throw std::bad_alloc();
    const auto pointer = device_.allocate_pinned(bytes == 0 ? 1 : bytes);
    if (!pointer) throw std::bad_alloc();
    return *pointer;
  }
  void do_deallocate(void* pointer, std::size_t /*bytes*/, std::size_t /*alignment*/) override {
    (void)device_.free_pinned(pointer);
  }
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    const auto* same = dynamic_cast<const PinnedResource*>(&other);
    return same != nullptr && &same->device_ == &device_;
  }

  device::Device& device_;
};

}  // namespace headroom::memory
