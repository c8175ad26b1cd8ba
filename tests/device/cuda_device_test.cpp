// What only the cuda device has: the driver's own streams, captures, contexts and failures.
#include "headroom/device/cuda/cuda_device.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/registry.h"

#include "tests/support/device_status.h"
#include "tests/support/native_cuda.h"
#include "tests/support/process.h"

namespace headroom::device {
namespace {

using ::testing::HasSubstr;
using testing::NativeContext;
using testing::NativeCuda;
using testing::refused;
using testing::worked;
using enum StatusCode;

constexpr StreamId kDefault = StreamId::kDefault;

NativeStream to_native(void* stream) { return reinterpret_cast<NativeStream>(stream); }

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (CudaDevice::count() == 0) GTEST_SKIP() << CudaDevice::why_none();
    cuda_ = std::make_unique<NativeCuda>();
    device_ = CudaDevice::create().value();
  }

  [[nodiscard]] const NativeCuda& cuda() const { return *cuda_; }
  [[nodiscard]] CudaDevice& device() { return *device_; }
  void destroy_device() { device_.reset(); }

 private:
  std::unique_ptr<NativeCuda> cuda_;
  std::unique_ptr<CudaDevice> device_;
};

// --- The context -------------------------------------------------------------------------------

TEST_F(CudaDeviceTest, TakesAContextWhenItIsNeededAndGivesItBack) {
  EXPECT_FALSE(cuda().has_context(0)) << "properties need none";
  EXPECT_TRUE(refused(device().free_segment(4096), kUnknownHandle));
  EXPECT_FALSE(cuda().has_context(0)) << "nor does what the ledger refuses";
  ASSERT_TRUE(worked(device().memory_info()));
  EXPECT_TRUE(cuda().has_context(0));
  destroy_device();
  EXPECT_FALSE(cuda().has_context(0));
}

TEST_F(CudaDeviceTest, LeavesTheThreadsContextAlone) {
  void* current = &current;
  ASSERT_TRUE(worked(device().allocate_segment(4_KiB)));
  ASSERT_EQ(cuda().get_current(&current), 0);
  EXPECT_EQ(current, nullptr) << "there was none";
  const NativeContext context(cuda());
  void* before = nullptr;
  ASSERT_EQ(cuda().get_current(&before), 0);
  ASSERT_TRUE(worked(device().synchronize_stream(kDefault)));
  ASSERT_EQ(cuda().get_current(&current), 0);
  EXPECT_EQ(current, before);
}

TEST_F(CudaDeviceTest, DescribesTheCard) {
  const Properties& properties = device().properties();
  EXPECT_EQ(properties.id, (DeviceId{DeviceKind::kCuda, 0}));
  EXPECT_THAT(properties.architecture, ::testing::StartsWith("sm_"));
  EXPECT_EQ(properties.granularity_bytes, 2_MiB);
  EXPECT_FALSE(properties.host_accessible);
  ASSERT_EQ(properties.hierarchy.size(), 4U);
  EXPECT_EQ(properties.hierarchy[0].name, "registers");
  EXPECT_EQ(properties.hierarchy[0].instances, properties.multiprocessors);
  EXPECT_EQ(properties.hierarchy[3].size_bytes, properties.total_bytes);
}

TEST_F(CudaDeviceTest, MemoryInfoIsTheCards) {
  const MemoryInfo before = device().memory_info().value();
  EXPECT_EQ(before.total_bytes, device().properties().total_bytes);
  EXPECT_LT(before.free_bytes, before.total_bytes) << "the context is on it";
  const PageHandle pages = device().create_pages(1_GiB).value();
  const DeviceAddress segment = device().allocate_segment(1_GiB).value();
  EXPECT_EQ(device().used_bytes(), 2_GiB);
  EXPECT_LE(device().memory_info().value().free_bytes, before.free_bytes - 2_GiB);
  EXPECT_TRUE(worked(device().release_pages(pages)));
  EXPECT_TRUE(worked(device().free_segment(segment)));
  EXPECT_EQ(device().used_bytes(), 0U);
}

