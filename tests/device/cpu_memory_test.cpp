// The cpu device's virtual memory, with real bytes behind it.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <sys/stat.h>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/cpu/cpu_device.h"
#include "headroom/device/cpu/internal/areas.h"
#include "headroom/device/cpu/internal/memory_file.h"

#include "tests/device/small_device.h"
#include "tests/support/sanitized.h"

namespace headroom::device {
namespace {

using internal::to_pointer;

// Volatile, because a compiler takes it for granted that two addresses are two places.
volatile std::uint64_t& word(DeviceAddress address) {
  return *static_cast<volatile std::uint64_t*>(to_pointer(address));
}

bool map_one(CpuDevice& device, DeviceAddress address, PageHandle handle) {
  return device.map_pages(address, std::array{handle}).has_value();
}

TEST(CpuMemory, TwoMappingsOfAHandleAreTheSameBytes) {
  const auto device = small_device();
  const auto base = device->reserve_addresses(8 * kPage).value();
  const auto handle = device->create_pages(2 * kPage).value();
  ASSERT_TRUE(map_one(*device, base, handle));
  ASSERT_TRUE(map_one(*device, base + 5 * kPage, handle));
  word(base + kPage) = 42;
  EXPECT_EQ(word(base + 6 * kPage), 42U);
  word(base + 6 * kPage) = 43;
  EXPECT_EQ(word(base + kPage), 43U);
  EXPECT_EQ(device->memory_info().value().free_bytes, 16_MiB - 2 * kPage);
}

TEST(CpuMemory, DataStaysWithTheHandleNotWithTheAddress) {
  const auto device = small_device();
  const auto base = device->reserve_addresses(4 * kPage).value();
  const auto a = device->create_pages(kPage).value();
  const auto b = device->create_pages(kPage).value();
  ASSERT_TRUE(device->map_pages(base, std::array{a, b}));
  word(base) = 1;
  word(base + kPage) = 2;
  ASSERT_TRUE(device->unmap_pages(base, 2 * kPage));
  ASSERT_TRUE(device->map_pages(base, std::array{b, a}));
  EXPECT_EQ(word(base), 2U);
  EXPECT_EQ(word(base + kPage), 1U);
}

TEST(CpuMemory, ReleasedPagesLiveUntilTheLastUnmap) {
  const auto device = small_device();
  const auto base = device->reserve_addresses(2 * kPage).value();
  const auto handle = device->create_pages(kPage).value();
  ASSERT_TRUE(map_one(*device, base, handle));
  ASSERT_TRUE(map_one(*device, base + kPage, handle));
  word(base) = 9;
  ASSERT_TRUE(device->release_pages(handle));
  EXPECT_EQ(device->release_pages(handle).error(), StatusCode::kUnknownHandle);
  ASSERT_TRUE(device->unmap_pages(base, kPage));
  EXPECT_EQ(word(base + kPage), 9U);
  EXPECT_EQ(device->memory_info().value().free_bytes, 16_MiB - kPage);
  ASSERT_TRUE(device->unmap_pages(base + kPage, kPage));
  EXPECT_EQ(device->memory_info().value().free_bytes, 16_MiB);
}

TEST(CpuMemory, AFreshHandleReadsAsZero) {
  const auto device = small_device(kPage);
  const auto base = device->reserve_addresses(kPage).value();
  for (int round = 0; round < 3; ++round) {
    const auto handle = device->create_pages(kPage).value();
    ASSERT_TRUE(map_one(*device, base, handle));
    const auto* bytes = static_cast<const unsigned char*>(to_pointer(base));
    ASSERT_TRUE(std::all_of(bytes, bytes + kPage, [](unsigned char c) { return c == 0; }));
    std::memset(to_pointer(base), 0xFF, kPage);
    ASSERT_TRUE(device->unmap_pages(base, kPage));
    ASSERT_TRUE(device->release_pages(handle));
  }
}

TEST(CpuMemory, ReservationsAreAlignedToTheGranularity) {
  const auto device = CpuDevice::create({.capacity_bytes = 16_MiB});
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(device->reserve_addresses(2_MiB).value() % 2_MiB, 0U);
  }
}

TEST(CpuMemory, MapsAllHandlesOrNone) {
  const auto device = small_device();
  const auto base = device->reserve_addresses(4 * kPage).value();
  const auto a = device->create_pages(kPage).value();
  const auto b = device->create_pages(2 * kPage).value();
  ASSERT_TRUE(map_one(*device, base + 2 * kPage, a));
  const std::uint64_t before = CpuDevice::live_mappings();
  const auto refused = device->map_pages(base, std::array{a, b});  // b would run into a
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), StatusCode::kInvalidArgument);
  EXPECT_EQ(CpuDevice::live_mappings(), before);
  EXPECT_FALSE(device->owns_range(base, 1));
  ASSERT_TRUE(map_one(*device, base, b));
}

