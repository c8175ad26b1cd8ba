#include "bindings/pytorch/bridge/recordings.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/fork.h"
#include "headroom/trace/record/history.h"

#include "bindings/pytorch/bridge/named_stacks.h"
#include "bindings/pytorch/bridge/process.h"

namespace headroom::bridge {
namespace {

// Of the process; ended when it exits. Never destroyed, as memory may be freed until the very end.
class Recordings {
 public:
  static Recordings& instance() {
    static Recordings& recordings = *new Recordings;
    return recordings;
  }

  void start(int device, const std::string& path, std::uint64_t max_bytes, bool has_stacks) {
    const std::lock_guard lock(mutex_);
    Running& running = of(device);
    DeviceMemory* const memory = opened_memory(device);
    if (memory != nullptr && Process::impl_of(*memory).allocator.is_forked()) throw Forked();
    if (running.history != nullptr) {
      throw Error("device " + std::to_string(device) + " is being recorded already, into " +
                  running.path + ": stop that recording first");
    }
    running = {.history = open(device, path, max_bytes, has_stacks), .path = path};
    try {
      if (memory != nullptr) attach(running, Process::impl_of(*memory).allocator);
    } catch (...) {
      running = {};
      wants_stacks(device).store(false, std::memory_order_relaxed);
      throw;
    }
    if (!std::exchange(is_ended_at_exit_, true)) std::atexit([] { instance().stop_all(); });
  }

  void attach(int device, memory::Allocator& allocator) {
    const std::lock_guard lock(mutex_);
    attach(of(device), allocator);
  }

  void stop(int device) {
    const std::lock_guard lock(mutex_);
    const std::shared_ptr<trace::History> history = std::exchange(of(device).history, nullptr);
    if (history == nullptr) return;
    wants_stacks(device).store(false, std::memory_order_relaxed);
    (void)history->stop();  // what went wrong was told already
  }

  void stop_all() {
    for (int device = 0; device < Process::kMostDevices; ++device) stop(device);
  }

  [[nodiscard]] bool is_running(int device) {
    const std::lock_guard lock(mutex_);
    return of(device).history != nullptr;
  }

 private:
  struct Running {
    std::shared_ptr<trace::History> history{};
    std::string path{};
    bool is_attached = false;
    ForkMark made_in{};
  };

  // What the parent of this process records is not ours.
  Running& of(int device) {
    if (device < 0 || device >= Process::kMostDevices) {
      throw InvalidArgument("headroom: there is no device " + std::to_string(device));
    }
    Running& running = running_[static_cast<std::size_t>(device)];
    if (running.history != nullptr && running.made_in.is_forked()) running = {};
    return running;
  }

  static void attach(Running& running, memory::Allocator& allocator) {
    if (running.history == nullptr || std::exchange(running.is_attached, true)) return;
    running.history->attach(allocator);
  }

  static std::shared_ptr<trace::History> open(int device,
                                              const std::string& path,
                                              std::uint64_t max_bytes,
                                              bool has_stacks) {
    std::error_code none;
    if (std::filesystem::exists(path, none)) {
      throw Error(path + " exists: remove it, or put %p into the name, for the process's number");
    }
    auto history = std::make_shared<trace::History>(trace::HistoryOptions{
        .file = path,
        .max_file_bytes = max_bytes,
        .stack_source = has_stacks ? &NamedStacks::instance() : nullptr,
        .on_failure = [device](const std::string& why) {
          wants_stacks(device).store(false, std::memory_order_relaxed);
          std::fprintf(stderr, "headroom: the recording ends here: %s\n", why.c_str());
        }});
    NamedStacks::instance().walk_here();
    wants_stacks(device).store(has_stacks, std::memory_order_relaxed);
    return history;
  }

  ForkSafeMutex mutex_{ForkSafeMutex::Rank::kAllocators};  // taken while Process opens a device
  bool is_ended_at_exit_ = false;
  std::array<Running, Process::kMostDevices> running_{};
};

// Before there are threads, so that no child is forked while one of them makes it.
[[maybe_unused]] const Recordings& made_recordings = Recordings::instance();

}  // namespace

void record_start(int device, const std::string& path, std::uint64_t max_bytes, bool has_stacks) {
  Recordings::instance().start(device, path, max_bytes, has_stacks);
}
void record_stop(int device) { Recordings::instance().stop(device); }
void attach_recording(int index, memory::Allocator& allocator) noexcept {
  try {
    Recordings::instance().attach(index, allocator);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "headroom: device %d is not recorded: %s\n", index, error.what());
  }
}
bool is_recording(int device) { return Recordings::instance().is_running(device); }

}  // namespace headroom::bridge
