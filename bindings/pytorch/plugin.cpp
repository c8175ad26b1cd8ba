// PyTorch's pluggable allocator over headroom's: the functions that it calls.
//
// PyTorch calls headroom_torch_record_stream only where it was registered. Without it nobody says
// which streams use a block, so a block that is freed waits for every stream seen so far.
//
// HEADROOM_STATS=FILE writes the statistics of every device there at the end. The allocator is the
// paged one unless HEADROOM_ALLOC_CONF says otherwise. PyTorch's variables are ignored: they are
// there for PyTorch's own allocator, and say nothing about this one.
#include "bindings/pytorch/plugin.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include "headroom/base/env.h"
#include "headroom/base/error.h"
#include "headroom/base/fork.h"
#include "headroom/device/device.h"
#include "headroom/memory/allocator_choice.h"
#include "headroom/memory/api.h"
#include "headroom/memory/pytorch_message.h"

#include "bindings/c/headroom.h"

// Tests plug the cpu device in: its streams are threads.
#ifndef HEADROOM_TORCH_DEVICE
#define HEADROOM_TORCH_DEVICE "cuda"
#endif

namespace {

using headroom::memory::Allocator;
using headroom::memory::PoolId;

// PyTorch says which streams use a block.
std::atomic<bool> g_is_told_of_streams{false};  // NOLINT(readability-identifier-naming)

// The child of a fork holds nothing: its frees are nobody's loss, and its numbers nobody's.
const headroom::ForkMark g_loaded{};  // NOLINT(readability-identifier-naming)

// What PyTorch would have said of this thread's last failure.
thread_local std::string t_pytorch_text;  // NOLINT(readability-identifier-naming)

// A device that PyTorch has allocated on; never destroyed.
struct PluginDevice {
  headroom_allocator* handle = nullptr;
  Allocator* allocator = nullptr;
};

std::array<std::atomic<PluginDevice*>, headroom::torch_plugin::kMostDevices>& devices() {
  static std::array<std::atomic<PluginDevice*>, headroom::torch_plugin::kMostDevices> instance{};
  return instance;
}

void print_last_error() noexcept { std::fprintf(stderr, "headroom: %s\n", headroom_last_error()); }

void write_stats() noexcept {
  const char* const path = std::getenv("HEADROOM_STATS");
  if (g_loaded.is_forked() || path == nullptr || *path == '\0') return;
  std::FILE* const file = std::fopen(path, "w");
  if (file == nullptr) {
    std::fprintf(stderr, "headroom: HEADROOM_STATS: '%s' cannot be written\n", path);
    return;
  }
  std::fputs("[", file);
  const char* separator = "";
  for (int i = 0; i < headroom::torch_plugin::kMostDevices; ++i) {
    const PluginDevice* const known = devices()[static_cast<std::size_t>(i)].load();
    headroom_stats s{};
    s.size = sizeof(s);
    if (known == nullptr || headroom_get_stats(known->handle, &s) != HEADROOM_OK) continue;
    const auto n = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
    std::fprintf(file,
                 "%s{\"device\": %d, \"allocated_peak\": %llu, \"active_peak\": %llu, "
                 "\"reserved_peak\": %llu, \"live_peak\": %llu, \"allocations\": %llu, "
                 "\"retries\": %llu, \"out_of_memory\": %llu, \"handles_created\": %llu, "
                 "\"handles_mapped\": %llu, \"handles_unmapped\": %llu}",
                 separator,
                 i,
                 n(s.allocated_peak),
                 n(s.active_peak),
                 n(s.reserved_peak),
                 n(s.live_peak),
                 n(s.allocations),
                 n(s.retries),
                 n(s.out_of_memory),
                 n(s.handles_created),
                 n(s.handles_mapped),
                 n(s.handles_unmapped));
    separator = ", ";
  }
  std::fputs("]\n", file);
  std::fclose(file);
}

void leave_pytorch_its_variables() {
  std::string names;
  for (const std::string& name : headroom::ignore_pytorch_variables()) {
    names += (names.empty() ? "" : ", ") + name;
  }
  if (names.empty()) return;
  std::fprintf(stderr,
               "headroom: ignored: %s (for PyTorch's own allocator; HEADROOM_ALLOC_CONF sets "
               "headroom's)\n",
               names.c_str());
}

// PyTorch's first sentence, which programs look for in the text of an error. The rest of its words
// is about its own allocator.
std::string first_sentence(const std::string& text) { return text.substr(0, text.find(" GPU ")); }

std::string device_name(int device) { return HEADROOM_TORCH_DEVICE ":" + std::to_string(device); }

PluginDevice& open_device(int device) {
  headroom::torch_plugin::prepare();
  static std::mutex& mutex = *new std::mutex;
  const std::lock_guard lock(mutex);
  std::atomic<PluginDevice*>& place = devices()[static_cast<std::size_t>(device)];
  if (PluginDevice* const known = place.load()) return *known;
  auto made = std::make_unique<PluginDevice>();
  if (headroom_open(device_name(device).c_str(), &made->handle) != HEADROOM_OK) {
    throw headroom::Error(headroom_last_error());
  }
  made->allocator = &headroom::allocator(device_name(device));
  made->allocator->add_out_of_memory_callback(
      [](const headroom::memory::OutOfMemoryReport& report) {
        t_pytorch_text = first_sentence(pytorch_message(report));
      });
  headroom::torch_plugin::apply_settings(*made->allocator);
  static std::once_flag once;
  std::call_once(once, [] { std::atexit(write_stats); });
  place.store(made.get(), std::memory_order_release);
  return *made.release();
}

PluginDevice* known_device(int device) noexcept {
  if (device < 0 || device >= headroom::torch_plugin::kMostDevices) return nullptr;
  return devices()[static_cast<std::size_t>(device)].load(std::memory_order_acquire);
}

PluginDevice& device_at(int device) {
  if (PluginDevice* const known = known_device(device)) return *known;
  if (device < 0 || device >= headroom::torch_plugin::kMostDevices) {
    throw headroom::InvalidArgument("device " + std::to_string(device) + " is not in 0 to " +
                                    std::to_string(headroom::torch_plugin::kMostDevices - 1));
  }
  return open_device(device);
}

// The device that a block belongs to, of those that have handed out blocks.
const PluginDevice* owner_of(void* address) noexcept {
  for (const auto& place : devices()) {
    const PluginDevice* const candidate = place.load(std::memory_order_acquire);
    if (candidate != nullptr && headroom_owns(candidate->handle, address) != 0) return candidate;
  }
  return nullptr;
}

[[noreturn]] void throw_failure() {
  std::string text = headroom_last_error();
  if (!t_pytorch_text.empty()) text = std::exchange(t_pytorch_text, {}) + "\n\n" + text;
  throw std::runtime_error(text);
}

PoolId pool_id(headroom_torch_pool pool) { return {.graph = pool.first, .user = pool.second}; }

}  // namespace

