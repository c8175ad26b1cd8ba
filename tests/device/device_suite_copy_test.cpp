// The device contract, for every backend: copies, fills, pinned memory, counts, and a fork.
#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <sys/wait.h>
#include <unistd.h>
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

using Bytes = std::vector<std::uint8_t>;

Bytes counting(std::size_t size, std::uint8_t from = 0) {
  Bytes bytes(size);
  std::iota(bytes.begin(), bytes.end(), from);
  return bytes;
}

class DeviceCopies : public testing::DeviceFixture {
 protected:
  // What a device without values answers to a copy to the host.
  ::testing::AssertionResult read(Device& device,
                                  Bytes& into,
                                  DeviceAddress from,
                                  StreamId stream = StreamId::kDefault) {
    const auto copied = device.copy_to_host(into.data(), from, into.size(), stream);
    if (!backend().can_read_back) return refused(copied, kNotSupported);
    if (!copied) return worked(copied);
    return worked(device.synchronize_stream(stream));
  }
  // Whether the bytes from `address` on are these; true on a device without values.
  ::testing::AssertionResult holds(DeviceAddress address, const Bytes& expected) {
    return holds(device(), address, expected);
  }
  ::testing::AssertionResult holds(Device& device, DeviceAddress address, const Bytes& expected) {
    Bytes found(expected.size(), 0xee);
    if (auto done = read(device, found, address); !done) return done;
    if (!backend().can_read_back || found == expected) return ::testing::AssertionSuccess();
    const auto differ = std::mismatch(found.begin(), found.end(), expected.begin());
    return ::testing::AssertionFailure() << "byte " << differ.first - found.begin() << " is "
                                         << int{*differ.first} << ", not " << int{*differ.second};
  }
};
HEADROOM_DEVICE_SUITE(DeviceCopies, all_backends);

