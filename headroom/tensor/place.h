// Place and TensorOptions: where a tensor is to live, and what it is to be.
#pragma once

#include <string>

#include "headroom/memory/api.h"
#include "headroom/tensor/dtype.h"

namespace headroom {

// Where a tensor is to live: a device by name, number or id (its allocator is the process's own),
// or an allocator, which must outlive what is placed there.
class Place {
 public:
  Place() = default;
  // NOLINTBEGIN(google-explicit-constructor): they read as PyTorch's device argument
  Place(const char* name) : which_(name) {}
  Place(const std::string& name) : which_(name) {}
  Place(device::DeviceId id) noexcept : which_(id) {}
  Place(int index) noexcept : which_(index) {}
  Place(memory::Allocator& allocator) noexcept : allocator_(&allocator) {}
  // NOLINTEND(google-explicit-constructor)

  // Throws InvalidArgument when the device does not exist.
  [[nodiscard]] memory::Allocator& resolve() const {
    return allocator_ != nullptr ? *allocator_ : allocator(which_);
  }

 private:
  WhichDevice which_{};
  memory::Allocator* allocator_ = nullptr;
};

struct TensorOptions {
  DType dtype = DType::kF32;
  Place device{};
  bool requires_grad = false;
};

}  // namespace headroom