TEST(CpuMemory, UnmapsSeveralMappingsWithGapsBetween) {
  const auto device = small_device();
  const auto base = device->reserve_addresses(8 * kPage).value();
  const auto handle = device->create_pages(kPage).value();
  for (const std::uint64_t at : {0U, 1U, 3U, 6U}) {
    ASSERT_TRUE(map_one(*device, base + at * kPage, handle));
  }
  ASSERT_TRUE(device->unmap_pages(base, 8 * kPage));
  EXPECT_FALSE(device->owns_range(base + 3 * kPage, 1));
  ASSERT_TRUE(device->release_addresses(base));
}

TEST(CpuMemory, TouchingAnUnmappedRangeIsAFault) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto device = small_device();
  const auto base = device->reserve_addresses(kPage).value();
  EXPECT_DEATH(word(base) = 1, "");
  const auto handle = device->create_pages(kPage).value();
  ASSERT_TRUE(map_one(*device, base, handle));
  word(base) = 1;
  ASSERT_TRUE(device->unmap_pages(base, kPage));
  EXPECT_DEATH(word(base) = 1, "");
}

TEST(CpuMemory, StopsLongBeforeTheKernelRunsOutOfMappings) {
  const auto one = small_device();
  const auto two = CpuDevice::create({.index = 1, .granularity_bytes = kPage});
  const std::uint64_t before = CpuDevice::live_mappings();
  const std::uint64_t half = CpuDevice::kMaxMappings / 2;
  const std::uint64_t rest = CpuDevice::kMaxMappings - before - half;
  // The bound is the process's, so it is shared by the devices. Handles are mapped in reverse
  // order with gaps, so that the kernel cannot join any two.
  const auto fill_up = [](CpuDevice& device, std::uint64_t count) {
    const auto base = device.reserve_addresses((2 * count + 2) * kPage).value();
    const auto handle = device.create_pages(kPage).value();
    for (std::uint64_t i = 0; i < count; ++i) {
      if (!map_one(device, base + 2 * i * kPage, handle)) return DeviceAddress{0};
    }
    return base;
  };
  const DeviceAddress first = fill_up(*one, half);
  ASSERT_NE(first, 0U);
  ASSERT_NE(fill_up(*two, rest), 0U);
  EXPECT_EQ(CpuDevice::live_mappings(), CpuDevice::kMaxMappings);

  const auto spare = two->create_pages(kPage).value();
  const auto base = two->reserve_addresses(kPage).value();
  const auto refused = two->map_pages(base, std::array{spare});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), StatusCode::kTooManyMappings);
  EXPECT_EQ(refused.error().bound, CpuDevice::kMaxMappings);
  EXPECT_FALSE(two->owns_range(base, 1));
  ASSERT_TRUE(one->unmap_pages(first, kPage));
  EXPECT_TRUE(map_one(*two, base, spare));
}

TEST(CpuMemory, SegmentsAndReservationsAreBoundedTheSameWay) {
  const auto device = CpuDevice::create({.granularity_bytes = kPage});
  std::vector<DeviceAddress> segments;
  for (;;) {
    const auto segment = device->allocate_segment(512);
    if (!segment) {
      EXPECT_EQ(segment.error(), StatusCode::kTooManyMappings);
      break;
    }
    segments.push_back(*segment);
    ASSERT_LE(segments.size(), CpuDevice::kMaxMappings);
  }
  EXPECT_EQ(device->reserve_addresses(kPage).error(), StatusCode::kTooManyMappings);
  EXPECT_EQ(device->processes().value()[0].used_bytes, segments.size() * 512);
  ASSERT_TRUE(device->free_segment(segments.back()));
  ASSERT_TRUE(device->reserve_addresses(kPage));
}

