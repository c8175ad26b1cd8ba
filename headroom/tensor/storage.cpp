#include "headroom/tensor/storage.h"

#include "headroom/base/error.h"
#include "headroom/memory/annotation.h"
#include "headroom/tensor/tape.h"

namespace headroom::tensor {
namespace {

memory::Category category_or(memory::Category category) noexcept {
  const memory::Category current = memory::current_context().category;
  // A workspace is one whatever the scope says: nothing else lives in it.
  if (current == memory::Category::kUnknown || category == memory::Category::kWorkspace) {
    return category;
  }
  return current;
}

device::DeviceAddress allocate(memory::Allocator& allocator,
                               std::uint64_t size_bytes,
                               device::StreamId stream,
                               memory::Category category) {
  const memory::CategoryScope scope(category);
  return allocator.allocate(size_bytes, stream);
}

}  // namespace

Storage::Storage(memory::Allocator& allocator,
                 std::uint64_t size_bytes,
                 device::StreamId stream,
                 memory::Category category)
    : allocator_(allocator),
      size_bytes_(size_bytes),
      stream_(stream),
      category_(category_or(category)),
      is_inference_(GradMode::is_inference()),
      annotation_(memory::current_context().annotation),
      address_(allocate(allocator, size_bytes, stream, category_)) {}

void Storage::record_stream(device::StreamId stream) {
  if (address_ == 0) return;
  if (auto recorded = allocator_.record_stream(address_, stream); !recorded) {
    throw Error(to_string(recorded.error()));
  }
}

}  // namespace headroom::tensor