TEST_F(CudaDeviceTest, APartOfACardIsAllThatItKnowsOf) {
  const auto part = CudaDevice::create({.capacity_bytes = 64_MiB}).value();
  EXPECT_EQ(part->properties().total_bytes, 64_MiB);
  const DeviceAddress segment = part->allocate_segment(40_MiB).value();
  const PageHandle pages = part->create_pages(20_MiB).value();
  const MemoryInfo info = part->memory_info().value();
  EXPECT_EQ(info.total_bytes, 64_MiB);
  EXPECT_EQ(info.free_bytes, 4_MiB);
  EXPECT_TRUE(refused(part->allocate_segment(6_MiB), kOutOfMemory));
  EXPECT_TRUE(worked(part->release_pages(pages)));
  EXPECT_TRUE(worked(part->free_segment(segment)));
  EXPECT_EQ(part->memory_info().value().free_bytes, 64_MiB);
  for (const std::uint64_t wrong : {std::uint64_t{0}, device().properties().total_bytes + 1}) {
    const auto none = CudaDevice::create({.capacity_bytes = wrong});
    ASSERT_FALSE(none.has_value()) << wrong;
    EXPECT_THAT(none.error(), HasSubstr("so it cannot have a capacity of"));
  }
}

TEST_F(CudaDeviceTest, TheCardRefusesWhatItHasNot) {
  const MemoryInfo info = device().memory_info().value();
  const auto segment = device().allocate_segment(info.free_bytes + 1_MiB);
  ASSERT_TRUE(refused(segment, kOutOfMemory));
  EXPECT_THAT(to_string(segment.error()), HasSubstr("cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY"));
  const std::uint64_t pages = (info.free_bytes / 2_MiB + 1) * 2_MiB;
  EXPECT_TRUE(refused(device().create_pages(pages), kOutOfMemory));
  EXPECT_TRUE(worked(device().allocate_segment(1_MiB))) << "and goes on";
}

TEST_F(CudaDeviceTest, ProcessesContainThisOne) {
  const DeviceAddress segment = device().allocate_segment(64_MiB).value();
  const auto processes = device().processes();
  if (!processes && processes.error().code == kNotSupported) {
    GTEST_SKIP() << to_string(processes.error());
  }
  ASSERT_TRUE(worked(processes));
  const auto self = std::find_if(
      processes->begin(), processes->end(), [](const ProcessMemory& p) { return p.is_self; });
  ASSERT_NE(self, processes->end());
  EXPECT_EQ(self->pid, getpid());
  EXPECT_FALSE(self->name.empty());
  EXPECT_GE(self->used_bytes, 64_MiB);
  EXPECT_TRUE(worked(device().free_segment(segment)));
}