namespace headroom::torch_plugin {

Allocator& allocator_of(int device) { return *device_at(device).allocator; }

Allocator* opened_allocator(int device) noexcept {
  const PluginDevice* const known = known_device(device);
  return known == nullptr ? nullptr : known->allocator;
}

bool is_forked() noexcept { return g_loaded.is_forked(); }

void prepare() {
  static std::once_flag once;
  std::call_once(once, leave_pytorch_its_variables);
  const auto choice = memory::choice_from_environment(memory::PyTorchVariables::kIgnore);
  if (!choice) throw InvalidArgument(choice.error());
  const auto limit = env_bytes("HEADROOM_LIMIT");
  if (!limit) throw InvalidArgument(limit.error());
}

}  // namespace headroom::torch_plugin

extern "C" {

void* headroom_torch_malloc(size_t size, int device, void* stream) {
  PluginDevice& from = device_at(device);
  if (size == 0) return nullptr;
  void* const block = headroom_allocate(from.handle, size, stream);
  if (block == nullptr) [[unlikely]] {
    throw_failure();
  }
  return block;
}

void headroom_torch_free(void* address, size_t /*size*/, int device, void* /*stream*/) noexcept {
  const PluginDevice* const from = known_device(device);
  if (from == nullptr || address == nullptr || g_loaded.is_forked()) return;
  if (!g_is_told_of_streams.load(std::memory_order_relaxed) &&
      headroom_record_all_streams(from->handle, address) != HEADROOM_OK) {
    print_last_error();  // and the block stays: better lost than written over while it is read
    return;
  }
  if (headroom_free(from->handle, address) != HEADROOM_OK) print_last_error();
}

void headroom_torch_record_stream(void* address, void* stream) noexcept {
  g_is_told_of_streams.store(true, std::memory_order_relaxed);
  const PluginDevice* const owner = owner_of(address);
  if (owner == nullptr) return;
  if (headroom_record_stream(owner->handle, address, stream) != HEADROOM_OK) print_last_error();
}

// Allocators are made when a device is first used: a program that has eight GPUs and uses one makes
// one context. Here only what is wrong with the environment is told.
void headroom_torch_init(int /*device_count*/) { headroom::torch_plugin::prepare(); }

void headroom_torch_reset() noexcept {
  for (int i = 0; i < headroom::torch_plugin::kMostDevices; ++i) {
    const PluginDevice* const known = known_device(i);
    if (known != nullptr && !g_loaded.is_forked()) known->allocator->empty_cache();
  }
}

void headroom_torch_memory_fraction(double fraction, int device) {
  Allocator& allocator = headroom::torch_plugin::allocator_of(device);
  allocator.set_memory_fraction(fraction);
  headroom::torch_plugin::apply_settings(allocator);
}

void* headroom_torch_base_alloc(void* address, size_t* size) noexcept {
  try {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    for (int i = 0; i < headroom::torch_plugin::kMostDevices; ++i) {
      const PluginDevice* const known = known_device(i);
      if (known == nullptr || !known->allocator->device().owns_range(at, 1)) continue;
      const auto place = known->allocator->locate(at);
      if (!place) continue;
      if (size != nullptr) *size = place->segment_bytes;
      return reinterpret_cast<void*>(place->segment_address);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "headroom: %s\n", error.what());
  }
  if (size != nullptr) *size = 0;
  return address;
}

void headroom_torch_begin_allocate_to_pool(int device,
                                           headroom_torch_pool pool,
                                           std::function<bool(void*)> filter) {
  Allocator& allocator = headroom::torch_plugin::allocator_of(device);
  allocator.begin_allocate_to_pool(
      pool_id(pool),
      [filter = std::move(filter), &of = allocator.device()](headroom::device::StreamId stream) {
        if (!filter) return true;
        const auto native = of.native_stream(stream);
        return native && filter(reinterpret_cast<void*>(*native));
      });
  allocator.begin_capture();
}

void headroom_torch_end_allocate_to_pool(int device, headroom_torch_pool pool) {
  if (g_loaded.is_forked()) return;
  Allocator& allocator = headroom::torch_plugin::allocator_of(device);
  allocator.end_allocate_to_pool(pool_id(pool));
  allocator.end_capture();
}

void headroom_torch_release_pool(int device, headroom_torch_pool pool) noexcept {
  PluginDevice* const known = known_device(device);
  if (known == nullptr || g_loaded.is_forked()) return;
  try {
    known->allocator->release_pool(pool_id(pool));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "headroom: %s\n", error.what());
  }
}

void headroom_torch_set_record_stream_is_registered(int is_registered) noexcept {
  g_is_told_of_streams.store(is_registered != 0, std::memory_order_relaxed);
}

headroom_allocator* headroom_torch_allocator(int device) noexcept {
  try {
    return device_at(device).handle;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "headroom: %s\n", error.what());
    return nullptr;
  }
}

}  // extern "C"
