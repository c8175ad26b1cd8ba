#include "benchmarks/device/bench_device.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "headroom/base/bytes.h"

#include "benchmarks/contenders.h"
#include "benchmarks/device/device_load.h"
#include "benchmarks/device/device_must.h"

namespace headroom::cli {
namespace {

using device::Device;
using device::DeviceAddress;
using device::DeviceKind;
using device::EventId;
using device::PageHandle;
using device::StreamId;
using Clock = std::chrono::steady_clock;

// One thing to time: a call, and its size.
struct What {
  std::string call;
  std::uint64_t size_bytes = 0;
  std::uint64_t handles = 0;

  friend bool operator==(const What&, const What&) = default;
};

enum class Mode : std::uint8_t { kWarmUp, kIdle, kLoaded };

// Times calls, with a load in front of each or without, and keeps the samples of each in the order
// in which they first came.
class Timer {
 public:
  explicit Timer(DeviceLoad& load) : load_(load) {}

  void set_mode(Mode mode) noexcept { mode_ = mode; }
  [[nodiscard]] bool is_loaded() const noexcept { return mode_ == Mode::kLoaded; }

  template <class Call>
  auto time(const What& what, Call&& call) {
    if (is_loaded()) load_.start();
    const auto begin = Clock::now();
    if constexpr (std::is_void_v<std::invoke_result_t<Call>>) {
      call();
      keep(what, begin);
    } else {
      auto result = call();
      keep(what, begin);
      return result;
    }
  }

  [[nodiscard]] std::vector<CallCost> costs() const {
    std::vector<CallCost> costs;
    for (const Row& row : rows_) {
      CallCost cost{.call = row.what.call,
                    .size_bytes = row.what.size_bytes,
                    .handles = row.what.handles,
                    .idle_us = spread_of(row.idle)};
      if (!row.loaded.empty()) {
        cost.loaded_us = spread_of(row.loaded);
        // Half of the load, since it began to run while it was still being queued.
        const double half_us = load_.duration_ms() * 1e3 / 2;
        cost.waits = cost.loaded_us->median > half_us && cost.idle_us.median < half_us;
      }
      costs.push_back(std::move(cost));
    }
    return costs;
  }

 private:
  struct Row {
    What what;
    std::vector<double> idle;
    std::vector<double> loaded;
  };

  void keep(const What& what, Clock::time_point begin) {
    const std::chrono::duration<double, std::micro> elapsed = Clock::now() - begin;
    if (is_loaded()) load_.finish();
    if (mode_ == Mode::kWarmUp) return;
    auto row = std::ranges::find(rows_, what, &Row::what);
    if (row == rows_.end()) row = rows_.insert(row, Row{.what = what, .idle = {}, .loaded = {}});
    (is_loaded() ? row->loaded : row->idle).push_back(elapsed.count());
  }

  DeviceLoad& load_;
  Mode mode_ = Mode::kWarmUp;
  std::vector<Row> rows_{};
};

// The calls of one device, group by group. A group times each of its calls once.
class Calls {
 public:
  Calls(Device& device, Timer& timer)
      : device_(device),
        timer_(timer),
        unit_(std::min(1_GiB, device.properties().total_bytes / 16 / 64_MiB * 64_MiB)) {
    if (unit_ == 0) {
      throw Error(fmt::format("{} has less than 1GiB; that is too little to measure on",
                              to_string(device.id())));
    }
    stream_ = must(device_.create_stream());
  }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;
  ~Calls() { (void)device_.release_stream(stream_); }

  void segments() {
    for (const std::uint64_t size : sizes({512, 2_MiB, 64_MiB, 1_GiB})) {
      const auto segment = timer_.time({"allocate_segment", size},
                                       [&] { return must(device_.allocate_segment(size)); });
      timer_.time({"free_segment", size}, [&] { must(device_.free_segment(segment)); });
    }
  }

  void addresses() {
    if (!device_.properties().has_virtual_memory) return;
    for (const std::uint64_t size : {2_MiB, 1_GiB, 1_TiB}) {
      if (size > device_.properties().max_reservation_bytes) continue;
      const auto range = timer_.time({"reserve_addresses", size},
                                     [&] { return must(device_.reserve_addresses(size)); });
      timer_.time({"release_addresses", size}, [&] { must(device_.release_addresses(range)); });
    }
  }

  // The same amount of memory in handles of every size: most of these calls cost by the handle.
  void pages() {
    if (!device_.properties().has_virtual_memory) return;
    for (const std::uint64_t size : sizes({2_MiB, 8_MiB, 20_MiB, 64_MiB, 256_MiB, 1_GiB})) {
      if (size % device_.properties().granularity_bytes == 0) pages_of(size);
    }
  }

  void events() {
    // Under a load each sample takes as long as that, so there are fewer.
    const int count = timer_.is_loaded() ? 1 : 20;
    for (int i = 0; i < count; ++i) {
      const EventId event =
          timer_.time({"record_event"}, [&] { return must(device_.record_event(stream_)); });
      must(device_.synchronize_event(event));
      timer_.time({"query_event"}, [&] { return must(device_.query_event(event)); });
      timer_.time({"synchronize_event"}, [&] { must(device_.synchronize_event(event)); });
      timer_.time({"wait_event"}, [&] { must(device_.wait_event(stream_, event)); });
      timer_.time({"release_event"}, [&] { must(device_.release_event(event)); });
    }
    const StreamId made =
        timer_.time({"create_stream"}, [&] { return must(device_.create_stream()); });
    timer_.time({"synchronize_stream"}, [&] { must(device_.synchronize_stream(made)); });
    timer_.time({"release_stream"}, [&] { must(device_.release_stream(made)); });
    timer_.time({"memory_info"}, [&] { return must(device_.memory_info()); });
  }

