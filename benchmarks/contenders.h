// The contenders of `bench alloc`: allocators of one device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/device/device.h"

namespace headroom::cli {

// Any thread may call it. A call that fails throws Error.
class Contender {
 public:
  Contender() = default;
  Contender(const Contender&) = delete;
  Contender& operator=(const Contender&) = delete;
  virtual ~Contender() = default;

  [[nodiscard]] virtual std::string name() const = 0;
  // Called once by each thread before it allocates: a CUDA device is current by thread.
  virtual void enter_thread() {}
  virtual std::uint64_t allocate(std::uint64_t size_bytes) = 0;
  virtual void free(std::uint64_t address) = 0;

  // Gives back what it keeps, and looks at peaks from here on.
  virtual void begin_case() {}
  // The most it took from the device over the most that was live; nothing where it cannot tell.
  [[nodiscard]] virtual std::optional<double> reserved_over_live() const { return std::nullopt; }
};

struct Contenders {
  std::string device;                             // "meta", "cuda:0"
  std::uint64_t room_bytes = 0;                   // of the device that they share
  std::unique_ptr<device::Device> own_device{};   // where nobody else keeps it
  std::vector<std::unique_ptr<Contender>> all{};  // the last is the baseline
  std::vector<std::string> notes{};               // who is not there, and why
};

// The device of that name; a meta device, which nobody else keeps, is made and put into `own`.
// Throws UsageError for a name that is no device's, Error for a device that does not exist.
[[nodiscard]] device::Device& find_device(std::string_view name,
                                          std::unique_ptr<device::Device>& own);

// Throws as find_device does.
[[nodiscard]] Contenders find_contenders(std::string_view device);

// The driver's own pool, which orders by stream and keeps all that is freed. Throws Error.
[[nodiscard]] std::unique_ptr<Contender> open_driver_pool(int index);

// The other contenders on a GPU: the driver's own pool, and PyTorch's allocator, the baseline.
void add_cuda_contenders(Contenders& contenders, int index);

}  // namespace headroom::cli
