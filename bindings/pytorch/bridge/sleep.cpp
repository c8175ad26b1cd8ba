// Memory that sleeps, of every device.
#include "headroom/memory/sleep.h"

#include <cstdint>
#include <optional>
#include <string_view>

#include "headroom/memory/allocator.h"

#include "bindings/pytorch/bridge/convert.h"
#include "bindings/pytorch/bridge/process.h"

namespace headroom::bridge {

std::uint64_t sleep(std::string_view tag, bool keeps_contents) {
  const auto contents =
      keeps_contents ? memory::SleepContents::kKeptOnHost : memory::SleepContents::kDiscarded;
  std::uint64_t bytes = 0;
  Process::instance().for_each([&](DeviceMemory& memory) {
    auto& impl = Process::impl_of(memory);
    impl.captures.look();
    bytes += impl.allocator.sleep(tag, contents).device_bytes;
  });
  return bytes;
}

std::optional<std::uint64_t> wake(std::string_view tag) {
  std::uint64_t bytes = 0;
  bool is_done = true;
  Process::instance().for_each([&](DeviceMemory& memory) {
    if (!is_done) return;
    auto& impl = Process::impl_of(memory);
    impl.captures.look();
    const auto woken = impl.allocator.try_wake(tag);
    is_done = woken.has_value();
    if (is_done) {
      bytes += woken->device_bytes;
    } else {
      remember_failure(woken.error());
    }
  });
  return is_done ? std::optional(bytes) : std::nullopt;
}

}  // namespace headroom::bridge
