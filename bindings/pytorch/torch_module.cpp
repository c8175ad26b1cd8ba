// The Python module _headroom_torch_native: what headroom.torch calls.
#include <cstdint>
#include <optional>
#include <string>

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bindings/pytorch/bridge/bridge.h"
#include "bindings/pytorch/bridge/recordings.h"
#include "bindings/pytorch/torch_allocator.h"
#include "bindings/pytorch/torch_stacks.h"

namespace py = pybind11;
namespace bridge = headroom::bridge;

namespace {

void enable(const py::dict& given) {
  bridge::Settings settings;
  for (const auto& [key, value] : given) {
    const auto name = py::cast<std::string>(key);
    if (name == "limit_bytes") {
      if (!value.is_none()) settings.limit_bytes = py::cast<std::uint64_t>(value);
    } else if (name == "conf") {
      if (!value.is_none()) settings.configuration = py::cast<std::string>(value);
    } else {
      throw py::key_error("enable: there is no setting '" + name +
                          "'; there are limit_bytes and conf");
    }
  }
  headroom_torch::install(settings);
}

void check_enabled() {
  if (!headroom_torch::is_installed()) {
    throw std::runtime_error("headroom is not enabled: call headroom.torch.enable() first");
  }
}

bridge::DeviceMemory& memory_of(int device) {
  check_enabled();
  return bridge::device_memory(device);
}

void push_scope(const std::string& name, std::optional<int> device) {
  if (!device) {
    c10::DeviceIndex current = 0;
    C10_CUDA_CHECK(c10::cuda::GetDevice(&current));
    device = current;
  }
  (void)memory_of(*device);
  bridge::push_scope(name, *device);
}

py::dict pop_scope() {
  const bridge::ScopePeaks peaks = bridge::pop_scope();
  py::dict answer;
  answer["path"] = peaks.path;
  answer["peak_allocated"] = peaks.peak_allocated;
  answer["peak_reserved"] = peaks.peak_reserved;
  answer["peak_live"] = peaks.peak_live;
  return answer;
}

// Whatever uses the memory, on streams that nobody recorded too, has run.
void wait_for_devices() {
  for (int i = 0; i < bridge::opened_count(); ++i) {
    if (bridge::opened_memory(i) == nullptr) continue;
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(i));
    c10::cuda::device_synchronize();
  }
}

std::uint64_t sleep_tagged(const std::string& tag, bool keeps_contents) {
  wait_for_devices();
  return bridge::sleep(tag, keeps_contents);
}

std::uint64_t wake_tagged(const std::string& tag) {
  if (const auto bytes = bridge::wake(tag)) return *bytes;
  const bridge::Failure& failure = bridge::last_failure();
  TORCH_CHECK(failure.is_out_of_memory, failure.text);
  throw c10::OutOfMemoryError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)},
                              failure.text);
}

void record_start(int device, const std::string& path, std::uint64_t max_bytes, bool has_stacks) {
  check_enabled();
  if (has_stacks && !headroom_torch::walk_python_stacks()) throw py::error_already_set();
  const py::gil_scoped_release release;  // who waits for the allocator must not have it
  bridge::record_start(device, path, max_bytes, has_stacks);
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  using py::arg;
  using release = py::call_guard<py::gil_scoped_release>;
  module.doc() = "headroom's allocator as PyTorch's; use headroom.torch";
  module.def("enable", &enable, arg("settings"));
  module.def("is_enabled", &headroom_torch::is_installed);
  module.def("version", &bridge::version);
  module.def(
      "report", [](int device) { return memory_of(device).report(); }, arg("device"), release());
  module.def(
      "account",
      [](int device) { return memory_of(device).account_json(); },
      arg("device"),
      release());
  module.def(
      "stats", [](int device) { return memory_of(device).flat_stats(); }, arg("device"));
  module.def("scope_push", &push_scope, arg("name"), arg("device") = py::none());
  module.def("scope_pop", &pop_scope);
  module.def(
      "record_start", &record_start, arg("device"), arg("path"), arg("max_bytes"), arg("stacks"));
  module.def("record_stop", &bridge::record_stop, arg("device"), release());
  module.def("idle_trim", &bridge::set_idle_trim, arg("after_ms"), arg("keep_bytes"));
  module.def("sleep", &sleep_tagged, arg("tag"), arg("keeps_contents"), release());
  module.def("wake", &wake_tagged, arg("tag"), release());
}
