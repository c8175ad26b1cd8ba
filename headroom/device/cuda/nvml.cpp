#include "headroom/device/cuda/internal/nvml.h"

#include <dlfcn.h>
#include <fstream>
#include <unistd.h>

#include "headroom/device/internal/status.h"

namespace headroom::device::internal {
namespace {

// As in nvml.h, which a CUDA installation need not have.
using NvmlReturn = int;
constexpr NvmlReturn kNvmlSuccess = 0;
constexpr NvmlReturn kNvmlNotSupported = 3;
constexpr NvmlReturn kNvmlNoPermission = 4;
constexpr NvmlReturn kNvmlInsufficientSize = 7;
constexpr unsigned long long kNvmlValueNotAvailable = ~0ULL;
using NvmlDevice = struct NvmlDeviceOpaque*;
struct NvmlProcessInfo {  // nvmlProcessInfo_v2_t
  unsigned int pid;
  unsigned long long used_gpu_memory;
  unsigned int gpu_instance_id;
  unsigned int compute_instance_id;
};

struct NvmlMemory {  // nvmlMemory_t
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct Nvml {
  NvmlReturn (*init)() = nullptr;
  NvmlReturn (*device_by_pci_bus_id)(const char*, NvmlDevice*) = nullptr;
  NvmlReturn (*compute_processes)(NvmlDevice, unsigned int*, NvmlProcessInfo*) = nullptr;
  NvmlReturn (*memory_info)(NvmlDevice, NvmlMemory*) = nullptr;
};

template <class Pointer>
bool find(void* library, const char* symbol, Pointer& pointer) noexcept {
  pointer = reinterpret_cast<Pointer>(dlsym(library, symbol));
  return pointer != nullptr;
}

// Opened and started once, and never closed; null when there is none.
const Nvml* nvml() {
  static const Nvml* const kept = []() -> const Nvml* {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return nullptr;
    static Nvml functions;
    const bool has_all =
        find(library, "nvmlInit_v2", functions.init) &&
        find(library, "nvmlDeviceGetHandleByPciBusId_v2", functions.device_by_pci_bus_id) &&
        find(library, "nvmlDeviceGetComputeRunningProcesses_v3", functions.compute_processes) &&
        find(library, "nvmlDeviceGetMemoryInfo", functions.memory_info);
    return has_all && functions.init() == kNvmlSuccess ? &functions : nullptr;
  }();
  return kept;
}

// The system's name of a process; empty for a process of another container.
std::string process_name(std::int64_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(in, name);
  return name;
}

// That it is not for us to know is no failure.
Unexpected<DeviceStatus> refused(NvmlReturn why, const char* call) {
  const bool may_not = why == kNvmlNotSupported || why == kNvmlNoPermission;
  return fail(may_not ? StatusCode::kNotSupported : StatusCode::kFailed, call, 0, 0, why);
}

}  // namespace

DeviceResult<std::vector<ProcessMemory>> nvml_processes(const std::string& pci_bus_id) {
  const Nvml* library = nvml();
  if (library == nullptr) {
    return fail(StatusCode::kNotSupported, "libnvidia-ml.so.1 is not there or too old");
  }
  NvmlDevice device = nullptr;
  if (const NvmlReturn found = library->device_by_pci_bus_id(pci_bus_id.c_str(), &device);
      found != kNvmlSuccess) {
    return refused(found, "nvmlDeviceGetHandleByPciBusId");
  }
  // Processes may come between the two questions, so there is room for some more.
  std::vector<NvmlProcessInfo> infos(64);
  NvmlReturn listed = kNvmlInsufficientSize;
  for (int attempt = 0; attempt < 4 && listed == kNvmlInsufficientSize; ++attempt) {
    auto count = static_cast<unsigned int>(infos.size());
    listed = library->compute_processes(device, &count, infos.data());
    infos.resize(listed == kNvmlInsufficientSize ? count + 64 : count);
  }
  if (listed != kNvmlSuccess) {
    return refused(listed, "nvmlDeviceGetComputeRunningProcesses");
  }
  std::vector<ProcessMemory> processes;
  for (const NvmlProcessInfo& info : infos) {
    const bool is_known = info.used_gpu_memory != kNvmlValueNotAvailable;
    processes.push_back({.pid = std::int64_t{info.pid},
                         .used_bytes = is_known ? std::uint64_t{info.used_gpu_memory} : 0,
                         .name = process_name(info.pid),
                         .is_self = std::int64_t{info.pid} == std::int64_t{getpid()}});
  }
  return processes;
}

std::optional<std::uint64_t> nvml_used_bytes(const std::string& pci_bus_id) noexcept {
  const Nvml* library = nvml();
  NvmlDevice device = nullptr;
  NvmlMemory memory{};
  if (library == nullptr ||
      library->device_by_pci_bus_id(pci_bus_id.c_str(), &device) != kNvmlSuccess ||
      library->memory_info(device, &memory) != kNvmlSuccess) {
    return std::nullopt;
  }
  return memory.used;
}

}  // namespace headroom::device::internal
