// A program that ends with work queued and devices alive, run by cpu_exit_test. The way it ends is
// its argument. It prints what went wrong and exits with 0 when nothing did.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "headroom/base/bytes.h"
#include "headroom/device/cpu/cpu_device.h"
#include "headroom/device/registry.h"

namespace {

using namespace headroom;          // NOLINT(google-build-using-namespace): a program of one file
using namespace headroom::device;  // NOLINT(google-build-using-namespace)

std::atomic<bool> is_task_running{false};
std::atomic<int> tasks_run{0};

void complain(const char* what) {
  std::printf("%s\n", what);
  std::fflush(stdout);
  _exit(1);
}

void expect(bool condition, const char* what) {
  if (!condition) complain(what);
}

template <class Answer>
void expect_shut_down(const Answer& answer, const char* what) {
  expect(!answer && answer.error() == StatusCode::kShutDown, what);
}

constexpr HostTask kSlowTask{.run =
                                 [](void*) noexcept {
                                   is_task_running = true;
                                   std::this_thread::sleep_for(std::chrono::milliseconds(100));
                                   ++tasks_run;
                                   is_task_running = false;
                                 },
                             .data = nullptr};

// Constructed before main and so before the first stream: destroyed after the threads were parked,
// like a tensor in a static variable.
struct Late {
  Device* device = nullptr;
  DeviceAddress segment = 0;
  StreamId busy{};
  StreamId idle{};
  EventId pending{};
  EventId done{};

  ~Late() {
    if (device == nullptr) return;
    expect(!is_task_running, "a task runs while statics are destroyed");
    const int before = tasks_run;
    expect(before >= 1, "the running task was not waited for");
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    expect(tasks_run == before, "a queued task ran while statics are destroyed");

    expect_shut_down(device->query_event(pending), "query_event");
    expect_shut_down(device->synchronize_event(pending), "synchronize_event");
    expect_shut_down(device->wait_event(StreamId::kDefault, pending), "wait_event");
    expect_shut_down(device->synchronize_stream(busy), "synchronize_stream");
    expect_shut_down(device->record_event(busy), "record_event");
    expect_shut_down(device->fill(segment, 0, 8, idle), "fill");
    expect_shut_down(device->create_stream(), "create_stream");
    expect(device->query_event(done).value_or(false), "an event that was complete is not");
    expect(device->synchronize_stream(idle).has_value(), "an idle stream has nothing to wait for");

    expect(device->fill(segment, 7, 64, StreamId::kDefault).has_value(), "the default stream");
    expect(device->release_event(pending).has_value(), "release_event");
    expect(device->release_stream(busy).has_value(), "release_stream");
    expect(device->free_segment(segment).has_value(), "free_segment");
    expect(device->memory_info().has_value(), "memory_info");
  }
};
Late late;
std::unique_ptr<CpuDevice> owned_by_static;

void free_in_a_static_destructor() {
  late.device = registry().find("cpu:0").value();
  late.segment = late.device->allocate_segment(4_MiB).value();
  late.idle = late.device->create_stream().value();
  late.done = late.device->record_event(late.idle).value();
  late.busy = late.device->create_stream().value();
  for (int i = 0; i < 100; ++i) late.device->enqueue_host(late.busy, kSlowTask).value();
  late.pending = late.device->record_event(late.busy).value();
  // One stream waits for another that will never get there.
  const StreamId waiting = late.device->create_stream().value();
  late.device->wait_event(waiting, late.pending).value();
  while (!is_task_running) std::this_thread::yield();
}

void destroy_the_device_in_a_static_destructor() {
  owned_by_static = CpuDevice::create({.capacity_bytes = 16_MiB});
  const auto segment = owned_by_static->allocate_segment(1_MiB).value();
  const auto stream = owned_by_static->create_stream().value();
  owned_by_static->enqueue_host(stream, kSlowTask).value();
  owned_by_static->fill(segment, 1, 1_MiB, stream).value();
}

void exit_from_a_task() {
  Device* device = registry().find("cpu:0").value();
  const auto stream = device->create_stream().value();
  const auto other = device->create_stream().value();
  device->enqueue_host(other, kSlowTask).value();
  device->enqueue_host(stream, {.run = [](void*) noexcept { std::exit(0); }}).value();
  for (;;) pause();
}

// The child ends with the parent's devices in its statics and the parent's exit hook installed.
void fork_and_end_both() {
  destroy_the_device_in_a_static_destructor();
  // A thread that is still starting may hold a lock of a sanitizer's, which the child would wait
  // for.
  while (!is_task_running) std::this_thread::yield();
  const pid_t child = fork();
  if (child == 0) std::exit(0);
  int status = 0;
  expect(waitpid(child, &status, 0) == child && status == 0, "the child did not end well");
}

void leave_a_task_hanging() {
  Device* device = registry().find("cpu:0").value();
  const auto stream = device->create_stream().value();
  device
      ->enqueue_host(stream,
                     {.run =
                          [](void*) noexcept {
                            is_task_running = true;
                            for (;;) pause();
                          }})
      .value();
  while (!is_task_running) std::this_thread::yield();
}

}  // namespace

int main(int count, char** arguments) {
  const std::string_view way = count > 1 ? arguments[1] : "";
  if (way == "free") {
    free_in_a_static_destructor();
  } else if (way == "destroy") {
    destroy_the_device_in_a_static_destructor();
  } else if (way == "exit-from-task") {
    exit_from_a_task();
  } else if (way == "fork") {
    fork_and_end_both();
  } else if (way == "hang") {
    leave_a_task_hanging();
  } else {
    complain("usage: cpu_exit_program free|destroy|exit-from-task|fork|hang");
  }
  return 0;
}