TEST_P(DeviceCopies, ValuesComeBack) {
  Device& device = this->device();
  const DeviceAddress segment = device.allocate_segment(64_KiB).value();
  const Bytes source = counting(10'001);
  for (const StreamId stream : {StreamId::kDefault, device.create_stream().value()}) {
    ASSERT_TRUE(worked(device.fill(segment, 0xab, 64_KiB, stream)));
    ASSERT_TRUE(worked(device.copy_to_device(segment + 7, source.data(), source.size(), stream)));
    ASSERT_TRUE(worked(device.copy_within(segment + 30'000, segment + 7, source.size(), stream)));
    ASSERT_TRUE(worked(device.synchronize_stream(stream)));
    EXPECT_TRUE(holds(segment, Bytes(7, 0xab))) << "what is before stays";
    EXPECT_TRUE(holds(segment + 7, source));
    EXPECT_TRUE(holds(segment + 30'000, source));
    EXPECT_TRUE(holds(segment + 30'000 + source.size(), Bytes(100, 0xab)));
    EXPECT_TRUE(holds(segment + 64_KiB - 1, Bytes(1, 0xab))) << "to the last byte";
  }
}

TEST_P(DeviceCopies, CopiesRunInStreamOrder) {
  Device& device = this->device();
  const DeviceAddress segment = device.allocate_segment(4_KiB).value();
  const StreamId stream = device.create_stream().value();
  Bytes seen(4_KiB);
  for (std::uint8_t round = 0; round < 50; ++round) {
    ASSERT_TRUE(worked(device.fill(segment, round, 4_KiB, stream)));
    ASSERT_TRUE(worked(device.fill(segment, static_cast<std::uint8_t>(round + 1), 2_KiB, stream)));
    ASSERT_TRUE(worked(device.copy_within(segment + 3_KiB, segment + 1_KiB, 512, stream)));
  }
  EXPECT_TRUE(read(device, seen, segment, stream));
  if (backend().can_read_back) {
    EXPECT_EQ(seen[0], 50);
    EXPECT_EQ(seen[2_KiB], 49);
    EXPECT_EQ(seen[3_KiB], 50);
    EXPECT_EQ(seen[3_KiB + 512], 49);
  }
}

TEST_P(DeviceCopies, RefusesRangesThatAreNotAllItsOwn) {
  Device& device = this->device();
  auto other = make();
  const DeviceAddress good = device.allocate_segment(8_KiB).value();
  const DeviceAddress theirs = other->allocate_segment(8_KiB).value();
  const DeviceAddress elsewhere = other->allocate_segment(16_KiB).value();
  const DeviceAddress unmapped = device.reserve_addresses(page()).value();
  ASSERT_TRUE(worked(device.fill(good, 1, 8_KiB, StreamId::kDefault)));
  Bytes host(16_KiB, 2);
  const struct {
    const char* what;
    DeviceAddress address;
    std::uint64_t size;
    StatusCode code;
  } cases[] = {
      {"past the end", good, 8_KiB + 1, kInvalidArgument},
      {"past the end by its start", good + 8_KiB - 1, 2, kInvalidArgument},
      {"behind the end", good + 8_KiB, 1, kInvalidArgument},
      {"before the beginning", good - 1, 2, kInvalidArgument},
      {"address zero", 0, 1, kInvalidArgument},
      {"around the end of the world", UINT64_MAX - 3, 8, kInvalidArgument},
      {"the last byte of the world", UINT64_MAX, 1, kInvalidArgument},
      {"nothing", good, 0, kInvalidArgument},
      {"an absurd size", good, kAbsurdSize, kOutOfMemory},
      {"the largest size", good, UINT64_MAX, kOutOfMemory},
      {"of another device", elsewhere, 1, kInvalidArgument},
      {"reserved, not mapped", unmapped, 1, kInvalidArgument},
  };
  const StreamId s = StreamId::kDefault;
  for (const auto& [what, address, size, code] : cases) {
    EXPECT_TRUE(refused(device.copy_to_device(address, host.data(), size, s), code)) << what;
    EXPECT_TRUE(refused(device.copy_to_host(host.data(), address, size, s), code)) << what;
    EXPECT_TRUE(refused(device.copy_within(address, good, size, s), code)) << what;
    EXPECT_TRUE(refused(device.copy_within(good, address, size, s), code)) << what;
    EXPECT_TRUE(refused(device.fill(address, 3, size, s), code)) << what;
    EXPECT_TRUE(refused(device.copy_peer(address, *other, theirs, size, s), code)) << what;
    if (address != elsewhere) {
      EXPECT_TRUE(refused(other->copy_peer(theirs, device, address, size, s), code)) << what;
    }
  }
  EXPECT_EQ(host, Bytes(16_KiB, 2));
  EXPECT_TRUE(holds(good, Bytes(8_KiB, 1))) << "untouched";
  EXPECT_TRUE(refused(device.copy_to_device(good, nullptr, 8, s), kInvalidArgument));
  EXPECT_TRUE(refused(device.copy_to_host(nullptr, good, 8, s), kInvalidArgument));
  ASSERT_TRUE(worked(device.free_segment(good)));
  EXPECT_TRUE(refused(device.fill(good, 3, 1, s), kInvalidArgument)) << "freed";
}

TEST_P(DeviceCopies, GoAcrossMappingsButNotAcrossHoles) {
  Device& device = this->device();
  const std::uint64_t page = this->page();
  const DeviceAddress range = device.reserve_addresses(6 * page).value();
  const std::array handles{device.create_pages(page).value(), device.create_pages(page).value()};
  const StreamId s = StreamId::kDefault;
  //   slot   0      1     2 (hole)  3
  //        [ h0 ][ h1 ]          [ h0 ]
  ASSERT_TRUE(worked(device.map_pages(range, handles)));
  ASSERT_TRUE(worked(device.map_pages(range + 3 * page, std::span(handles).first(1))));
  const Bytes source = counting(1000);
  ASSERT_TRUE(worked(device.fill(range, 0, 2 * page, s)));
  EXPECT_TRUE(worked(device.copy_to_device(range + page - 500, source.data(), 1000, s)));
  EXPECT_TRUE(holds(range + page - 500, source));
  EXPECT_TRUE(holds(range + 4 * page - 500, counting(500))) << "the alias has its half";
  Bytes host(2000);
  EXPECT_TRUE(
      refused(device.copy_to_host(host.data(), range + 2 * page - 1, 2, s), kInvalidArgument));
  EXPECT_TRUE(refused(device.fill(range + page, 1, 2 * page, s), kInvalidArgument));
  EXPECT_TRUE(refused(device.fill(range + 3 * page, 1, page + 1, s), kInvalidArgument));
  EXPECT_TRUE(refused(device.copy_within(range, range + 3 * page - 1, 2, s), kInvalidArgument));
  ASSERT_TRUE(worked(device.unmap_pages(range + page, page)));
  EXPECT_TRUE(refused(device.fill(range + page, 1, 1, s), kInvalidArgument)) << "unmapped";
  EXPECT_TRUE(worked(device.fill(range, 1, page, s)));
}

TEST_P(DeviceCopies, PeersCopyToOneAnother) {
  Device& device = this->device();
  auto other = make();
  const DeviceAddress here = device.allocate_segment(4_KiB).value();
  const DeviceAddress there = other->allocate_segment(4_KiB).value();
  const StreamId s = StreamId::kDefault;
  const Bytes source = counting(4_KiB, 9);
  ASSERT_TRUE(worked(device.copy_to_device(here, source.data(), source.size(), s)));
  EXPECT_TRUE(worked(other->copy_peer(there, device, here, 4_KiB, s)));
  EXPECT_TRUE(worked(other->synchronize_stream(s)));
  EXPECT_TRUE(holds(*other, there, source));
  EXPECT_TRUE(worked(device.copy_peer(here + 2_KiB, device, here, 1_KiB, s))) << "itself";
  EXPECT_TRUE(worked(device.synchronize_stream(s)));
  EXPECT_TRUE(holds(here + 2_KiB, counting(1_KiB, 9)));

  const StreamId foreign = other->create_stream().value();
  EXPECT_TRUE(refused(device.copy_peer(here, *other, there, 8, foreign), kUnknownHandle))
      << "the order is that of this device's stream";
}

TEST_P(DeviceCopies, PeersAreOfOneKind) {
  Device& device = this->device();
  const bool is_cpu = device.id().kind == DeviceKind::kCpu;
  auto stranger = (is_cpu ? testing::meta_backend() : testing::cpu_backend()).make({});
  const DeviceAddress here = device.allocate_segment(8).value();
  const DeviceAddress there = stranger->allocate_segment(8).value();
  EXPECT_TRUE(
      refused(device.copy_peer(here, *stranger, there, 8, StreamId::kDefault), kNotSupported));
}

TEST_P(DeviceCopies, PeersMayBeWrapped) {
  Device& device = this->device();
  auto other = make();
  FaultDevice wrapped(*other);
  FaultDevice twice(static_cast<Device&>(wrapped));  // not a copy
  const DeviceAddress here = device.allocate_segment(4_KiB).value();
  const DeviceAddress there = other->allocate_segment(4_KiB).value();
  const StreamId s = StreamId::kDefault;
  const Bytes source = counting(4_KiB, 3);
  ASSERT_TRUE(worked(device.copy_to_device(here, source.data(), source.size(), s)));
  EXPECT_TRUE(worked(twice.copy_peer(there, device, here, 4_KiB, s)));
  EXPECT_TRUE(holds(*other, there, source));
  ASSERT_TRUE(worked(device.fill(here, 0, 4_KiB, s)));
  EXPECT_TRUE(worked(device.copy_peer(here, twice, there, 4_KiB, s)));
  EXPECT_TRUE(holds(here, source));
}

// --- Pinned memory ---------------------------------------------------------------------------

TEST_P(DeviceCopies, PinnedMemoryIsTheHostsToUse) {
  Device& device = this->device();
  const std::uint64_t before = free_bytes();
  void* const pinned = device.allocate_pinned(100'000).value();
  ASSERT_NE(pinned, nullptr);
  EXPECT_TRUE(has_free(before)) << "not the device's";
  std::memset(pinned, 6, 100'000);
  const DeviceAddress segment = device.allocate_segment(100'000).value();
  ASSERT_TRUE(worked(device.copy_to_device(segment, pinned, 100'000, StreamId::kDefault)));
  EXPECT_TRUE(holds(segment, Bytes(100'000, 6)));
  EXPECT_TRUE(worked(device.free_pinned(pinned)));
}

TEST_P(DeviceCopies, FreesOnlyPinnedMemoryItKnows) {
  Device& device = this->device();
  auto other = make();
  void* const pinned = device.allocate_pinned(64).value();
  int local = 0;
  EXPECT_TRUE(refused(device.free_pinned(nullptr), kUnknownHandle));
  EXPECT_TRUE(refused(device.free_pinned(&local), kUnknownHandle));
  EXPECT_TRUE(refused(device.free_pinned(static_cast<char*>(pinned) + 1), kUnknownHandle));
  EXPECT_TRUE(refused(other->free_pinned(pinned), kUnknownHandle));
  EXPECT_TRUE(worked(device.free_pinned(pinned)));
  EXPECT_TRUE(refused(device.free_pinned(pinned), kUnknownHandle)) << "twice";
  EXPECT_TRUE(worked(device.allocate_pinned(1))) << "left to the device, which frees it";
}

// --- Counting and questions ------------------------------------------------------------------

TEST_P(DeviceCopies, EveryCallIsCounted) {
  Device& device = this->device();
  for (std::size_t i = 0; i < kCallCount; ++i) {
    EXPECT_EQ(device.calls(static_cast<Call>(i)), 0U) << to_string(static_cast<Call>(i));
  }
  const std::uint64_t page = this->page();
  const DeviceAddress segment = device.allocate_segment(1_KiB).value();
  (void)device.allocate_segment(0);
  const DeviceAddress range = device.reserve_addresses(8 * page).value();
  const PageHandle handle = device.create_pages(page).value();
  (void)device.map_pages(range, std::array{handle, handle, handle});
  (void)device.map_pages(range, std::array{handle, PageHandle::kNone});
  EXPECT_EQ(device.unmap_pages(range, 3 * page).value(), 3U);
  (void)device.unmap_pages(range, 3 * page);
  (void)device.fill(segment, 0, 8, StreamId::kDefault);
  (void)device.free_segment(segment);
  (void)device.free_segment(segment);
  (void)device.memory_info();
  (void)device.processes();
  EXPECT_EQ(device.calls(Call::kAllocateSegment), 2U) << "the refused one too";
  EXPECT_EQ(device.calls(Call::kReserveAddresses), 1U);
  EXPECT_EQ(device.calls(Call::kCreatePages), 1U);
  EXPECT_EQ(device.calls(Call::kMapPages), 5U) << "handle by handle";
  EXPECT_EQ(device.calls(Call::kUnmapPages), 4U) << "handle by handle, and the refused one";
  EXPECT_EQ(device.calls(Call::kFill), 1U);
  EXPECT_EQ(device.calls(Call::kFreeSegment), 2U);
  EXPECT_EQ(device.calls(Call::kMemoryInfo), 1U);
  EXPECT_EQ(device.calls(Call::kProcesses), 1U);
  EXPECT_EQ(device.calls(Call::kCopyPeer), 0U);
}

TEST_P(DeviceCopies, AStatusNamesItsCallAndItsNumbers) {
  if (!backend().has_exact_capacity) GTEST_SKIP() << "the capacity is shared";
  Device& device = this->device();
  const auto status = device.allocate_segment(20_MiB).error();
  EXPECT_EQ(to_string(status),
            "allocate_segment: out of memory: past the device's capacity; bytes asked for against "
            "bytes free (20,971,520 against 16,777,216)");
}

// --- A fork ----------------------------------------------------------------------------------

// The number of the first call that does not answer kForked, or 0.
int first_call_that_survives(Device& device,
                             DeviceAddress segment,
                             DeviceAddress range,
                             PageHandle handle,
                             StreamId stream,
                             EventId event,
                             void* pinned) {
  int number = 0;
  int first = 0;
  const auto check = [&](const auto& result) {
    ++number;
    if (first == 0 && (result.has_value() || result.error().code != kForked)) first = number;
  };
  char byte = 0;
  const HostTask task{.run = [](void*) noexcept { _exit(99); }};
  check(device.allocate_segment(8));
  check(device.free_segment(segment));
  check(device.reserve_addresses(device.properties().granularity_bytes));
  check(device.release_addresses(range));
  check(device.create_pages(device.properties().granularity_bytes));
  check(device.release_pages(handle));
  check(device.map_pages(range, std::array{handle}));
  check(device.unmap_pages(range, device.properties().granularity_bytes));
  check(device.create_stream());
  check(device.adopt_stream(0));
  check(device.native_stream(stream));
  check(device.release_stream(stream));
  check(device.synchronize_stream(stream));
  check(device.is_capturing(stream));
  check(device.record_event(stream));
  check(device.query_event(event));
  check(device.wait_event(stream, event));
  check(device.synchronize_event(event));
  check(device.elapsed_ms(event, event));
  check(device.release_event(event));
  check(device.copy_to_device(segment, &byte, 1, stream));
  check(device.copy_to_host(&byte, segment, 1, stream));
  check(device.copy_within(segment, segment + 1, 1, stream));
  check(device.copy_peer(segment, device, segment + 1, 1, stream));
  check(device.fill(segment, 0, 1, stream));
  check(device.enqueue_host(stream, task));
  check(device.allocate_pinned(8));
  check(device.free_pinned(pinned));
  check(device.memory_info());
  check(device.processes());
  check(device.measure());
  device.block_allocated(segment, 8, stream);
  device.block_freed(segment, 8, stream);
  if (number != int{kCallCount}) return 98;  // a call is missing here
  if (first == 0 && device.owns_range(segment, 1)) return 97;
  return first;
}

TEST_P(DeviceCopies, EveryCallAnswersForkedInTheChild) {
  Device& device = this->device();
  const DeviceAddress segment = device.allocate_segment(1_KiB).value();
  const DeviceAddress range = device.reserve_addresses(page()).value();
  const PageHandle handle = device.create_pages(page()).value();
  ASSERT_TRUE(worked(device.map_pages(range, std::array{handle})));
  const StreamId stream = device.create_stream().value();
  const EventId event = device.record_event(stream).value();
  void* const pinned = device.allocate_pinned(8).value();
  ASSERT_TRUE(worked(device.fill(range, 4, page(), stream)));
  ASSERT_TRUE(worked(device.synchronize_stream(stream)));

  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    _exit(first_call_that_survives(device, segment, range, handle, stream, event, pinned));
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the number of the first call that survived";

  EXPECT_TRUE(holds(range, Bytes(page(), 4))) << "the parent goes on";
  EXPECT_TRUE(worked(device.unmap_pages(range, page())));
  EXPECT_TRUE(worked(device.synchronize_stream(stream)));
}

}  // namespace
}  // namespace headroom::device
