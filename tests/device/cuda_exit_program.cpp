// A program that ends as a test cannot, or breaks its context, run by cuda_device_test. The way is
// its argument. It prints what went wrong and exits with 0 when nothing did.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <unistd.h>

#include "headroom/base/bytes.h"
#include "headroom/device/cuda/cuda_device.h"
#include "headroom/device/registry.h"

#include "tests/support/native_cuda.h"

namespace {

using namespace headroom;          // NOLINT(google-build-using-namespace): a program of one file
using namespace headroom::device;  // NOLINT(google-build-using-namespace)

void complain(const std::string& what) {
  std::printf("%s\n", what.c_str());
  std::fflush(stdout);
  _exit(1);
}

void expect(bool condition, const std::string& what) {
  if (!condition) complain(what);
}

template <class T>
void expect_done(const DeviceResult<T>& answer) {
  if (!answer) complain(to_string(answer.error()));
}

// Constructed before main and so before the driver was opened: destroyed when the driver may have
// shut down already, like a tensor in a static variable.
struct Late {
  Device* device = nullptr;
  DeviceAddress segment = 0;
  DeviceAddress range = 0;
  PageHandle pages{};
  StreamId stream{};
  EventId event{};
  void* pinned = nullptr;

  ~Late() {
    if (device == nullptr) return;
    expect_done(device->free_segment(segment));
    expect_done(device->unmap_pages(range, 2_MiB));
    expect_done(device->release_pages(pages));
    expect_done(device->release_addresses(range));
    expect_done(device->release_event(event));
    expect_done(device->release_stream(stream));
    expect_done(device->free_pinned(pinned));
    expect(!device->owns_range(segment, 1), "the segment is still known");
    const auto more = device->allocate_segment(1_MiB);
    expect(more || more.error().code == StatusCode::kShutDown,
           "a late call neither works nor ends");
  }
};
Late late;
std::unique_ptr<CudaDevice> owned_by_static;

void free_in_a_static_destructor() {
  late.device = registry().find("cuda:0").value();
  Device& device = *late.device;
  late.segment = device.allocate_segment(4_MiB).value();
  late.range = device.reserve_addresses(4_MiB).value();
  late.pages = device.create_pages(2_MiB).value();
  expect_done(device.map_pages(late.range, std::array{late.pages}));
  late.stream = device.create_stream().value();
  expect_done(device.fill(late.range, 1, 2_MiB, late.stream));
  expect_done(device.enqueue_host(late.stream, {.run = [](void*) noexcept {}}));
  late.event = device.record_event(late.stream).value();
  late.pinned = device.allocate_pinned(4_KiB).value();
  expect_done(device.synchronize_stream(late.stream));
}

void destroy_the_device_in_a_static_destructor() {
  owned_by_static = CudaDevice::create().value();
  const auto segment = owned_by_static->allocate_segment(1_MiB).value();
  const auto stream = owned_by_static->create_stream().value();
  expect_done(owned_by_static->fill(segment, 1, 1_MiB, stream));
  expect_done(owned_by_static->enqueue_host(stream, {.run = [](void*) noexcept {}}));
}

constexpr const char* kBadKernel = R"ptx(
.version 6.4
.target sm_70
.address_size 64
.visible .entry bad()
{
  .reg .u64 %at;
  mov.u64 %at, 4096;
  st.global.u64 [%at], %at;
  ret;
}
)ptx";

template <class T>
void expect_failed(const DeviceResult<T>& answer, std::string_view detail) {
  expect(!answer, "a call works in a broken context");
  expect(answer.error().code == StatusCode::kFailed &&
             std::string_view(answer.error().detail).starts_with(detail),
         "found '" + to_string(answer.error()) + "', not '" + std::string(detail) + "'");
}

void break_the_context() {
  const testing::NativeCuda cuda;
  const auto device = CudaDevice::create().value();
  const auto segment = device->allocate_segment(1_MiB).value();
  const testing::NativeContext context(cuda);
  void* module = nullptr;
  void* function = nullptr;
  expect(cuda.load_module(&module, kBadKernel) == 0, "the kernel does not load");
  expect(cuda.get_function(&function, module, "bad") == 0, "there is no kernel");
  expect(cuda.launch(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr) == 0,
         "the kernel does not start");
  expect_failed(device->synchronize_stream(StreamId::kDefault),
                "a kernel failed earlier: CUDA_ERROR_ILLEGAL_ADDRESS");
  constexpr const char* kBroken = "the context is broken by an earlier error";
  expect_failed(device->synchronize_stream(StreamId::kDefault), kBroken);
  expect_failed(device->allocate_segment(1_MiB), kBroken);
  expect_failed(device->free_segment(segment), kBroken);
  expect_failed(device->create_stream(), kBroken);
  expect_failed(device->memory_info(), kBroken);
  expect(device->owns_range(segment, 1_MiB), "a free that failed changed something");
}

}  // namespace

int main(int count, char** arguments) {
  const std::string_view way = count > 1 ? arguments[1] : "";
  if (way == "free") {
    free_in_a_static_destructor();
  } else if (way == "destroy") {
    destroy_the_device_in_a_static_destructor();
  } else if (way == "sticky") {
    break_the_context();
  } else {
    complain("usage: cuda_exit_program free|destroy|sticky");
  }
  return 0;
}
