#include "headroom/device/meta/meta_device.h"

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/error.h"

#include "tests/support/seed.h"

namespace headroom::device {
namespace {

constexpr std::uint64_t kMetaPage = 2_MiB;

std::string broken(const MetaDevice& device) { return device.check_invariants().value_or(""); }

TEST(MetaDevice, RefusesOptionsThatCannotBe) {
  EXPECT_THROW((void)MetaDevice::create({.capacity_bytes = 0}), InvalidArgument);
  EXPECT_THROW((void)MetaDevice::create({.capacity_bytes = kAbsurdSize}), InvalidArgument);
  EXPECT_THROW((void)MetaDevice::create({.capacity_bytes = UINT64_MAX}), InvalidArgument);
  EXPECT_THROW((void)MetaDevice::create({.index = -1}), InvalidArgument);
  EXPECT_THROW((void)MetaDevice::create({.profile = {.granularity_bytes = 3_MiB}}),
               InvalidArgument);
  EXPECT_THROW((void)MetaDevice::create({.profile = {.segment_alignment_bytes = 256}}),
               InvalidArgument);
  try {
    (void)MetaDevice::create({.capacity_bytes = kAbsurdSize});
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "meta device: a capacity of 1EiB cannot be; give more than zero and less than "
                 "1EiB");
  }
}

TEST(MetaDevice, TakesTheProfileOfWhatItStandsFor) {
  const auto card = MetaDevice::create({.index = 3, .capacity_bytes = 80_GiB});
  EXPECT_EQ(to_string(card->id()), "meta:3");
  EXPECT_EQ(card->properties().name, "addresses only, as on cuda");
  EXPECT_EQ(card->properties().granularity_bytes, 2_MiB);
  EXPECT_FALSE(card->properties().host_accessible);
  ASSERT_EQ(card->properties().hierarchy.size(), 1U);
  EXPECT_EQ(card->properties().hierarchy[0].name, "global memory");
  EXPECT_EQ(card->properties().hierarchy[0].size_bytes, 80_GiB);

  const auto host = MetaDevice::create({.profile = cpu_profile()});
  EXPECT_EQ(host->profile().stands_for, DeviceKind::kCpu);
  EXPECT_EQ(host->properties().max_reservation_bytes, 256_GiB);
}

TEST(MetaDevice, AddressesFallFromTheTop) {
  const auto device = MetaDevice::create();
  const DeviceAddress first = device->allocate_segment(20_MiB).value();
  const DeviceAddress second = device->allocate_segment(2_MiB).value();
  const DeviceAddress third = device->reserve_addresses(4_MiB).value();
  EXPECT_EQ(second, first - 2_MiB);
  EXPECT_EQ(third, second - 4_MiB);
  ASSERT_TRUE(device->free_segment(second));
  EXPECT_EQ(device->allocate_segment(4_MiB).value(), third - 4_MiB) << "the gap is too small";
  EXPECT_EQ(device->allocate_segment(512).value(), second) << "the highest gap that fits";
  EXPECT_EQ(broken(*device), "");
}

TEST(MetaDevice, AddressesRiseFromTheBottom) {
  const auto device = MetaDevice::create({.addresses = AddressOrder::kAscending});
  const DeviceAddress first = device->allocate_segment(20_MiB).value();
  const DeviceAddress second = device->allocate_segment(1).value();
  const DeviceAddress third = device->allocate_segment(2_MiB).value();
  EXPECT_EQ(second, first + 20_MiB);
  EXPECT_EQ(third, second + 2_MiB) << "aligned as the profile says";
  ASSERT_TRUE(device->free_segment(first));
  EXPECT_EQ(device->reserve_addresses(2_MiB).value(), first) << "the lowest gap that fits";
  EXPECT_EQ(device->allocate_segment(20_MiB).value(), third + 2_MiB);
  EXPECT_EQ(broken(*device), "");
}

TEST(MetaDevice, HoldsAnyCapacity) {
  const auto device = MetaDevice::create({.capacity_bytes = kAbsurdSize - 1});
  const std::uint64_t half = kAbsurdSize / 2;
  ASSERT_TRUE(device->allocate_segment(half));
  ASSERT_TRUE(device->allocate_segment(half - 1));
  EXPECT_EQ(device->memory_info().value().free_bytes, 0U);
  EXPECT_EQ(device->allocate_segment(1).error(), StatusCode::kOutOfMemory);
}

TEST(MetaDevice, PlacesSegmentsWhereTheRecordingHadThem) {
  const auto device = MetaDevice::create();
  const DeviceAddress invented = device->allocate_segment(2_MiB).value();
  const std::array places{
      DeviceAddress{512},                          // below the arena
      invented - 4_MiB,                            // inside it, as the next ones would be
      invented - 2_MiB,                            //
      DeviceAddress{0x7f00'0000'0000} + 10 * 512,  // above it, at an odd place
      UINT64_MAX - 2_MiB - 511,                    // the last there is
  };
  for (const DeviceAddress place : places) device->place_next_segment(place);
  for (const DeviceAddress place : places) {
    EXPECT_EQ(device->allocate_segment(2_MiB).value(), place);
    EXPECT_EQ(broken(*device), "");
  }
  EXPECT_EQ(device->allocate_segment(2_MiB).value(), invented - 6_MiB) << "invented goes around";
  for (const DeviceAddress place : places) EXPECT_TRUE(device->free_segment(place));
  EXPECT_EQ(device->allocate_segment(4_MiB).value(), invented - 4_MiB) << "usable again";
  EXPECT_EQ(broken(*device), "");
}

TEST(MetaDevice, PlacedSegmentsMayCrossTheArenasEdges) {
  const auto device = MetaDevice::create();
  const auto top = device->allocate_segment(2_MiB).value() + 2_MiB;
  for (const DeviceAddress place : {1_TiB - 4_MiB, top}) {
    device->place_next_segment(place);
    ASSERT_TRUE(device->allocate_segment(8_MiB));
  }
  ASSERT_TRUE(device->free_segment(top - 2_MiB));
  ASSERT_TRUE(device->free_segment(top));
  device->place_next_segment(top - 4_MiB);
  ASSERT_TRUE(device->allocate_segment(6_MiB));
  EXPECT_EQ(broken(*device), "");
}

TEST(MetaDevice, PlacesOfSmallSegmentsMayTouch) {
  const auto device = MetaDevice::create();
  for (const DeviceAddress place : {5_TiB + 512, 5_TiB + 1024, 5_TiB}) {
    device->place_next_segment(place);
    EXPECT_EQ(device->allocate_segment(512).value(), place);
  }
  ASSERT_TRUE(device->free_segment(5_TiB + 512));
  EXPECT_EQ(broken(*device), "");
}

TEST(MetaDevice, RefusesATakenPlaceAndKeepsItInLine) {
  const auto device = MetaDevice::create({.capacity_bytes = 8_MiB});
  const DeviceAddress segment = device->allocate_segment(4_MiB).value();
  const DeviceAddress range = device->reserve_addresses(4_MiB).value();
  device->place_next_segment(segment + 2_MiB);
  EXPECT_EQ(device->allocate_segment(2_MiB).error(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(device->free_segment(segment));
  EXPECT_EQ(device->allocate_segment(2_MiB).value(), segment + 2_MiB) << "asked again";

  for (const DeviceAddress bad :
       {range, range + 2_MiB, range - 512, DeviceAddress{0}, UINT64_MAX - 511, segment + 1}) {
    device->place_next_segment(bad);
    EXPECT_EQ(device->allocate_segment(1_MiB).error(), StatusCode::kInvalidArgument) << bad;
    device->forget_places();
  }
  device->place_next_segment(10_TiB);
  EXPECT_EQ(device->allocate_segment(7_MiB).error(), StatusCode::kOutOfMemory);
  EXPECT_EQ(device->allocate_segment(6_MiB).value(), 10_TiB) << "room was made or the size cut";

  for (const DeviceAddress bad : {range, segment + 2_MiB, 10_TiB, 11_TiB + 1_MiB, 0_TiB}) {
    device->place_next_reservation(bad);
    EXPECT_EQ(device->reserve_addresses(2_MiB).error(), StatusCode::kInvalidArgument) << bad;
    device->forget_places();
  }
  device->place_next_reservation(11_TiB);
  EXPECT_EQ(device->reserve_addresses(2_MiB).value(), 11_TiB);
  EXPECT_EQ(broken(*device), "");
}

TEST(MetaDevice, AdoptedStreamsKeepTheirNumber) {
  const auto device = MetaDevice::create();
  const NativeStream native = 0x55d0'1234'5678;
  EXPECT_EQ(device->adopt_stream(native).value(), StreamId{native});
  EXPECT_EQ(device->adopt_stream(native).value(), StreamId{native}) << "the same again";
  EXPECT_EQ(device->adopt_stream(0).value(), StreamId::kDefault);
  ASSERT_TRUE(device->release_stream(StreamId{native}));
  EXPECT_FALSE(device->synchronize_stream(StreamId{native}));
  EXPECT_EQ(device->adopt_stream(native).value(), StreamId{native}) << "made anew by its owner";
  EXPECT_TRUE(device->synchronize_stream(StreamId{native}));
}

TEST(MetaDevice, CreatedStreamsAvoidAdoptedNumbers) {
  const auto device = MetaDevice::create();
  const auto near = to_integer(device->create_stream().value());
  for (NativeStream native = near + 1; native < near + 100; ++native) {
    ASSERT_TRUE(device->adopt_stream(native));
  }
  EXPECT_GE(to_integer(device->create_stream().value()), near + 100);
}

TEST(MetaDevice, EventsCompleteAtOnce) {
  const auto device = MetaDevice::create();
  const EventId event = device->record_event(StreamId::kDefault).value();
  EXPECT_TRUE(device->query_event(event).value());
  EXPECT_TRUE(device->complete_event(event)) << "nothing to do, and no mistake";
}

TEST(MetaDevice, EventsCompleteByHandInStreamOrder) {
  const auto device = MetaDevice::create({.events = EventCompletion::kByHand});
  const StreamId stream = device->create_stream().value();
  const StreamId other = device->create_stream().value();
  std::array<EventId, 4> events{};
  for (EventId& event : events) event = device->record_event(stream).value();
  const EventId apart = device->record_event(other).value();
  const auto completed = [&] {
    int count = 0;
    for (const EventId event : events) count += device->query_event(event).value() ? 1 : 0;
    return count;
  };
  EXPECT_EQ(completed(), 0);
  ASSERT_TRUE(device->wait_event(other, events[3]));
  EXPECT_EQ(completed(), 0) << "a wait on the device is not a wait of the host";
  ASSERT_TRUE(device->complete_event(events[1]));
  EXPECT_EQ(completed(), 2) << "what was recorded before is complete too";
  ASSERT_TRUE(device->complete_event(events[0]));
  EXPECT_EQ(completed(), 2) << "completing an earlier one takes nothing back";
  ASSERT_TRUE(device->synchronize_event(events[2]));
  EXPECT_EQ(completed(), 3) << "the host waited for it";
  ASSERT_TRUE(device->release_stream(stream));
  const EventId late = device->record_event(stream).value();
  EXPECT_FALSE(device->query_event(late).value());
  ASSERT_TRUE(device->complete_events(stream));
  EXPECT_EQ(completed(), 4);
  EXPECT_TRUE(device->query_event(late).value());
  EXPECT_FALSE(device->query_event(apart).value());
  ASSERT_TRUE(device->synchronize_stream(other));
  EXPECT_TRUE(device->query_event(apart).value());
  EXPECT_FALSE(device->query_event(device->record_event(other).value()).value());
}

TEST(MetaDevice, CompletingSaysWhatItDoesNotKnow) {
  const auto device = MetaDevice::create({.events = EventCompletion::kByHand});
  const auto elsewhere = MetaDevice::create();
  const auto stream = device->complete_events(elsewhere->create_stream().value());
  ASSERT_FALSE(stream);
  EXPECT_EQ(stream.error(), StatusCode::kUnknownHandle);
  EXPECT_STREQ(stream.error().call, "complete_events");
  const auto event = device->complete_event(elsewhere->record_event(StreamId::kDefault).value());
  ASSERT_FALSE(event);
  EXPECT_EQ(event.error(), StatusCode::kUnknownHandle);
  EXPECT_STREQ(event.error().call, "complete_event");
}

TEST(MetaDevice, HasNoValues) {
  const auto device = MetaDevice::create();
  const DeviceAddress segment = device->allocate_segment(1_KiB).value();
  std::array<char, 16> bytes{};
  EXPECT_TRUE(device->copy_to_device(segment, bytes.data(), bytes.size(), StreamId::kDefault));
  const auto back = device->copy_to_host(bytes.data(), segment, 16, StreamId::kDefault);
  EXPECT_EQ(to_string(back.error()),
            "copy_to_host: not supported: a meta device has addresses only, no values to copy");
  EXPECT_EQ(device->copy_to_host(bytes.data(), segment, 1_KiB + 1, StreamId::kDefault).error(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(device->measure().error(), StatusCode::kNotSupported);
  EXPECT_TRUE(device->processes().value().empty());
}

TEST(MetaDevice, HostTasksRunInlineAndMayCallTheDevice) {
  const auto device = MetaDevice::create();
  struct Work {
    Device* device;
    bool done = false;
  } work{device.get()};
  const HostTask task{[](void* data) noexcept {
                        auto& w = *static_cast<Work*>(data);
                        w.done = w.device->allocate_segment(1).has_value();
                      },
                      &work};
  ASSERT_TRUE(device->enqueue_host(StreamId::kDefault, task));
  EXPECT_TRUE(work.done);
}

// --- restore ---------------------------------------------------------------------------------

// Reservations with an alias, a released mapping, a gap, and pages that are not mapped.
MetaState some_state() {
  return {.segments = {{2_TiB, 20_MiB}, {3_TiB, 512}},
          .reservations = {{.address = 4_TiB,
                            .size_bytes = 32_MiB,
                            .pages = {{4_TiB + 2 * kMetaPage, kMetaPage, PageHandle{7}},
                                      {4_TiB + 6 * kMetaPage, 2 * kMetaPage, PageHandle{9}, true}}},
                           {.address = 5_TiB,
                            .size_bytes = 8_MiB,
                            .pages = {{5_TiB, kMetaPage, PageHandle{7}},
                                      {5_TiB + kMetaPage, kMetaPage, PageHandle::kNone}}}},
          .unmapped_pages = {{4 * kMetaPage, PageHandle{11}}},
          .streams = {StreamId{0x1000}, StreamId{0x2000}}};
}
constexpr std::uint64_t kSomeStateBytes = 20_MiB + 512 + (1 + 2 + 1 + 4) * kMetaPage;

// Everything but the names of handles, which are new after a restore.
std::string print(const MetaState& state) {
  std::string out;
  std::vector<PageHandle> seen;
  const auto name = [&](PageHandle handle) {
    const auto it = std::find(seen.begin(), seen.end(), handle);
    const auto index = it - seen.begin();
    if (it == seen.end()) seen.push_back(handle);
    return std::to_string(index);
  };
  for (const auto& segment : state.segments) {
    out += "segment " + format_count(segment.address) + " " + format_bytes(segment.size_bytes);
  }
  for (const auto& range : state.reservations) {
    out += "\nrange " + format_count(range.address) + " " + format_bytes(range.size_bytes);
    for (const auto& pages : range.pages) {
      out += "\n  " + format_count(pages.address) + " " + format_bytes(pages.size_bytes) +
             " handle " + name(pages.handle) + (pages.is_released ? " released" : "");
    }
  }
  for (const auto& pages : state.unmapped_pages) out += "\n" + format_bytes(pages.size_bytes);
  for (const StreamId stream : state.streams) out += "\n" + format_count(to_integer(stream));
  return out;
}

TEST(MetaDevice, RestoresAState) {
  const auto device = MetaDevice::create({.capacity_bytes = kSomeStateBytes});
  const auto restored = device->restore(some_state()).value();
  ASSERT_EQ(restored.size(), 5U);
  EXPECT_EQ(restored[0].address, 4_TiB + 2 * kMetaPage);
  EXPECT_EQ(restored[0].handle, restored[2].handle) << "an alias";
  EXPECT_EQ(restored[4].address, 0U);
  EXPECT_EQ(broken(*device), "");
  EXPECT_EQ(device->memory_info().value().free_bytes, 0U);
  EXPECT_TRUE(device->synchronize_stream(StreamId{0x2000}));
  EXPECT_TRUE(device->owns_range(5_TiB, 2 * kMetaPage));

  EXPECT_EQ(device->release_pages(restored[1].handle).error(), StatusCode::kUnknownHandle)
      << "it was released before";
  ASSERT_TRUE(device->unmap_pages(4_TiB, 32_MiB));
  EXPECT_EQ(device->memory_info().value().free_bytes, 2 * kMetaPage);
  ASSERT_TRUE(device->unmap_pages(5_TiB, kMetaPage));
  ASSERT_TRUE(device->release_pages(restored[2].handle));
  EXPECT_EQ(device->memory_info().value().free_bytes, 3 * kMetaPage);
  ASSERT_TRUE(device->free_segment(3_TiB));
  EXPECT_EQ(broken(*device), "");
}

TEST(MetaDevice, StateAndRestoreAreARoundTrip) {
  const auto first = MetaDevice::create();
  ASSERT_TRUE(first->restore(some_state()));
  const MetaState state = first->state();
  const auto second = MetaDevice::create();
  ASSERT_TRUE(second->restore(state));
  EXPECT_EQ(print(second->state()), print(state));
  EXPECT_EQ(state.streams, some_state().streams);
  EXPECT_EQ(state.unmapped_pages.size(), 1U);
  EXPECT_EQ(print(MetaDevice::create()->state()), "");
}

TEST(MetaDevice, RefusesAStateThatCannotBeAndStaysEmpty) {
  const auto reservation = [](std::uint64_t offset, std::uint64_t size, PageHandle handle = {}) {
    return MetaState{.reservations = {{.address = 4_TiB,
                                       .size_bytes = 8 * kMetaPage,
                                       .pages = {{4_TiB + kMetaPage, 2 * kMetaPage, PageHandle{3}},
                                                 {4_TiB + offset, size, handle}}}}};
  };
  MetaState released_alias = reservation(5 * kMetaPage, 2 * kMetaPage, PageHandle{3});
  released_alias.reservations[0].pages[1].is_released = true;
  const struct {
    const char* what;
    MetaState state;
    StatusCode code;
  } cases[] = {
      {"capacity", {.segments = {{1_TiB, 80_GiB}, {2_TiB, 1}}}, StatusCode::kOutOfMemory},
      {"overlap", {.segments = {{1_TiB, 4_MiB}, {1_TiB + 2_MiB, 1}}}, StatusCode::kInvalidArgument},
      {"no size", {.segments = {{1_TiB, 0}}}, StatusCode::kInvalidArgument},
      {"absurd size", {.segments = {{1_TiB, kAbsurdSize}}}, StatusCode::kInvalidArgument},
      {"odd segment", {.segments = {{1_TiB + 8, 8}}}, StatusCode::kInvalidArgument},
      {"at null", {.segments = {{0, 8}}}, StatusCode::kInvalidArgument},
      {"odd range", {.reservations = {{1_TiB + 512, kMetaPage}}}, StatusCode::kInvalidArgument},
      {"odd range size", {.reservations = {{1_TiB, 512}}}, StatusCode::kInvalidArgument},
      {"endless range", {.reservations = {{1_TiB, 129_TiB}}}, StatusCode::kOutOfAddressSpace},
      {"segment in range",
       {.segments = {{1_TiB, 8}}, .reservations = {{1_TiB, kMetaPage}}},
       StatusCode::kInvalidArgument},
      {"overlapping pages", reservation(2 * kMetaPage, kMetaPage), StatusCode::kInvalidArgument},
      {"pages past the end",
       reservation(7 * kMetaPage, 2 * kMetaPage),
       StatusCode::kInvalidArgument},
      {"pages outside", reservation(8 * kMetaPage, kMetaPage), StatusCode::kInvalidArgument},
      {"pages before", reservation(-kMetaPage, kMetaPage), StatusCode::kInvalidArgument},
      {"odd pages", reservation(5 * kMetaPage + 8, kMetaPage), StatusCode::kInvalidArgument},
      {"odd page size", reservation(5 * kMetaPage, 8), StatusCode::kInvalidArgument},
      {"another size",
       reservation(5 * kMetaPage, kMetaPage, PageHandle{3}),
       StatusCode::kInvalidArgument},
      {"released alias", released_alias, StatusCode::kInvalidArgument},
      {"unmapped twice",
       {.unmapped_pages = {{kMetaPage, PageHandle{3}}, {kMetaPage, PageHandle{3}}}},
       StatusCode::kInvalidArgument},
      {"unmapped size", {.unmapped_pages = {{8}}}, StatusCode::kInvalidArgument},
  };
  const auto device = MetaDevice::create({.capacity_bytes = 80_GiB});
  for (const auto& [what, state, code] : cases) {
    MetaState with_stream = state;
    with_stream.streams.push_back(StreamId{77});
    const auto restored = device->restore(with_stream);
    ASSERT_FALSE(restored) << what;
    EXPECT_EQ(restored.error().code, code) << what << ": " << to_string(restored.error());
    EXPECT_STREQ(restored.error().call, "restore");
    EXPECT_EQ(print(device->state()), "") << what;
    EXPECT_EQ(broken(*device), "") << what;
  }
  EXPECT_TRUE(device->restore(some_state())) << "still usable";
  const auto again = device->restore(some_state());
  EXPECT_EQ(again.error(), StatusCode::kInvalidArgument) << "it holds memory";
}

// --- many ------------------------------------------------------------------------------------

// Quadratic behaviour would take minutes here.
TEST(MetaDevice, TellsAWatchWhatADriverTakesTimeForHandleByHandle) {
  struct Log final : CallWatch {
    void device_called(Call call, std::uint64_t size_bytes) noexcept override {
      calls.emplace_back(call, size_bytes);
    }
    std::vector<std::pair<Call, std::uint64_t>> calls{};
  } log;
  const auto device = MetaDevice::create({.capacity_bytes = 64_MiB});
  device->set_watch(&log);
  const DeviceAddress segment = device->allocate_segment(3_MiB).value();
  ASSERT_TRUE(device->free_segment(segment));
  const DeviceAddress range = device->reserve_addresses(32_MiB).value();
  const std::array handles{device->create_pages(2_MiB).value(),
                           device->create_pages(20_MiB).value()};
  EXPECT_FALSE(device->create_pages(1_GiB));
  ASSERT_TRUE(device->map_pages(range, handles));
  EXPECT_FALSE(device->map_pages(range, handles));
  ASSERT_TRUE(device->unmap_pages(range, 32_MiB));
  ASSERT_TRUE(device->release_pages(handles[1]));
  device->set_watch(nullptr);
  ASSERT_TRUE(device->release_pages(handles[0]));
  const std::vector<std::pair<Call, std::uint64_t>> expected{{Call::kAllocateSegment, 3_MiB},
                                                             {Call::kFreeSegment, 3_MiB},
                                                             {Call::kCreatePages, 2_MiB},
                                                             {Call::kCreatePages, 20_MiB},
                                                             {Call::kMapPages, 2_MiB},
                                                             {Call::kMapPages, 20_MiB},
                                                             {Call::kUnmapPages, 2_MiB},
                                                             {Call::kUnmapPages, 20_MiB},
                                                             {Call::kReleasePages, 20_MiB}};
  EXPECT_EQ(log.calls, expected);
}

TEST(MetaDevice, StaysFastWithTensOfThousandsOfSegments) {
  for (const AddressOrder order : {AddressOrder::kDescending, AddressOrder::kAscending}) {
    const auto device = MetaDevice::create({.capacity_bytes = 1_TiB, .addresses = order});
    std::vector<DeviceAddress> segments;
    // Odd sizes leave a sliver before every segment.
    for (int i = 0; i < 40'000; ++i) {
      segments.push_back(device->allocate_segment(1_MiB + 512).value());
    }
    for (std::size_t i = 0; i < segments.size(); i += 2) {
      ASSERT_TRUE(device->free_segment(segments[i]));
    }
    for (int i = 0; i < 20'000; ++i) ASSERT_TRUE(device->allocate_segment(3_MiB));
    for (std::size_t i = 0; i < segments.size(); i += 2) {
      ASSERT_EQ(device->allocate_segment(1_MiB + 512).value(), segments[i]) << "first fit";
    }
    EXPECT_EQ(broken(*device), "");
  }
}

// Random segments and reservations, half of them at places of our own, against the invariants.
TEST(MetaDevice, KeepsItsBooksUnderRandomPlaces) {
  const unsigned seed = testing::test_seed();
  SCOPED_TRACE(testing::seed_text(seed));
  std::mt19937 random(seed);
  const auto device = MetaDevice::create(
      {.capacity_bytes = 1_GiB,
       .profile = {.granularity_bytes = 64_KiB, .segment_alignment_bytes = 4_KiB},
       .addresses = seed % 2 == 0 ? AddressOrder::kDescending : AddressOrder::kAscending});
  const std::uint64_t edge = seed % 2 == 0 ? 127_TiB : 1_TiB;
  for (int step = 0; step < 5'000; ++step) {
    const DeviceAddress place = edge - 1_MiB + random() % 4096 * 512;
    const std::uint64_t size = 1 + random() % 100'000;
    device->forget_places();
    switch (random() % 5) {
      case 0:
        device->place_next_segment(place);
        [[fallthrough]];
      case 1:
        (void)device->allocate_segment(size);
        break;
      case 2:
        if (random() % 2 == 0) device->place_next_reservation(place - place % 64_KiB);
        (void)device->reserve_addresses(size % 4 * 64_KiB);
        break;
      default: {
        const MetaState now = device->state();
        if (random() % 2 == 0 && !now.segments.empty()) {
          ASSERT_TRUE(device->free_segment(now.segments[random() % now.segments.size()].address));
        } else if (!now.reservations.empty()) {
          ASSERT_TRUE(device->release_addresses(
              now.reservations[random() % now.reservations.size()].address));
        }
      }
    }
    ASSERT_EQ(broken(*device), "") << "step " << step;
  }
}

}  // namespace
}  // namespace headroom::device