// Takes mappings of the kernel until it gives no more, then gives `spare` of them back.
class ExhaustedKernel {
 public:
  explicit ExhaustedKernel(std::uint64_t spare) {
    // Every second page of a range gets another protection, so that no two can be joined.
    constexpr std::uint64_t kPages = 400'000;
    size_ = kPages * internal::system_page_bytes();
    start_ = static_cast<char*>(
        mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    const std::uint64_t page = internal::system_page_bytes();
    std::uint64_t at = 0;
    while (at < kPages && mprotect(start_ + at * page, page, PROT_READ) == 0) at += 2;
    is_exhausted_ = at < kPages;
    // Each page given back joins three mappings to one.
    for (std::uint64_t i = 0; i < spare; i += 2) {
      at -= 2;
      mprotect(start_ + at * page, page, PROT_NONE);
    }
  }
  ExhaustedKernel(const ExhaustedKernel&) = delete;
  ExhaustedKernel& operator=(const ExhaustedKernel&) = delete;
  ~ExhaustedKernel() { munmap(start_, size_); }

  [[nodiscard]] bool is_exhausted() const { return is_exhausted_; }

 private:
  char* start_ = nullptr;
  std::uint64_t size_ = 0;
  bool is_exhausted_ = false;
};

TEST(CpuMemory, AMapThatTheKernelRefusesHalfWayLeavesNothing) {
  if (headroom::testing::kIsSanitized) {
    GTEST_SKIP() << "the sanitizer needs mappings of its own";
  }
  const auto device = small_device();
  const auto base = device->reserve_addresses(32 * kPage).value();
  std::vector<PageHandle> handles;
  for (int i = 0; i < 16; ++i) handles.push_back(device->create_pages(kPage).value());
  std::reverse(handles.begin(), handles.end());  // so that neighbours cannot be joined
  ASSERT_TRUE(map_one(*device, base + 30 * kPage, handles[0]));
  word(base + 30 * kPage) = 77;
  const std::uint64_t before = CpuDevice::live_mappings();
  DeviceResult<void> refused;
  std::uint64_t after = 0;
  bool is_any_left = false;
  {
    const ExhaustedKernel kernel(8);
    if (!kernel.is_exhausted()) GTEST_SKIP() << "this kernel allows too many mappings";
    refused = device->map_pages(base, handles);
    after = CpuDevice::live_mappings();
    for (std::uint64_t i = 0; i < 16; ++i) is_any_left |= device->owns_range(base + i * kPage, 1);
  }
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), StatusCode::kTooManyMappings);
  EXPECT_EQ(refused.error().native_code, ENOMEM);
  EXPECT_EQ(after, before);
  EXPECT_FALSE(is_any_left);
  ASSERT_TRUE(device->map_pages(base, handles));
  EXPECT_EQ(word(base), 77U);
}

TEST(CpuMemory, MappingsOfADeviceEndWithIt) {
  const std::uint64_t before = CpuDevice::live_mappings();
  {
    const auto device = small_device();
    const auto base = device->reserve_addresses(4 * kPage).value();
    ASSERT_TRUE(map_one(*device, base, device->create_pages(kPage).value()));
    EXPECT_EQ(CpuDevice::live_mappings(), before + 1);
  }
  EXPECT_EQ(CpuDevice::live_mappings(), before);
}

TEST(CpuMemory, ReservesAtMost256GiB) {
  const auto device = CpuDevice::create({.capacity_bytes = 16_MiB});
  const auto most = device->reserve_addresses(CpuDevice::kMaxReservationBytes - 2_MiB).value();
  ASSERT_TRUE(device->reserve_addresses(2_MiB));
  const auto refused = device->reserve_addresses(2_MiB);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), StatusCode::kOutOfAddressSpace);
  ASSERT_TRUE(device->release_addresses(most));
  EXPECT_TRUE(device->reserve_addresses(2_MiB));
}

// --- The memory file ---------------------------------------------------------------------------

std::uint64_t backed_bytes(const internal::MemoryFile& file) {
  struct stat info {};
  EXPECT_EQ(fstat(file.descriptor(), &info), 0);
  return static_cast<std::uint64_t>(info.st_blocks) * 512;
}

TEST(MemoryFile, GivesMemoryBackToTheSystem) {
  internal::MemoryFile file(0);
  const auto offset = file.allocate(1_MiB).value();
  EXPECT_EQ(backed_bytes(file), 0U);
  using internal::AreaUse;
  const auto area = internal::make_area(AreaUse::kAddresses, 1_MiB, 64_KiB).value();
  ASSERT_EQ(file.map(area, 1_MiB, offset), 0);
  std::memset(to_pointer(area), 1, 1_MiB);
  EXPECT_EQ(backed_bytes(file), 1_MiB);
  ASSERT_EQ(internal::clear_mappings(area, 1_MiB), 0);
  file.free(offset, 1_MiB);
  EXPECT_EQ(backed_bytes(file), 0U);
  internal::drop_area(AreaUse::kAddresses, area, 1_MiB);
}

TEST(MemoryFile, UsesGapsAgainAndJoinsThem) {
  internal::MemoryFile file(0);
  std::vector<std::uint64_t> offsets;
  for (int i = 0; i < 4; ++i) offsets.push_back(file.allocate(kPage).value());
  const std::uint64_t end = file.allocate(kPage).value();
  file.free(offsets[0], kPage);
  file.free(offsets[2], kPage);
  file.free(offsets[1], kPage);
  EXPECT_EQ(file.allocate(3 * kPage).value(), offsets[0]);
  file.free(offsets[3], kPage);
  EXPECT_GT(file.allocate(2 * kPage).value(), end);
  EXPECT_EQ(file.allocate(kPage).value(), offsets[3]);
}

}  // namespace
}  // namespace headroom::device
