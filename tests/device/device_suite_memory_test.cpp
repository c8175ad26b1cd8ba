// The device contract, for every backend: segments, addresses, pages and mappings.
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/device.h"

#include "tests/support/device_backends.h"
#include "tests/support/device_status.h"

namespace headroom::device {
namespace {

using testing::refused;
using testing::worked;
using enum StatusCode;

class DeviceMemory : public testing::DeviceFixture {
 protected:
  // `count` handles of one page each.
  std::vector<PageHandle> pages(std::size_t count) {
    std::vector<PageHandle> handles;
    for (std::size_t i = 0; i < count; ++i) {
      handles.push_back(device().create_pages(page()).value());
    }
    return handles;
  }

  // Whether the pages' bytes are `value`; true on a device without values.
  ::testing::AssertionResult holds(DeviceAddress address, std::uint8_t value) {
    if (backend().can_read_back) {
      std::vector<std::uint8_t> bytes(page(), static_cast<std::uint8_t>(~value));
      Device& device = this->device();
      if (auto copied =
              device.copy_to_host(bytes.data(), address, bytes.size(), StreamId::kDefault);
          !copied) {
        return worked(copied);
      }
      if (auto waited = device.synchronize_stream(StreamId::kDefault); !waited) {
        return worked(waited);
      }
      for (const std::uint8_t byte : bytes) {
        if (byte != value) {
          return ::testing::AssertionFailure() << "found " << int{byte} << ", not " << int{value};
        }
      }
    }
    return ::testing::AssertionSuccess();
  }
};
HEADROOM_DEVICE_SUITE(DeviceMemory, all_backends);

TEST_P(DeviceMemory, PropertiesAreFilledIn) {
  const Properties& properties = device().properties();
  EXPECT_EQ(properties.id, device().id());
  EXPECT_FALSE(properties.name.empty());
  EXPECT_GT(properties.total_bytes, 0U);
  EXPECT_GT(properties.granularity_bytes, 0U);
  EXPECT_TRUE(properties.has_virtual_memory);
  EXPECT_EQ(device().tracks_blocks(), innermost().tracks_blocks());
  ASSERT_FALSE(properties.hierarchy.empty());
  for (const MemoryLevel& level : properties.hierarchy) {
    EXPECT_FALSE(level.name.empty());
    EXPECT_GT(level.size_bytes, 0U) << level.name;
    EXPECT_GE(level.instances, 1) << level.name;
  }
}

// --- Segments --------------------------------------------------------------------------------

TEST_P(DeviceMemory, SegmentsAreAlignedAndApart) {
  Device& device = this->device();
  std::map<DeviceAddress, std::uint64_t> segments;
  for (const std::uint64_t size : {std::uint64_t{1},
                                   std::uint64_t{511},
                                   std::uint64_t{512},
                                   std::uint64_t{4097},
                                   1_KiB,
                                   64_KiB,
                                   1_MiB,
                                   1_MiB + 1}) {
    const auto address = device.allocate_segment(size);
    ASSERT_TRUE(worked(address)) << size;
    EXPECT_NE(*address, 0U);
    EXPECT_EQ(*address % 512, 0U) << size;
    EXPECT_TRUE(device.owns_range(*address, size));
    EXPECT_TRUE(segments.emplace(*address, size).second);
  }
  DeviceAddress end = 0;
  for (const auto& [address, size] : segments) {
    EXPECT_GE(address, end) << "two segments overlap";
    end = address + size;
  }
  for (const auto& [address, size] : segments) {
    EXPECT_TRUE(worked(device.free_segment(address)));
    EXPECT_FALSE(device.owns_range(address, 1));
  }
}

TEST_P(DeviceMemory, RefusesSegmentsPastTheCapacityUntilThereIsRoom) {
  if (!backend().has_exact_capacity) GTEST_SKIP() << "the capacity is shared";
  Device& device = this->device();
  const std::uint64_t total = device.properties().total_bytes;
  ASSERT_EQ(free_bytes(), total);
  EXPECT_TRUE(refused(device.allocate_segment(total + 1), kOutOfMemory));
  const auto half = device.allocate_segment(total / 2);
  ASSERT_TRUE(worked(half));
  EXPECT_TRUE(refused(device.allocate_segment(total / 2 + 1), kOutOfMemory));
  EXPECT_EQ(free_bytes(), total / 2);
  const auto other_half = device.allocate_segment(total / 2);
  ASSERT_TRUE(worked(other_half)) << "to the last byte";
  EXPECT_TRUE(refused(device.allocate_segment(1), kOutOfMemory));
  EXPECT_TRUE(refused(device.create_pages(page()), kOutOfMemory));
  EXPECT_TRUE(worked(device.free_segment(*half)));
  EXPECT_TRUE(worked(device.allocate_segment(total / 2)));
}

TEST_P(DeviceMemory, RefusesSizesThatCannotBe) {
  Device& device = this->device();
  const std::uint64_t before = free_bytes();
  EXPECT_TRUE(refused(device.allocate_segment(0), kInvalidArgument));
  EXPECT_TRUE(refused(device.reserve_addresses(0), kInvalidArgument));
  EXPECT_TRUE(refused(device.create_pages(0), kInvalidArgument));
  EXPECT_TRUE(refused(device.allocate_pinned(0), kInvalidArgument));
  for (const std::uint64_t size : {kAbsurdSize, kAbsurdSize + 1, UINT64_MAX - 511, UINT64_MAX}) {
    EXPECT_TRUE(refused(device.allocate_segment(size), kOutOfMemory)) << size;
    EXPECT_TRUE(refused(device.reserve_addresses(size), kOutOfMemory)) << size;
    EXPECT_TRUE(refused(device.create_pages(size), kOutOfMemory)) << size;
    EXPECT_TRUE(refused(device.allocate_pinned(size), kOutOfMemory)) << size;
  }
  // Just below absurd: the backend itself refuses.
  EXPECT_TRUE(refused(device.allocate_segment(kAbsurdSize - 1), kOutOfMemory));
  EXPECT_TRUE(refused(device.create_pages(kAbsurdSize - page()), kOutOfMemory));
  EXPECT_TRUE(refused(device.reserve_addresses(kAbsurdSize - page()), kOutOfAddressSpace));
  for (const std::uint64_t size : {page() - 1, page() + 1, page() / 2}) {
    EXPECT_TRUE(refused(device.reserve_addresses(size), kInvalidArgument)) << size;
    EXPECT_TRUE(refused(device.create_pages(size), kInvalidArgument)) << size;
  }
  EXPECT_TRUE(has_free(before));
}

TEST_P(DeviceMemory, FreesOnlySegmentsItKnows) {
  Device& device = this->device();
  const DeviceAddress segment = device.allocate_segment(4_KiB).value();
  const DeviceAddress range = device.reserve_addresses(page()).value();
  for (const DeviceAddress wrong :
       {DeviceAddress{0}, segment + 512, segment - 512, range, DeviceAddress{UINT64_MAX}}) {
    EXPECT_TRUE(refused(device.free_segment(wrong), kUnknownHandle)) << wrong;
  }
  auto other = make();
  EXPECT_TRUE(refused(other->free_segment(segment), kUnknownHandle)) << "of another device";
  EXPECT_TRUE(device.owns_range(segment, 4_KiB));
  EXPECT_TRUE(worked(device.free_segment(segment)));
  EXPECT_TRUE(refused(device.free_segment(segment), kUnknownHandle)) << "twice";
}

// --- Addresses -------------------------------------------------------------------------------

TEST_P(DeviceMemory, AddressesAreAlignedAndFree) {
  Device& device = this->device();
  const std::uint64_t before = free_bytes();
  const std::uint64_t size = 4 * device.properties().total_bytes / page() * page();
  const DeviceAddress first = device.reserve_addresses(size).value();
  const DeviceAddress second = device.reserve_addresses(page()).value();
  EXPECT_EQ(first % page(), 0U);
  EXPECT_EQ(second % page(), 0U);
  EXPECT_TRUE(second >= first + size || second + page() <= first);
  EXPECT_FALSE(device.owns_range(first, 1)) << "no memory is behind it";
  EXPECT_TRUE(has_free(before));
  EXPECT_TRUE(worked(device.release_addresses(first)));
  EXPECT_TRUE(worked(device.release_addresses(second)));
}

TEST_P(DeviceMemory, ReservesNoMoreThanItSays) {
  Device& device = this->device();
  const std::uint64_t most = device.properties().max_reservation_bytes;
  EXPECT_TRUE(refused(device.reserve_addresses(most + page()), kOutOfAddressSpace));
  const auto half = device.reserve_addresses(most / 2);
  ASSERT_TRUE(worked(half));
  EXPECT_TRUE(refused(device.reserve_addresses(most / 2 + page()), kOutOfAddressSpace));
  EXPECT_TRUE(worked(device.release_addresses(*half)));
  EXPECT_TRUE(worked(device.reserve_addresses(most / 2))) << "released addresses count no more";
}

TEST_P(DeviceMemory, ReleasesOnlyWholeReservationsWithNothingMapped) {
  Device& device = this->device();
  const DeviceAddress range = device.reserve_addresses(4 * page()).value();
  const DeviceAddress segment = device.allocate_segment(4_KiB).value();
  for (const DeviceAddress wrong : {DeviceAddress{0}, range + page(), range - page(), segment}) {
    EXPECT_TRUE(refused(device.release_addresses(wrong), kUnknownHandle)) << wrong;
  }
  const auto handles = pages(1);
  ASSERT_TRUE(worked(device.map_pages(range + 3 * page(), handles)));
  EXPECT_TRUE(refused(device.release_addresses(range), kInvalidArgument)) << "pages are mapped";
  EXPECT_TRUE(device.owns_range(range + 3 * page(), page()));
  ASSERT_TRUE(worked(device.unmap_pages(range, 4 * page())));
  EXPECT_TRUE(worked(device.release_addresses(range)));
  EXPECT_TRUE(refused(device.release_addresses(range), kUnknownHandle)) << "twice";
  EXPECT_TRUE(refused(device.map_pages(range, handles), kInvalidArgument)) << "released";
}

// --- Pages -----------------------------------------------------------------------------------

TEST_P(DeviceMemory, PagesCountAgainstTheCapacity) {
  if (!backend().has_exact_capacity) GTEST_SKIP() << "the capacity is shared";
  Device& device = this->device();
  const std::uint64_t total = device.properties().total_bytes;
  const PageHandle handle = device.create_pages(total - 2 * page()).value();
  const DeviceAddress segment = device.allocate_segment(page() + 1).value();
  EXPECT_EQ(free_bytes(), page() - 1);
  EXPECT_TRUE(refused(device.create_pages(page()), kOutOfMemory));
  EXPECT_TRUE(worked(device.free_segment(segment)));
  EXPECT_TRUE(worked(device.create_pages(page(), {.exportable = true})));
  EXPECT_TRUE(worked(device.release_pages(handle)));
  EXPECT_EQ(free_bytes(), total - page());
}

TEST_P(DeviceMemory, ReleasesOnlyHandlesItKnows) {
  Device& device = this->device();
  auto other = make();
  const PageHandle handle = device.create_pages(page()).value();
  const PageHandle foreign = other->create_pages(page()).value();
  EXPECT_NE(handle, PageHandle::kNone);
  EXPECT_NE(handle, foreign) << "unique in the process";
  EXPECT_TRUE(refused(device.release_pages(PageHandle::kNone), kUnknownHandle));
  EXPECT_TRUE(refused(device.release_pages(foreign), kUnknownHandle));
  EXPECT_TRUE(refused(device.release_pages(PageHandle{UINT64_MAX}), kUnknownHandle));
  EXPECT_TRUE(worked(device.release_pages(handle)));
  EXPECT_TRUE(refused(device.release_pages(handle), kUnknownHandle)) << "twice";
  EXPECT_TRUE(worked(other->release_pages(foreign)));
}

// --- Mappings --------------------------------------------------------------------------------

TEST_P(DeviceMemory, MapsHandlesOneBehindTheOther) {
  Device& device = this->device();
  const std::uint64_t page = this->page();
  const DeviceAddress range = device.reserve_addresses(8 * page).value();
  const std::array handles{device.create_pages(page).value(),
                           device.create_pages(2 * page).value(),
                           device.create_pages(page).value()};
  ASSERT_TRUE(worked(device.map_pages(range + page, handles)));
  EXPECT_FALSE(device.owns_range(range, page));
  EXPECT_TRUE(device.owns_range(range + page, 4 * page));
  EXPECT_FALSE(device.owns_range(range + page, 4 * page + 1));
  EXPECT_FALSE(device.owns_range(range + page - 1, 2));
  for (std::uint8_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(worked(device.fill(range + (1 + i) * page, i, page, StreamId::kDefault)));
  }
  ASSERT_TRUE(worked(device.synchronize_stream(StreamId::kDefault)));
  // Moved to other addresses, each handle keeps what it holds.
  ASSERT_TRUE(worked(device.unmap_pages(range + page, 4 * page)));
  const std::array turned{handles[2], handles[0], handles[1]};
  ASSERT_TRUE(worked(device.map_pages(range + 4 * page, turned)));
  EXPECT_TRUE(holds(range + 4 * page, 3));
  EXPECT_TRUE(holds(range + 5 * page, 0));
  EXPECT_TRUE(holds(range + 6 * page, 1));
  EXPECT_TRUE(holds(range + 7 * page, 2));
}

TEST_P(DeviceMemory, OneHandleAtManyAddressesIsOneMemory) {
  Device& device = this->device();
  const std::uint64_t page = this->page();
  const DeviceAddress range = device.reserve_addresses(8 * page).value();
  const auto handle = pages(1)[0];
  const std::uint64_t before = free_bytes();
  ASSERT_TRUE(worked(device.map_pages(range, std::array{handle, handle})));
  ASSERT_TRUE(worked(device.map_pages(range + 6 * page, std::array{handle})));
  EXPECT_TRUE(has_free(before)) << "aliases are free";
  ASSERT_TRUE(worked(device.fill(range + page, 7, page, StreamId::kDefault)));
  for (const std::uint64_t slot : {0U, 1U, 6U}) EXPECT_TRUE(holds(range + slot * page, 7));
  ASSERT_TRUE(worked(device.unmap_pages(range, page)));
  EXPECT_FALSE(device.owns_range(range, page));
  EXPECT_TRUE(device.owns_range(range + page, page)) << "the alias stays";
  EXPECT_TRUE(holds(range + 6 * page, 7));
}

TEST_P(DeviceMemory, ReleasedPagesLiveUntilTheirLastMappingGoes) {
  Device& device = this->device();
  const std::uint64_t page = this->page();
  const std::uint64_t before = free_bytes();
  const DeviceAddress range = device.reserve_addresses(4 * page).value();
  const auto handle = pages(1)[0];
  const std::uint64_t during = free_bytes();
  ASSERT_TRUE(worked(device.map_pages(range, std::array{handle, handle})));
  ASSERT_TRUE(worked(device.fill(range, 5, page, StreamId::kDefault)));
  ASSERT_TRUE(worked(device.synchronize_stream(StreamId::kDefault)));
  ASSERT_TRUE(worked(device.release_pages(handle)));
  EXPECT_TRUE(refused(device.release_pages(handle), kUnknownHandle));
  EXPECT_TRUE(refused(device.map_pages(range + 2 * page, std::array{handle}), kUnknownHandle));
  EXPECT_TRUE(has_free(during)) << "it is still mapped";
  ASSERT_TRUE(worked(device.unmap_pages(range, page)));
  EXPECT_TRUE(holds(range + page, 5));
  EXPECT_TRUE(has_free(during));
  ASSERT_TRUE(worked(device.unmap_pages(range + page, page)));
  EXPECT_TRUE(has_free(before));
}

TEST_P(DeviceMemory, MapsAllOrNothing) {
  Device& device = this->device();
  auto other = make();
  const std::uint64_t page = this->page();
  const DeviceAddress range = device.reserve_addresses(4 * page).value();
  const auto good = pages(5);
  const PageHandle gone = pages(1)[0];
  ASSERT_TRUE(worked(device.release_pages(gone)));
  const PageHandle foreign = other->create_pages(page).value();
  const PageHandle wide = device.create_pages(2 * page).value();

  const auto nothing_is_mapped = [&] {
    for (std::uint64_t slot = 0; slot < 4; ++slot) {
      if (device.owns_range(range + slot * page, 1)) return false;
    }
    return true;
  };
  using Handles = std::vector<PageHandle>;
  const struct {
    const char* what;
    DeviceAddress address;
    Handles handles;
    StatusCode code;
  } cases[] = {
      {"no handles", range, {}, kInvalidArgument},
      {"too many handles", range, good, kInvalidArgument},
      {"the last sticks out", range + 2 * page, {good[0], wide}, kInvalidArgument},
      {"kNone in the middle", range, {good[0], PageHandle::kNone, good[1]}, kUnknownHandle},
      {"a released one in the middle", range, {good[0], gone, good[1]}, kUnknownHandle},
      {"another device's at the end", range, {good[0], good[1], foreign}, kUnknownHandle},
      {"before the reservation", range - page, {good[0]}, kInvalidArgument},
      {"behind the reservation", range + 4 * page, {good[0]}, kInvalidArgument},
      {"across its beginning", range - page, {good[0], good[1]}, kInvalidArgument},
      {"an odd address", range + page / 2, {good[0]}, kInvalidArgument},
      {"address zero", 0, {good[0]}, kInvalidArgument},
      {"the end of the world", UINT64_MAX - page + 1, {good[0], good[1]}, kInvalidArgument},
  };
  for (const auto& [what, address, handles, code] : cases) {
    EXPECT_TRUE(refused(device.map_pages(address, handles), code)) << what;
    EXPECT_TRUE(nothing_is_mapped()) << what;
  }
  EXPECT_TRUE(worked(device.map_pages(range, std::span(good).first(4)))) << "no trace is left";
  EXPECT_TRUE(device.owns_range(range, 4 * page));
  for (const PageHandle handle : good) EXPECT_TRUE(worked(device.release_pages(handle)));
}

TEST_P(DeviceMemory, DoesNotMapOverAMapping) {
  Device& device = this->device();
  const std::uint64_t page = this->page();
  const DeviceAddress range = device.reserve_addresses(8 * page).value();
  const PageHandle wide = device.create_pages(2 * page).value();
  const auto good = pages(4);
  ASSERT_TRUE(worked(device.map_pages(range + 3 * page, std::array{wide})));
  ASSERT_TRUE(worked(device.fill(range + 3 * page, 9, 2 * page, StreamId::kDefault)));
  for (const std::uint64_t slot : {0U, 1U, 2U, 3U, 4U}) {
    EXPECT_TRUE(refused(device.map_pages(range + slot * page, good), kInvalidArgument)) << slot;
  }
  EXPECT_FALSE(device.owns_range(range, page));
  EXPECT_FALSE(device.owns_range(range + 5 * page, page));
  EXPECT_TRUE(holds(range + 3 * page, 9));
  EXPECT_TRUE(holds(range + 4 * page, 9));
  EXPECT_TRUE(worked(device.map_pages(range, std::span(good).first(3)))) << "up to it";
  EXPECT_TRUE(worked(device.map_pages(range + 5 * page, std::span(good).last(1)))) << "behind it";
  EXPECT_TRUE(device.owns_range(range, 6 * page));
}

TEST_P(DeviceMemory, UnmapsWholeMappingsOnly) {
  Device& device = this->device();
  const std::uint64_t page = this->page();
  const DeviceAddress range = device.reserve_addresses(8 * page).value();
  const PageHandle wide = device.create_pages(2 * page).value();
  const PageHandle narrow = device.create_pages(page).value();
  //   slot  0  1    2    3  4    5  6  7
  //            narrow    [wide ]
  ASSERT_TRUE(worked(device.map_pages(range + page, std::array{narrow})));
  ASSERT_TRUE(worked(device.map_pages(range + 3 * page, std::array{wide})));
  const struct {
    const char* what;
    DeviceAddress address;
    std::uint64_t size;
    StatusCode code;
  } cases[] = {
      {"ends inside", range, 4 * page, kInvalidArgument},
      {"starts inside", range + 4 * page, 4 * page, kInvalidArgument},
      {"the first half", range + 3 * page, page, kInvalidArgument},
      {"the second half", range + 4 * page, page, kInvalidArgument},
      {"nothing there", range + 5 * page, 3 * page, kUnknownHandle},
      {"nothing anywhere", page, page, kUnknownHandle},
      {"no size", range, 0, kInvalidArgument},
      {"an odd size", range, 8 * page - 1, kInvalidArgument},
      {"an absurd size", range, kAbsurdSize, kOutOfMemory},
      {"around the end of the world", UINT64_MAX - page + 1, 2 * page, kInvalidArgument},
  };
  for (const auto& [what, address, size, code] : cases) {
    EXPECT_TRUE(refused(device.unmap_pages(address, size), code)) << what;
    EXPECT_TRUE(device.owns_range(range + page, page)) << what;
    EXPECT_TRUE(device.owns_range(range + 3 * page, 2 * page)) << what;
  }
  EXPECT_TRUE(worked(device.unmap_pages(range, 8 * page))) << "gaps do not matter";
  EXPECT_FALSE(device.owns_range(range + page, 1));
  EXPECT_FALSE(device.owns_range(range + 3 * page, 1));
  EXPECT_TRUE(refused(device.unmap_pages(range, 8 * page), kUnknownHandle)) << "twice";
  EXPECT_TRUE(worked(device.map_pages(range, std::array{wide, narrow}))) << "usable again";
}

TEST_P(DeviceMemory, AMapStaysInOneReservation) {
  Device& device = this->device();
  const std::uint64_t page = this->page();
  // Some neighbours among many; where there are none, there is nothing to cross.
  std::vector<DeviceAddress> ranges;
  for (int i = 0; i < 16; ++i) ranges.push_back(device.reserve_addresses(page).value());
  std::sort(ranges.begin(), ranges.end());
  const auto handles = pages(2);
  for (const DeviceAddress range : ranges) {
    EXPECT_TRUE(refused(device.map_pages(range, handles), kInvalidArgument));
    EXPECT_FALSE(device.owns_range(range, 1));
  }
}

TEST_P(DeviceMemory, MemoryInfoAddsUp) {
  if (!backend().has_exact_capacity) GTEST_SKIP() << "the capacity is shared";
  Device& device = this->device();
  const std::uint64_t page = this->page();
  const std::uint64_t total = device.properties().total_bytes;
  std::uint64_t used = 0;
  const auto adds_up = [&] {
    const MemoryInfo info = device.memory_info().value();
    return info.total_bytes == total && info.free_bytes == total - used;
  };
  EXPECT_TRUE(adds_up());
  std::vector<DeviceAddress> segments;
  std::vector<PageHandle> handles;
  const DeviceAddress range = device.reserve_addresses(64 * page).value();
  for (std::uint64_t i = 1; i <= 8; ++i) {
    segments.push_back(device.allocate_segment(i * 1000).value());
    used += i * 1000;
    EXPECT_TRUE(adds_up());
    handles.push_back(device.create_pages(i * page).value());
    used += i * page;
    EXPECT_TRUE(adds_up());
  }
  ASSERT_TRUE(worked(device.map_pages(range, handles)));
  EXPECT_TRUE(adds_up());
  for (std::uint64_t i = 8; i >= 1; --i) {
    ASSERT_TRUE(worked(device.free_segment(segments[i - 1])));
    used -= i * 1000;
    ASSERT_TRUE(worked(device.release_pages(handles[i - 1])));
    EXPECT_TRUE(adds_up()) << "mapped pages still count";
  }
  ASSERT_TRUE(worked(device.unmap_pages(range, 64 * page)));
  EXPECT_EQ(free_bytes(), total);
}

TEST_P(DeviceMemory, DevicesAreApart) {
  auto other = make();
  Device& device = this->device();
  const std::uint64_t before = free_bytes();
  const DeviceAddress segment = other->allocate_segment(1_MiB).value();
  EXPECT_FALSE(device.owns_range(segment, 1));
  EXPECT_TRUE(has_free(before));
}

}  // namespace
}  // namespace headroom::device