TEST_F(CudaDeviceTest, MeasuresItsLevels) {
  const auto levels = device().measure();
  ASSERT_TRUE(worked(levels));
  EXPECT_EQ(device().used_bytes(), 0U);
  std::map<std::string, LevelSpeed> speeds;
  for (const MemoryLevel& level : *levels) {
    if (level.speed) speeds[level.name] = *level.speed;
  }
  ASSERT_EQ(speeds.size(), 3U) << "all but the registers";
  const LevelSpeed& shared = speeds.at("shared memory");
  const LevelSpeed& l2 = speeds.at("L2");
  const LevelSpeed& global = speeds.at("global memory");
  EXPECT_GT(shared.latency_ns, 1);
  EXPECT_LT(shared.latency_ns, l2.latency_ns);
  EXPECT_LT(l2.latency_ns, global.latency_ns);
  EXPECT_LT(global.latency_ns, 5'000);
  EXPECT_GT(global.read_bytes_per_second, 50e9);
  EXPECT_GT(shared.read_bytes_per_second, global.read_bytes_per_second);
  for (const auto& [name, speed] : speeds) {
    RecordProperty(name + "_GB_per_s", static_cast<int>(speed.read_bytes_per_second / 1e9));
    RecordProperty(name + "_ns", static_cast<int>(speed.latency_ns));
    std::printf("%-14s %8.0f GB/s %8.1f ns\n",
                name.c_str(),
                speed.read_bytes_per_second / 1e9,
                speed.latency_ns);
  }
}

// --- Streams -----------------------------------------------------------------------------------

TEST_F(CudaDeviceTest, TheDefaultStreamHasTwoSpellings) {
  EXPECT_EQ(device().adopt_stream(0).value(), kDefault);
  EXPECT_EQ(device().adopt_stream(1).value(), kDefault) << "cudaStreamLegacy";
  const StreamId per_thread = device().adopt_stream(2).value();
  EXPECT_NE(per_thread, kDefault) << "cudaStreamPerThread is another";
  EXPECT_EQ(device().adopt_stream(2).value(), per_thread);
  EXPECT_TRUE(worked(device().synchronize_stream(per_thread)));
}

TEST_F(CudaDeviceTest, AdoptsAStreamAndLeavesItToItsOwner) {
  const NativeContext context(cuda());
  void* native = nullptr;
  ASSERT_EQ(cuda().create_stream(&native, NativeCuda::kNonBlocking), 0);
  const StreamId stream = device().adopt_stream(to_native(native)).value();
  EXPECT_EQ(device().adopt_stream(to_native(native)).value(), stream);
  const DeviceAddress segment = device().allocate_segment(4_KiB).value();
  EXPECT_TRUE(worked(device().fill(segment, 7, 4_KiB, stream)));
  const EventId event = device().record_event(stream).value();
  EXPECT_TRUE(worked(device().wait_event(kDefault, event)));
  std::uint8_t byte = 0;
  EXPECT_TRUE(worked(device().copy_to_host(&byte, segment, 1, kDefault)));
  EXPECT_TRUE(worked(device().synchronize_stream(kDefault)));
  EXPECT_EQ(byte, 7);

  EXPECT_TRUE(worked(device().release_stream(stream)));
  EXPECT_EQ(cuda().synchronize(), 0);
  EXPECT_EQ(cuda().query_stream(native), 0) << "it is still there";
  const auto again = device().adopt_stream(to_native(native));
  ASSERT_TRUE(worked(again));
  EXPECT_NE(*again, stream) << "ids are not given out twice";
  EXPECT_TRUE(worked(device().release_stream(*again)));
  EXPECT_TRUE(worked(device().record_event(stream))) << "blocks may go on naming it";
  EXPECT_EQ(cuda().destroy_stream(native), 0);
  EXPECT_TRUE(worked(device().record_event(stream))) << "even now";
}

// The driver hands out the handle of a destroyed stream again.
TEST_F(CudaDeviceTest, AReusedHandleIsAnotherStream) {
  const NativeContext context(cuda());
  std::set<StreamId> ids;
  std::set<void*> handles;
  for (int i = 0; i < 32; ++i) {
    void* native = nullptr;
    ASSERT_EQ(cuda().create_stream(&native, NativeCuda::kNonBlocking), 0);
    handles.insert(native);
    EXPECT_TRUE(ids.insert(device().adopt_stream(to_native(native)).value()).second);
    ASSERT_EQ(cuda().destroy_stream(native), 0);
  }
  RecordProperty("handles", static_cast<int>(handles.size()));
}

TEST_F(CudaDeviceTest, ReleasedStreamsAreGivenBackAsTheyDrain) {
  for (int i = 0; i < 2'000; ++i) {
    const StreamId stream = device().create_stream().value();
    ASSERT_TRUE(worked(device().record_event(stream)));
    ASSERT_TRUE(worked(device().release_stream(stream)));
  }
}

TEST_F(CudaDeviceTest, AHostTaskMayFreeMemory) {
  struct Work {
    CudaDevice* device;
    DeviceAddress segment;
    void* pinned;
    bool worked = false;
  };
  Work work{.device = &device(),
            .segment = device().allocate_segment(1_MiB).value(),
            .pinned = device().allocate_pinned(4_KiB).value()};
  const StreamId stream = device().create_stream().value();
  const HostTask task{.run =
                          [](void* data) noexcept {
                            auto& w = *static_cast<Work*>(data);
                            w.worked = w.device->free_segment(w.segment).has_value() &&
                                       w.device->free_pinned(w.pinned).has_value() &&
                                       !w.device->owns_range(w.segment, 1);
                          },
                      .data = &work};
  ASSERT_TRUE(worked(device().enqueue_host(stream, task)));
  ASSERT_TRUE(worked(device().synchronize_stream(stream)));
  EXPECT_TRUE(work.worked);
  EXPECT_TRUE(refused(device().free_segment(work.segment), kUnknownHandle)) << "twice";
  EXPECT_TRUE(worked(device().memory_info()));
  EXPECT_EQ(device().used_bytes(), 0U);
}

// --- Captures ----------------------------------------------------------------------------------

TEST_F(CudaDeviceTest, ACaptureIsSeen) {
  const NativeContext context(cuda());
  void* native = nullptr;
  ASSERT_EQ(cuda().create_stream(&native, NativeCuda::kNonBlocking), 0);
  const StreamId stream = device().adopt_stream(to_native(native)).value();
  const StreamId other = device().create_stream().value();
  const DeviceAddress segment = device().allocate_segment(4_KiB).value();
  EXPECT_FALSE(device().is_capturing(stream).value());

  ASSERT_EQ(cuda().begin_capture(native, NativeCuda::kCaptureGlobal), 0);
  EXPECT_TRUE(device().is_capturing(stream).value());
  EXPECT_FALSE(device().is_capturing(other).value());
  EXPECT_FALSE(device().is_capturing(kDefault).value());
  EXPECT_TRUE(worked(device().fill(segment, 1, 4_KiB, stream))) << "into the graph";
  const EventId inside = device().record_event(stream).value();
  EXPECT_FALSE(device().query_event(inside).value()) << "it happens when the graph runs";
  EXPECT_TRUE(worked(device().release_event(inside)));
  EXPECT_TRUE(
      refused(device().enqueue_host(stream, {.run = [](void*) noexcept {}}), kNotSupported));
  EXPECT_TRUE(refused(device().release_stream(stream), kInvalidArgument));

  void* graph = nullptr;
  EXPECT_EQ(cuda().end_capture(native, &graph), 0);
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(cuda().destroy_graph(graph), 0);
  EXPECT_FALSE(device().is_capturing(stream).value());
  EXPECT_TRUE(worked(device().release_stream(stream)));
  EXPECT_EQ(cuda().destroy_stream(native), 0);
}

// What an allocator does while somebody captures is not the capture's business.
TEST_F(CudaDeviceTest, CallsOfAnAllocatorLeaveACaptureAlone) {
  const NativeContext context(cuda());
  void* native = nullptr;
  ASSERT_EQ(cuda().create_stream(&native, NativeCuda::kNonBlocking), 0);
  const StreamId stream = device().adopt_stream(to_native(native)).value();
  const StreamId other = device().create_stream().value();
  const DeviceAddress segment = device().allocate_segment(4_KiB).value();
  const DeviceAddress range = device().reserve_addresses(8_MiB).value();
  const PageHandle pages = device().create_pages(2_MiB).value();
  ASSERT_TRUE(worked(device().map_pages(range, std::array{pages})));
  const EventId before = device().record_event(other).value();
  ASSERT_TRUE(worked(device().synchronize_stream(other)));

  struct Case {
    const char* name;
    std::function<bool()> call;
  };
  const std::vector<Case> cases{
      {"query_event", [&] { return device().query_event(before).value_or(false); }},
      {"record_event", [&] { return device().record_event(other).has_value(); }},
      {"allocate_segment", [&] { return device().allocate_segment(1_MiB).has_value(); }},
      {"create_pages", [&] { return device().create_pages(2_MiB).has_value(); }},
      {"map_pages",
       [&] { return device().map_pages(range + 2_MiB, std::array{pages}).has_value(); }},
      {"unmap_pages", [&] { return device().unmap_pages(range, 2_MiB).has_value(); }},
      {"free_segment",
       [&] { return device().free_segment(device().allocate_segment(4_KiB).value()).has_value(); }},
      {"memory_info", [&] { return device().memory_info().has_value(); }},
      {"synchronize_stream", [&] { return device().synchronize_stream(other).has_value(); }},
      {"create_stream", [&] { return device().create_stream().has_value(); }},
      {"release_stream",
       [&] { return device().release_stream(device().create_stream().value()).has_value(); }}};
  for (const Case& c : cases) {
    ASSERT_EQ(cuda().begin_capture(native, NativeCuda::kCaptureGlobal), 0) << c.name;
    EXPECT_TRUE(worked(device().fill(segment, 1, 4_KiB, stream))) << c.name;
    EXPECT_TRUE(c.call()) << c.name;
    void* graph = nullptr;
    EXPECT_EQ(cuda().end_capture(native, &graph), 0) << c.name << " broke the capture";
    if (graph != nullptr) {
      EXPECT_EQ(cuda().destroy_graph(graph), 0) << c.name;
    }
  }
  EXPECT_TRUE(worked(device().release_stream(stream)));
  EXPECT_EQ(cuda().destroy_stream(native), 0);
}

// --- Memory ------------------------------------------------------------------------------------

// One memory at two addresses: what one kernel wrote through the first, the next reads through the
// second, in stream order and without a wait of the host.
TEST_F(CudaDeviceTest, AliasesAgreeInStreamOrder) {
  constexpr std::uint64_t kSize = 8_MiB;
  constexpr int kRounds = 100;
  const DeviceAddress range = device().reserve_addresses(2 * kSize).value();
  const std::array handles{device().create_pages(kSize).value()};
  ASSERT_TRUE(worked(device().map_pages(range, handles)));
  ASSERT_TRUE(worked(device().map_pages(range + kSize, handles)));
  const DeviceAddress copies = device().allocate_segment(kRounds * kSize).value();
  const StreamId stream = device().create_stream().value();
  for (int round = 0; round < kRounds; ++round) {
    const DeviceAddress write = range + (round % 2 == 0 ? 0 : kSize);
    const DeviceAddress read = range + (round % 2 == 0 ? kSize : 0);
    const DeviceAddress copy = copies + static_cast<std::uint64_t>(round) * kSize;
    ASSERT_TRUE(worked(device().fill(write, static_cast<std::uint8_t>(round), kSize, stream)));
    ASSERT_TRUE(worked(device().copy_within(copy, read, kSize, stream)));
  }
  std::vector<std::uint8_t> found(kSize);
  for (int round = 0; round < kRounds; ++round) {
    const DeviceAddress copy = copies + static_cast<std::uint64_t>(round) * kSize;
    ASSERT_TRUE(worked(device().copy_to_host(found.data(), copy, kSize, stream)));
    ASSERT_TRUE(worked(device().synchronize_stream(stream)));
    const auto wrong = std::count_if(found.begin(), found.end(), [&](std::uint8_t byte) {
      return byte != static_cast<std::uint8_t>(round);
    });
    ASSERT_EQ(wrong, 0) << "round " << round;
  }
}

TEST_F(CudaDeviceTest, ExportablePagesAreLikeOthers) {
  const auto pages = device().create_pages(2_MiB, {.exportable = true});
  if (!pages && pages.error().code == kNotSupported) GTEST_SKIP() << to_string(pages.error());
  ASSERT_TRUE(worked(pages));
  const DeviceAddress range = device().reserve_addresses(2_MiB).value();
  EXPECT_TRUE(worked(device().map_pages(range, std::array{*pages})));
  EXPECT_TRUE(worked(device().fill(range, 1, 2_MiB, kDefault)));
  EXPECT_TRUE(worked(device().synchronize_stream(kDefault)));
}

// --- The end -----------------------------------------------------------------------------------

TEST_F(CudaDeviceTest, TheChildOfAForkMayDestroyTheDeviceAndMakesNone) {
  ASSERT_TRUE(worked(device().allocate_segment(1_MiB)));
  const StreamId stream = device().create_stream().value();
  ASSERT_TRUE(worked(device().enqueue_host(stream, {.run = [](void*) noexcept {}})));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    destroy_device();
    const auto made = CudaDevice::create();
    _exit(!made && made.error().find("forked") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(worked(device().synchronize_stream(stream))) << "the parent goes on";
}

// See cuda_exit_program.cpp.
class CudaExit : public ::testing::TestWithParam<const char*> {};

TEST_P(CudaExit, EndsWell) {
  if (CudaDevice::count() == 0) GTEST_SKIP() << CudaDevice::why_none();
  const auto done =
      testing::run_process({.program = HEADROOM_CUDA_EXIT_PROGRAM, .arguments = {GetParam()}});
  EXPECT_EQ(done.exit_code, 0) << done.out << done.err << "signal " << done.signal;
  EXPECT_EQ(done.out, "");
}
INSTANTIATE_TEST_SUITE_P(Ways,
                         CudaExit,
                         ::testing::Values("free", "destroy", "sticky"),
                         [](const auto& way) { return std::string(way.param); });

}  // namespace
}  // namespace headroom::device
