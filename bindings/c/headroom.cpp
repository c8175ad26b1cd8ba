#include "bindings/c/headroom.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <list>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/env.h"
#include "headroom/base/error.h"
#include "headroom/base/fork.h"
#include "headroom/device/device.h"
#include "headroom/device/registry.h"
#include "headroom/memory/api.h"

namespace {

using headroom::device::StreamId;
using headroom::memory::AllocationFailure;
using headroom::memory::Allocator;

thread_local std::string t_error;  // NOLINT(readability-identifier-naming)

void remember(const char* text) noexcept {
  try {
    t_error = text;
  } catch (...) {  // No memory for the sentence: an older one would mislead.
    t_error.clear();
  }
}

headroom_status refuse(headroom_status status, const std::string& text) noexcept {
  remember(text.c_str());
  return status;
}

// The streams that callers have given, besides the default one.
class GivenStreams {
 public:
  void add(StreamId stream) {
    const std::lock_guard lock(mutex_);
    if (std::ranges::count(all_, stream) > 0) return;
    all_.push_back(stream);
    is_empty_.store(false, std::memory_order_release);
  }
  // Without a lock: a program with one stream pays nothing for others.
  [[nodiscard]] bool is_empty() const noexcept { return is_empty_.load(std::memory_order_acquire); }
  [[nodiscard]] std::vector<StreamId> all() const {
    const std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  mutable headroom::ForkSafeMutex mutex_{headroom::ForkSafeMutex::Rank::kTable};
  std::vector<StreamId> all_;
  std::atomic<bool> is_empty_{true};
};

}  // namespace

// What the handle of a caller points at.
struct headroom_allocator {
  explicit headroom_allocator(Allocator& of) : device(of.device()), allocator(of) {}

  headroom::device::Device& device;
  Allocator& allocator;
  GivenStreams streams;
};

namespace {

struct Opened {
  headroom::ForkSafeMutex mutex{headroom::ForkSafeMutex::Rank::kHandles};
  std::list<headroom_allocator> all;  // never destroyed
};

// Never destroyed: memory may be freed until the very end of the process.
Opened& opened() {
  static Opened& instance = *new Opened;
  return instance;
}

// Before there are threads, so that no child is forked while one of them makes it.
[[maybe_unused]] const Opened& made_opened = opened();

// The id of a native stream. Threads mostly stay with one, so the last is remembered.
std::optional<StreamId> stream_of(headroom_allocator& handle, void* stream) {
  struct Last {
    headroom_allocator* handle = nullptr;
    void* stream = nullptr;
    StreamId id = StreamId::kDefault;
  };
  thread_local Last last;  // NOLINT(readability-identifier-naming)
  if (stream == nullptr) return StreamId::kDefault;
  if (last.handle == &handle && last.stream == stream) return last.id;
  const auto id = handle.device.adopt_stream(reinterpret_cast<std::uintptr_t>(stream),
                                             headroom::device::StreamLife::kUnknown);
  if (!id) {
    remember(to_string(id.error()).c_str());
    return std::nullopt;
  }
  handle.streams.add(*id);
  last = {.handle = &handle, .stream = stream, .id = *id};
  return *id;
}

void remember_failure(const AllocationFailure& failure) {
  if (failure.report != nullptr) {
    remember(failure.report->text.c_str());
  } else {
    remember(to_string(failure.status).c_str());
  }
}

std::uint64_t count_of(std::int64_t value) noexcept { return static_cast<std::uint64_t>(value); }

headroom_stats stats_of(headroom_allocator& handle) {
  using headroom::device::Call;
  const headroom::memory::Statistics s = handle.allocator.statistics();
  return {.size = sizeof(headroom_stats),
          .allocated = count_of(s.allocated_bytes.all.current),
          .allocated_peak = count_of(s.allocated_bytes.all.peak),
          .active = count_of(s.active_bytes.all.current),
          .active_peak = count_of(s.active_bytes.all.peak),
          .reserved = count_of(s.reserved_bytes.all.current),
          .reserved_peak = count_of(s.reserved_bytes.all.peak),
          .live_peak = count_of(s.live_bytes.peak),
          .allocations = count_of(s.allocation.all.allocated),
          .retries = count_of(s.num_alloc_retries),
          .out_of_memory = count_of(s.num_ooms),
          .handles_created = handle.device.calls(Call::kCreatePages),
          .handles_mapped = handle.device.calls(Call::kMapPages),
          .handles_unmapped = handle.device.calls(Call::kUnmapPages)};
}

// After a fork nothing is wrong with what the caller gave.
headroom_status refuse(const headroom::device::DeviceStatus& status) {
  const bool is_forked = status == headroom::device::StatusCode::kForked;
  return refuse(is_forked ? HEADROOM_FAILED : HEADROOM_INVALID, to_string(status));
}

// Runs a function of the library; what it throws becomes a status.
template <class Body>
headroom_status guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (const headroom::InvalidArgument& error) {
    remember(error.what());
    return HEADROOM_INVALID;
  } catch (const std::bad_alloc&) {
    remember("the host has no memory left");
    return HEADROOM_FAILED;
  } catch (const std::exception& error) {
    remember(error.what());
    return HEADROOM_FAILED;
  } catch (...) {
    remember("an unknown error");
    return HEADROOM_FAILED;
  }
}

}  // namespace

