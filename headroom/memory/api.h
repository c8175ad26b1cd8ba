// PyTorch's names, as free functions over the process's own allocators, one per device.
//
//   headroom::set_device("cpu:1");
//   auto block = headroom::allocator().allocate(1_MiB);
//   headroom::memory_allocated();          // of the current device, as in torch.cuda
//   headroom::max_memory_reserved(0);      // of device 0 of the current kind
//   headroom::memory_allocated("cpu:0");   // of that one
//
// Nothing exists before the first call. The allocators are never destroyed, so that memory in
// static variables can still be freed while the program ends.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/device/device.h"
#include "headroom/memory/allocator.h"

namespace headroom {

// Which device a call is about: none said is the current one; a number is an index of the current
// kind; a name is exact.
class WhichDevice {
 public:
  WhichDevice() = default;
  // NOLINTBEGIN(google-explicit-constructor): they read as PyTorch's argument
  WhichDevice(int index) noexcept : by_(By::kIndex), index_(index) {}
  WhichDevice(device::DeviceId id) noexcept : by_(By::kId), id_(id) {}
  // Throw InvalidArgument when it names no device.
  WhichDevice(const char* name);
  WhichDevice(const std::string& name) : WhichDevice(name.c_str()) {}
  // NOLINTEND(google-explicit-constructor)

  // Throws InvalidArgument, listing what there is, when the device does not exist.
  [[nodiscard]] device::Device& resolve() const;

 private:
  enum class By : std::uint8_t { kCurrent, kIndex, kId };
  By by_ = By::kCurrent;
  int index_ = 0;
  device::DeviceId id_{};
};

// --- Devices -------------------------------------------------------------------------------------

// Devices of the current kind.
[[nodiscard]] int device_count();
// Makes a device current for this thread.
void set_device(WhichDevice which);
// The thread's current device; at first a GPU where there is one, else cpu:0.
[[nodiscard]] device::DeviceId current_device();

// The process's allocator for a device, made on first use with the settings of the environment.
// Throws InvalidArgument when those are wrong.
[[nodiscard]] memory::Allocator& allocator(WhichDevice which = {});

// The allocator whose device has the address; null where none has, or nothing was allocated there.
// Of meta devices, whose addresses may be the same, the first.
[[nodiscard]] memory::Allocator* find_allocator(memory::DeviceAddress address);

// For a program in which PyTorch's own allocator reads them too: from now on PyTorch's variables
// set up no allocator of ours, and only HEADROOM_ALLOC_CONF does. Returns those that are set.
// Throws Error where the environment was read before, for an allocator or its settings.
std::vector<std::string> ignore_pytorch_variables();

// Told of every allocator of the process: of those there are at once, of others as they are made,
// before anybody else has them. An empty function stops. It must not call allocator().
void set_allocator_observer(std::function<void(memory::Allocator&)> observer);

// --- torch.cuda's functions ----------------------------------------------------------------------

[[nodiscard]] std::uint64_t memory_allocated(WhichDevice which = {});
[[nodiscard]] std::uint64_t max_memory_allocated(WhichDevice which = {});
[[nodiscard]] std::uint64_t memory_reserved(WhichDevice which = {});
[[nodiscard]] std::uint64_t max_memory_reserved(WhichDevice which = {});
void reset_peak_memory_stats(WhichDevice which = {});
void reset_accumulated_memory_stats(WhichDevice which = {});
// `allocated_bytes.all.current` and so on; empty for a device that nothing was allocated on yet.
[[nodiscard]] std::map<std::string, std::int64_t> memory_stats(WhichDevice which = {});
[[nodiscard]] std::string memory_summary(WhichDevice which = {}, bool abbreviated = false);
// Where the bytes of the device are, in lines that add up to it.
[[nodiscard]] memory::Account memory_account(WhichDevice which = {});
// Gives cached memory of every device back.
void empty_cache();
// Throws InvalidArgument outside 0 to 1.
void set_per_process_memory_fraction(double fraction, WhichDevice which = {});
[[nodiscard]] double get_per_process_memory_fraction(WhichDevice which = {});
// Changes the settings of every allocator, of those to come too. Throws InvalidArgument, and then
// nothing has changed.
void set_allocator_settings(std::string_view settings);
void set_allocator_settings(const char* settings);
// Free and total bytes of the device, as the driver sees them.
[[nodiscard]] device::MemoryInfo mem_get_info(WhichDevice which = {});

}  // namespace headroom