  // Queued, and until it is done.
  void copies() {
    for (const std::uint64_t size : sizes({4_KiB, 1_MiB, 64_MiB})) {
      const DeviceAddress to = must(device_.allocate_segment(2 * size));
      void* host = timer_.time({"allocate_pinned", size},
                               [&] { return must(device_.allocate_pinned(size)); });
      transfer("fill", size, [&] { return device_.fill(to, 1, size, stream_); });
      transfer(
          "copy_within", size, [&] { return device_.copy_within(to, to + size, size, stream_); });
      transfer(
          "copy_to_device", size, [&] { return device_.copy_to_device(to, host, size, stream_); });
      transfer("copy_to_host", size, [&] { return device_.copy_to_host(host, to, size, stream_); });
      timer_.time({"free_pinned", size}, [&] { must(device_.free_pinned(host)); });
      must(device_.free_segment(to));
    }
  }

  // The driver's own pool, which the contract does not have.
  void pool(Contender& pool) {
    for (const std::uint64_t size : sizes({512, 2_MiB, 64_MiB, 1_GiB})) {
      const auto block =
          timer_.time({"cuMemAllocAsync", size}, [&] { return pool.allocate(size); });
      timer_.time({"cuMemFreeAsync", size}, [&] { pool.free(block); });
    }
  }

 private:
  [[nodiscard]] std::vector<std::uint64_t> sizes(std::vector<std::uint64_t> wanted) const {
    std::erase_if(wanted, [&](std::uint64_t size) { return size > unit_; });
    return wanted;
  }

  void pages_of(std::uint64_t size) {
    std::vector<PageHandle> handles(unit_ / size);
    const std::uint64_t total = handles.size() * size;
    const auto what = [&](std::string call) {
      return What{std::move(call), total, handles.size()};
    };
    const DeviceAddress range = must(device_.reserve_addresses(total));
    const DeviceAddress alias = must(device_.reserve_addresses(total));
    timer_.time(what("create_pages"), [&] {
      for (PageHandle& handle : handles) handle = must(device_.create_pages(size));
    });
    timer_.time(what("map_pages"), [&] { must(device_.map_pages(range, handles)); });
    timer_.time(what("map_pages, again"), [&] { must(device_.map_pages(alias, handles)); });
    timer_.time(what("unmap_pages"), [&] { return must(device_.unmap_pages(alias, total)); });
    (void)must(device_.unmap_pages(range, total));
    timer_.time(what("release_pages"), [&] {
      for (const PageHandle handle : handles) must(device_.release_pages(handle));
    });
    must(device_.release_addresses(range));
    must(device_.release_addresses(alias));
  }

  template <class Call>
  void transfer(const std::string& name, std::uint64_t size, Call&& call) {
    const auto tried = call();
    if (!tried && tried.error().code == device::StatusCode::kNotSupported) return;  // no values
    must(tried);
    must(device_.synchronize_stream(stream_));
    timer_.time({name, size}, [&] { must(call()); });
    must(device_.synchronize_stream(stream_));
    timer_.time({name + ", until done", size}, [&] {
      must(call());
      must(device_.synchronize_stream(stream_));
    });
  }

  Device& device_;
  Timer& timer_;
  std::uint64_t unit_;
  StreamId stream_{};
};

struct Group {
  const char* name;
  std::function<void()> run;
};

std::unique_ptr<Contender> find_pool(const Device& device, DeviceBench& bench) {
  if (device.id().kind != DeviceKind::kCuda) return nullptr;
  try {
    auto pool = open_driver_pool(device.id().index);
    pool->enter_thread();
    return pool;
  } catch (const Error& error) {
    bench.notes.push_back(fmt::format("cuMemAllocAsync is left out: {}", error.what()));
    return nullptr;
  }
}

}  // namespace

DeviceBench bench_device(Device& device,
                         const DeviceBenchOptions& options,
                         const Progress& progress) {
  DeviceBench bench{.device = to_string(device.id()), .name = device.properties().name};
  DeviceLoad load(device, options.load_ms);
  bench.load_ms = load.duration_ms();
  Timer timer(load);
  Calls calls(device, timer);
  const auto pool = find_pool(device, bench);
  const std::array groups{Group{"segments", [&] { calls.segments(); }},
                          Group{"stream-ordered memory",
                                [&] {
                                  if (pool) calls.pool(*pool);
                                }},
                          Group{"addresses", [&] { calls.addresses(); }},
                          Group{"pages", [&] { calls.pages(); }},
                          Group{"streams and events", [&] { calls.events(); }},
                          Group{"copies", [&] { calls.copies(); }}};
  const auto run = [&](const Group& group, Mode mode, int rounds) {
    timer.set_mode(mode);
    for (int round = 0; round < rounds; ++round) group.run();
  };
  for (const Group& group : groups) {
    progress(fmt::format("measuring {}", group.name));
    run(group, Mode::kWarmUp, 1);
    run(group, Mode::kIdle, options.rounds);
    if (bench.load_ms == 0) continue;
    progress(fmt::format("measuring {} under load", group.name));
    run(group, Mode::kLoaded, options.rounds);
  }
  progress("");
  bench.calls = timer.costs();
  return bench;
}

}  // namespace headroom::cli
