#include "benchmarks/contenders.h"

#include <chrono>
#include <cstdlib>
#include <dlfcn.h>
#include <utility>

#include <fmt/format.h>

#include "headroom/base/bytes.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/device/registry.h"
#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/memory/paged/paged_allocator.h"

#include "cli/command.h"

namespace headroom::cli {
namespace {

using device::Device;
using device::DeviceKind;

class Malloc final : public Contender {
 public:
  [[nodiscard]] std::string name() const override { return "malloc (C library)"; }
  std::uint64_t allocate(std::uint64_t size_bytes) override {
    return reinterpret_cast<std::uint64_t>(std::malloc(size_bytes));
  }
  void free(std::uint64_t address) override { std::free(reinterpret_cast<void*>(address)); }
};

// Opened at run time and kept to itself: linked in, it would take the place of malloc.
class Mimalloc final : public Contender {
 public:
  static std::unique_ptr<Mimalloc> open() {
    for (const char* name : {"libmimalloc.so.2", "libmimalloc.so"}) {
      if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
        auto contender = std::make_unique<Mimalloc>();
        contender->malloc_ = reinterpret_cast<void* (*)(std::size_t)>(dlsym(library, "mi_malloc"));
        contender->free_ = reinterpret_cast<void (*)(void*)>(dlsym(library, "mi_free"));
        if (contender->malloc_ != nullptr && contender->free_ != nullptr) return contender;
      }
    }
    return nullptr;
  }
  [[nodiscard]] std::string name() const override { return "mimalloc"; }
  std::uint64_t allocate(std::uint64_t size_bytes) override {
    return reinterpret_cast<std::uint64_t>(malloc_(size_bytes));
  }
  void free(std::uint64_t address) override { free_(reinterpret_cast<void*>(address)); }

 private:
  void* (*malloc_)(std::size_t) = nullptr;
  void (*free_)(void*) = nullptr;
};

// One of ours. Calls go to the allocator itself, as a program's do.
template <class Allocator>
class Ours : public Contender {
 public:
  template <class... Options>
  explicit Ours(Device& device, Options... options) : allocator_(device, options...) {}

  std::uint64_t allocate(std::uint64_t size_bytes) final { return allocator_.allocate(size_bytes); }
  void free(std::uint64_t address) final { allocator_.free(address); }
  void begin_case() final {
    allocator_.empty_cache();
    allocator_.reset_peak_statistics();
  }
  [[nodiscard]] std::optional<double> reserved_over_live() const final {
    const memory::Statistics stats = allocator_.statistics();
    return static_cast<double>(stats.reserved_bytes.all.peak) /
           static_cast<double>(stats.live_bytes.peak);
  }

 private:
  Allocator allocator_;
};

class Caching final : public Ours<memory::CachingAllocator> {
 public:
  Caching(Device& device, bool expandable)
      : Ours(device, memory::CachingOptions{.config = {.expandable_segments = expandable}}),
        is_expandable_(expandable) {}
  [[nodiscard]] std::string name() const override {
    return is_expandable_ ? "headroom caching, expandable" : "headroom caching";
  }

 private:
  bool is_expandable_;
};

class Paged final : public Ours<memory::PagedAllocator> {
 public:
  using Ours::Ours;
  [[nodiscard]] std::string name() const override { return "headroom paged"; }
};

// Every block a segment of the device: on a GPU, what cudaMalloc and cudaFree do.
class Segments final : public Contender {
 public:
  explicit Segments(Device& device) : device_(device) {}
  [[nodiscard]] std::string name() const override {
    return device_.id().kind == DeviceKind::kCuda ? "cudaMalloc / cudaFree" : "segments, uncached";
  }
  std::uint64_t allocate(std::uint64_t size_bytes) override {
    const auto made = device_.allocate_segment(size_bytes);
    if (!made) throw Error(to_string(made.error()));
    return *made;
  }
  void free(std::uint64_t address) override {
    if (const auto freed = device_.free_segment(address); !freed) {
      throw Error(to_string(freed.error()));
    }
  }

 private:
  Device& device_;
};

std::chrono::nanoseconds machine_clock() {
  return std::chrono::steady_clock::now().time_since_epoch();
}

void add_host_contenders(Contenders& contenders) {
  contenders.all.push_back(std::make_unique<Malloc>());
  if (auto mimalloc = Mimalloc::open()) {
    contenders.all.push_back(std::move(mimalloc));
  } else {
    contenders.notes.emplace_back("mimalloc is not installed; ratios are to malloc");
  }
}

}  // namespace

Device& find_device(std::string_view name, std::unique_ptr<Device>& own) {
  const auto id = device::parse_device_id(name);
  if (!id) throw UsageError(id.error());
  if (id->kind == DeviceKind::kMeta) {
    own = device::MetaDevice::create({.capacity_bytes = 4_TiB, .clock = machine_clock});
    return *own;
  }
  const auto found = device::registry().find(*id);
  if (!found) throw Error(found.error());
  return **found;
}

Contenders find_contenders(std::string_view device) {
  Contenders contenders;
  Device& found = find_device(device, contenders.own_device);
  const DeviceKind kind = found.id().kind;
  contenders.device = to_string(found.id());
  contenders.room_bytes = found.properties().total_bytes;
  contenders.all.push_back(std::make_unique<Paged>(found));
  contenders.all.push_back(std::make_unique<Caching>(found, false));
  contenders.all.push_back(std::make_unique<Caching>(found, true));
  if (kind != DeviceKind::kMeta) {
    contenders.all.push_back(std::make_unique<Segments>(found));
  }
  if (kind == DeviceKind::kCuda) {
    // Of the host's memory; there to say what several threads reach that have little to share.
    contenders.all.push_back(std::make_unique<Malloc>());
    add_cuda_contenders(contenders, found.id().index);
  } else {
    add_host_contenders(contenders);
  }
  return contenders;
}

}  // namespace headroom::cli
