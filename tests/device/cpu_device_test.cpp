#include "headroom/device/cpu/cpu_device.h"

#include <array>
#include <chrono>
#include <cstring>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/error.h"
#include "headroom/device/cpu/internal/areas.h"
#include "headroom/device/cpu/internal/machine.h"

#include "tests/device/small_device.h"
#include "tests/support/sanitized.h"

namespace headroom::device {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

unsigned char* at(DeviceAddress address) {
  return static_cast<unsigned char*>(internal::to_pointer(address));
}

std::string why_not(const CpuOptions& options) {
  try {
    const auto device = CpuDevice::create(options);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "it was made";
}

// --- Capacity ----------------------------------------------------------------------------------

TEST(CpuDevice, HasHalfOfTheMachineByDefault) {
  const auto device = CpuDevice::create();
  const std::uint64_t half = CpuDevice::machine_memory_bytes() / 2;
  EXPECT_LE(device->properties().total_bytes, half);
  EXPECT_GT(device->properties().total_bytes, half - 2_MiB);
  EXPECT_EQ(device->properties().granularity_bytes, 2_MiB);
}

TEST(CpuDevice, RefusesACapacityThatCannotBe) {
  EXPECT_THAT(why_not({.index = 2, .capacity_bytes = 0}),
              AllOf(HasSubstr("cpu:2: a capacity of 0 holds nothing"), HasSubstr("leave it out")));
  EXPECT_THAT(why_not({.capacity_bytes = kAbsurdSize}),
              AllOf(HasSubstr("cpu:0: a capacity of 1EiB is more than this machine's "),
                    HasSubstr(format_bytes(CpuDevice::machine_memory_bytes())),
                    HasSubstr("meta device")));
}

TEST(CpuDevice, RefusesAGranularityThatCannotWork) {
  for (const std::uint64_t granularity : {0_KiB, 1_KiB, 96_KiB, 2048_GiB}) {
    EXPECT_THAT(why_not({.granularity_bytes = granularity}), HasSubstr("a power of two from"))
        << granularity;
  }
}

TEST(CpuDevice, RefusesPastItsCapacityAndRecovers) {
  const auto device = small_device(1_MiB);
  const auto segment = device->allocate_segment(512_KiB).value();
  const auto pages = device->create_pages(512_KiB).value();
  EXPECT_EQ(device->memory_info().value().free_bytes, 0U);

  const auto segment_refused = device->allocate_segment(1);
  ASSERT_FALSE(segment_refused);
  EXPECT_EQ(segment_refused.error(), StatusCode::kOutOfMemory);
  EXPECT_EQ(device->create_pages(kPage).error(), StatusCode::kOutOfMemory);

  ASSERT_TRUE(device->release_pages(pages));
  ASSERT_TRUE(device->create_pages(512_KiB));
  ASSERT_TRUE(device->free_segment(segment));
  EXPECT_EQ(device->memory_info().value().free_bytes, 512_KiB);
}

// Nothing is touched here, so the promises cost nothing; the machine must still say no.
TEST(CpuDevice, RefusesBeforeTheMachineRunsDry) {
  if (headroom::testing::kIsSanitized) {
    GTEST_SKIP() << "the sanitizer keeps real memory for each address it has seen";
  }
  const std::uint64_t machine = CpuDevice::machine_memory_bytes();
  const auto device = CpuDevice::create({.capacity_bytes = machine});
  const std::uint64_t available = internal::read_machine_memory().available_bytes;
  std::uint64_t promised = 0;
  for (;;) {
    const auto segment = device->allocate_segment(256_MiB);
    if (!segment) {
      EXPECT_EQ(segment.error(), StatusCode::kOutOfMemory);
      EXPECT_STREQ(segment.error().call, "allocate_segment");
      EXPECT_THAT(segment.error().detail, HasSubstr("the machine is short of memory"));
      break;
    }
    promised += 256_MiB;
    ASSERT_LT(promised, machine);
    const auto pages = device->create_pages(256_MiB);
    if (!pages) break;
    promised += 256_MiB;
    ASSERT_LT(promised, machine);
  }
  EXPECT_LT(promised, available + 1_GiB);  // others may have given memory back meanwhile
}

TEST(CpuDevice, NamesThisProcessAsItsUser) {
  const auto device = small_device();
  ASSERT_TRUE(device->allocate_segment(1_MiB));
  const auto processes = device->processes().value();
  ASSERT_EQ(processes.size(), 1U);
  EXPECT_TRUE(processes[0].is_self);
  EXPECT_EQ(processes[0].used_bytes, 1_MiB);
  EXPECT_FALSE(processes[0].name.empty());
}

// --- Segments ----------------------------------------------------------------------------------

TEST(CpuDevice, AlignsLargeSegmentsForHugePages) {
  const auto device = small_device();
  for (const std::uint64_t size : {std::uint64_t{1}, std::uint64_t{513}, 2_MiB - 1}) {
    EXPECT_EQ(device->allocate_segment(size).value() % 512, 0U) << size;
  }
  for (const std::uint64_t size : {2_MiB, 2_MiB + 1, 5_MiB}) {
    EXPECT_EQ(device->allocate_segment(size).value() % 2_MiB, 0U) << size;
  }
}

TEST(CpuDevice, SegmentsAreMemory) {
  const auto device = small_device();
  const auto segment = device->allocate_segment(1_MiB).value();
  std::vector<std::uint8_t> in(1_MiB);
  std::iota(in.begin(), in.end(), std::uint8_t{0});
  std::vector<std::uint8_t> out(1_MiB);
  ASSERT_TRUE(device->copy_to_device(segment, in.data(), in.size(), kDefault));
  ASSERT_TRUE(device->copy_to_host(out.data(), segment, out.size(), kDefault));
  EXPECT_EQ(in, out);
  ASSERT_TRUE(device->copy_within(segment + 1, segment, 1_MiB - 1, kDefault));  // they overlap
  EXPECT_EQ(std::memcmp(at(segment) + 1, in.data(), 1_MiB - 1), 0);
  ASSERT_TRUE(device->fill(segment, 0x5A, 3, kDefault));
  EXPECT_EQ(at(segment)[2], 0x5A);
  EXPECT_EQ(at(segment)[3], in[2]);
}

TEST(CpuDevice, RefusesACopyPastTheEnd) {
  const auto device = small_device();
  const auto segment = device->allocate_segment(1000).value();
  std::array<std::uint8_t, 2000> host{};
  const auto refused = device->copy_to_device(segment, host.data(), 1001, kDefault);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), StatusCode::kInvalidArgument);
  EXPECT_THAT(to_string(refused.error()), HasSubstr("not inside live memory of this device"));
  EXPECT_EQ(device->copy_to_host(host.data(), segment + 999, 2, kDefault).error(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(device->fill(segment - 1, 0, 1, kDefault).error(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(device->free_segment(segment));
  EXPECT_EQ(device->fill(segment, 0, 1, kDefault).error(), StatusCode::kInvalidArgument);
}

TEST(CpuDevice, CopiesFromAnotherCpuDevice) {
  const auto source = small_device();
  const auto target = CpuDevice::create({.index = 1, .capacity_bytes = 1_MiB});
  const auto from = source->allocate_segment(4096).value();
  const auto to = target->allocate_segment(4096).value();
  ASSERT_TRUE(source->fill(from, 7, 4096, kDefault));
  ASSERT_TRUE(target->copy_peer(to, *source, from, 4096, kDefault));
  EXPECT_EQ(at(to)[4095], 7);
  EXPECT_EQ(target->copy_peer(from, *source, to, 4096, kDefault).error(),
            StatusCode::kInvalidArgument);
}

// --- Pinned memory -----------------------------------------------------------------------------

TEST(CpuDevice, PinnedMemoryIsTheHostsNotTheDevices) {
  const auto device = small_device(1_MiB);
  void* pinned = device->allocate_pinned(4_MiB).value();
  std::memset(pinned, 1, 4_MiB);
  EXPECT_EQ(device->memory_info().value().free_bytes, 1_MiB);
  int foreign = 0;
  EXPECT_EQ(device->free_pinned(&foreign).error(), StatusCode::kUnknownHandle);
  EXPECT_EQ(device->free_pinned(nullptr).error(), StatusCode::kUnknownHandle);
  EXPECT_EQ(small_device()->free_pinned(pinned).error(), StatusCode::kUnknownHandle);
  ASSERT_TRUE(device->free_pinned(pinned));
  EXPECT_EQ(device->free_pinned(pinned).error(), StatusCode::kUnknownHandle);
  EXPECT_EQ(device->allocate_pinned(kAbsurdSize / 2).error(), StatusCode::kOutOfHostMemory);
}

// --- Latencies ---------------------------------------------------------------------------------

TEST(CpuDevice, CallsTakeAsLongAsTheModelSays) {
  const auto device = CpuDevice::create({.capacity_bytes = 16_MiB,
                                         .granularity_bytes = kPage,
                                         .latencies = {.map_pages = {.base_ns = 2e6}}});
  const auto address = device->reserve_addresses(4 * kPage).value();
  const std::array handles{device->create_pages(kPage).value(),
                           device->create_pages(kPage).value()};
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(device->map_pages(address, handles));
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(4));
}

// --- Speed of the hierarchy --------------------------------------------------------------------

TEST(CpuDevice, MeasuresEveryLevel) {
  const auto device = small_device(64_MiB);
  const auto levels = device->measure().value();
  ASSERT_EQ(levels.size(), device->properties().hierarchy.size());
  EXPECT_EQ(levels.back().name, "main memory");
  for (const MemoryLevel& level : levels) {
    ASSERT_TRUE(level.speed) << level.name;
    EXPECT_GT(level.speed->read_bytes_per_second, 0) << level.name;
    EXPECT_GT(level.speed->latency_ns, 0) << level.name;
    if (level.speed) {
      RecordProperty(level.name + " GB/s",
                     std::to_string(level.speed->read_bytes_per_second / 1e9));
      RecordProperty(level.name + " ns", std::to_string(level.speed->latency_ns));
    }
  }
}

}  // namespace
}  // namespace headroom::device