extern "C" {

headroom_status headroom_open(const char* device, headroom_allocator** out) {
  return guarded([&] {
    if (device == nullptr || out == nullptr) {
      return refuse(HEADROOM_INVALID,
                    "headroom_open: a name and a place for the handle are needed");
    }
    // A device has several names (`cpu`, `cpu:0`), and one allocator.
    const auto found = headroom::device::registry().find(std::string_view(device));
    if (!found) return refuse(HEADROOM_INVALID, found.error());
    Opened& all = opened();
    const std::lock_guard lock(all.mutex);
    for (headroom_allocator& known : all.all) {
      if (&known.device != *found) continue;
      *out = &known;
      return HEADROOM_OK;
    }
    const auto limit = headroom::env_bytes("HEADROOM_LIMIT");
    if (!limit) return refuse(HEADROOM_INVALID, limit.error());
    headroom_allocator& made = all.all.emplace_back(headroom::allocator((*found)->id()));
    if (*limit) made.allocator.set_limit(*limit);
    *out = &made;
    return HEADROOM_OK;
  });
}

void* headroom_allocate(headroom_allocator* allocator, size_t size, void* stream) {
  void* block = nullptr;
  (void)guarded([&] {
    if (allocator == nullptr) return refuse(HEADROOM_INVALID, "headroom_allocate: no allocator");
    const auto id = stream_of(*allocator, stream);
    if (!id) return HEADROOM_INVALID;
    const auto made = allocator->allocator.try_allocate(size, *id);
    if (!made) {
      remember_failure(made.error());
      return HEADROOM_OUT_OF_MEMORY;
    }
    block = reinterpret_cast<void*>(*made);
    return HEADROOM_OK;
  });
  return block;
}

headroom_status headroom_free(headroom_allocator* allocator, void* address) {
  return guarded([&] {
    if (allocator == nullptr) return refuse(HEADROOM_INVALID, "headroom_free: no allocator");
    const auto freed = allocator->allocator.try_free(reinterpret_cast<std::uintptr_t>(address));
    return freed ? HEADROOM_OK : refuse(freed.error());
  });
}

headroom_status headroom_record_stream(headroom_allocator* allocator, void* address, void* stream) {
  return guarded([&] {
    if (allocator == nullptr) {
      return refuse(HEADROOM_INVALID, "headroom_record_stream: no allocator");
    }
    const auto id = stream_of(*allocator, stream);
    if (!id) return HEADROOM_INVALID;
    const auto recorded =
        allocator->allocator.record_stream(reinterpret_cast<std::uintptr_t>(address), *id);
    return recorded ? HEADROOM_OK : refuse(recorded.error());
  });
}

headroom_status headroom_record_all_streams(headroom_allocator* allocator, void* address) {
  return guarded([&] {
    if (allocator == nullptr) {
      return refuse(HEADROOM_INVALID, "headroom_record_all_streams: no allocator");
    }
    if (allocator->streams.is_empty()) return HEADROOM_OK;
    std::vector<StreamId> streams = allocator->streams.all();
    streams.push_back(StreamId::kDefault);
    for (const StreamId stream : streams) {
      const auto recorded =
          allocator->allocator.record_stream(reinterpret_cast<std::uintptr_t>(address), stream);
      if (!recorded) return refuse(recorded.error());
    }
    return HEADROOM_OK;
  });
}

int headroom_owns(headroom_allocator* allocator, void* address) {
  bool is_owned = false;
  (void)guarded([&] {
    is_owned =
        allocator != nullptr &&
        allocator->allocator.find_block(reinterpret_cast<std::uintptr_t>(address)).has_value();
    return HEADROOM_OK;
  });
  return is_owned ? 1 : 0;
}

headroom_status headroom_set_limit(headroom_allocator* allocator, uint64_t bytes) {
  if (allocator == nullptr) return refuse(HEADROOM_INVALID, "headroom_set_limit: no allocator");
  allocator->allocator.set_limit(bytes == UINT64_MAX ? std::nullopt : std::optional(bytes));
  return HEADROOM_OK;
}

uint64_t headroom_empty_cache(headroom_allocator* allocator) {
  return allocator == nullptr ? 0 : allocator->allocator.empty_cache();
}

headroom_status headroom_get_stats(headroom_allocator* allocator, headroom_stats* out) {
  return guarded([&] {
    if (allocator == nullptr || out == nullptr || out->size < sizeof(size_t)) {
      return refuse(HEADROOM_INVALID,
                    "headroom_get_stats: an allocator and a headroom_stats with its size are "
                    "needed");
    }
    const headroom_stats stats = stats_of(*allocator);
    const size_t size = std::min(out->size, sizeof(stats));
    std::memcpy(reinterpret_cast<char*>(out) + sizeof(size_t),
                reinterpret_cast<const char*>(&stats) + sizeof(size_t),
                size - sizeof(size_t));
    return HEADROOM_OK;
  });
}

headroom_status headroom_reset_peaks(headroom_allocator* allocator) {
  if (allocator == nullptr) return refuse(HEADROOM_INVALID, "headroom_reset_peaks: no allocator");
  allocator->allocator.reset_peak_statistics();
  return HEADROOM_OK;
}

const char* headroom_last_error(void) { return t_error.c_str(); }

}  // extern "C"
