// Two backends, the same random calls, right and wrong: they must give the same answers.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/fault_device.h"
#include "headroom/device/meta/meta_device.h"

#include "tests/support/device_backends.h"
#include "tests/support/device_status.h"
#include "tests/support/seed.h"

namespace headroom::device {
namespace {

// The same thing as each of the two devices calls it.
template <class T>
struct Twin {
  T a{};
  T b{};
};

struct Range {
  Twin<DeviceAddress> address;
  std::uint64_t size_bytes = 0;
  bool is_live = true;
};

class LockStep {
 public:
  // `has_exact_capacity`: both have the same bytes free, always.
  LockStep(Device& a, Device& b, bool has_exact_capacity, unsigned seed)
      : a_(a),
        b_(b),
        has_exact_capacity_(has_exact_capacity),
        page_(a.properties().granularity_bytes),
        random_(seed) {}

  // One random call on both; false, with a failure reported, when the answers differ.
  bool step() {
    switch (random_() % 22) {
      case 0:
      case 1:
        return allocate_segment();
      case 2:
        return free_segment();
      case 3:
        return reserve();
      case 4:
        return release_addresses();
      case 5:
      case 6:
        return create_pages();
      case 7:
        return release_pages();
      case 8:
      case 9:
      case 10:
        return map();
      case 11:
      case 12:
        return unmap();
      case 13:
        return create_stream();
      case 14:
        return release_stream();
      case 15:
        return record_event();
      case 16:
      case 17:
        return use_event();
      case 18:
        return use_stream();
      case 19:
      case 20:
        return copy();
      default:
        return pinned();
    }
  }

 private:
  template <class T>
  static std::string answer(const DeviceResult<T>& result) {
    return result ? "done" : std::string(to_string(result.error().code));
  }

  // Whether both gave the same answer and have the same left.
  template <class T>
  bool same(const DeviceResult<T>& a, const DeviceResult<T>& b) {
    const bool is_same = answer(a) == answer(b);
    EXPECT_TRUE(is_same) << to_string(last_call(a, b)) << ": " << answer(a) << " and " << answer(b);
    if (!has_exact_capacity_) return is_same;
    const std::uint64_t free_a = a_.memory_info().value().free_bytes;
    const std::uint64_t free_b = b_.memory_info().value().free_bytes;
    EXPECT_EQ(free_a, free_b);
    return is_same && free_a == free_b;
  }
  template <class T>
  static DeviceStatus last_call(const DeviceResult<T>& a, const DeviceResult<T>& b) {
    return a ? (b ? DeviceStatus{} : b.error()) : a.error();
  }

  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
  bool one_in(unsigned n) { return random_() % n == 0; }

  // Mostly sensible, sometimes not.
  std::uint64_t size(std::uint64_t most, std::uint64_t step) {
    if (one_in(40)) {
      constexpr std::uint64_t kOdd[] = {
          0, 1, kAbsurdSize - 1, kAbsurdSize, kAbsurdSize + 512, UINT64_MAX, 1_TiB, 300_GiB};
      return kOdd[below(std::size(kOdd))];
    }
    return (1 + below(most)) * step;
  }

  // One of `items`, or something that neither device knows.
  template <class T>
  Twin<T> pick(const std::vector<Twin<T>>& items, std::uint64_t stranger) {
    if (items.empty() || one_in(20)) return {static_cast<T>(stranger), static_cast<T>(stranger)};
    return items[below(items.size())];
  }

  // A range that lives, or one that is gone and whose addresses nothing else has on either device.
  const Range* pick_range(const std::vector<Range>& ranges) {
    if (ranges.empty()) return nullptr;
    const Range& range = ranges[below(ranges.size())];
    if (range.is_live) return &range;
    const auto overlaps = [&](const Range& other) {
      const auto meet = [&](DeviceAddress x, DeviceAddress y) {
        return x < y + other.size_bytes && y < x + range.size_bytes;
      };
      return other.is_live &&
             (meet(range.address.a, other.address.a) || meet(range.address.b, other.address.b));
    };
    if (std::any_of(segments_.begin(), segments_.end(), overlaps)) return nullptr;
    if (std::any_of(reservations_.begin(), reservations_.end(), overlaps)) return nullptr;
    return &range;
  }

  bool allocate_segment() {
    const std::uint64_t bytes = size(2'000'000, 1);
    const auto a = a_.allocate_segment(bytes);
    const auto b = b_.allocate_segment(bytes);
    if (a && b) segments_.push_back({{*a, *b}, bytes});
    return same(a, b);
  }

  bool free_segment() {
    const Range* segment = pick_range(segments_);
    if (segment == nullptr) return true;
    // Inside a segment nothing else starts.
    const std::uint64_t offset = one_in(5) ? below(segment->size_bytes) : 0;
    const auto a = a_.free_segment(segment->address.a + offset);
    const auto b = b_.free_segment(segment->address.b + offset);
    if (a && b) segments_[static_cast<std::size_t>(segment - segments_.data())].is_live = false;
    return same(a, b);
  }

  bool reserve() {
    const std::uint64_t bytes = one_in(10) ? 100_GiB : size(32, one_in(20) ? 1000 : page_);
    const auto a = a_.reserve_addresses(bytes);
    const auto b = b_.reserve_addresses(bytes);
    if (a && b) reservations_.push_back({{*a, *b}, bytes});
    return same(a, b);
  }

  bool release_addresses() {
    const Range* range = pick_range(reservations_);
    if (range == nullptr) return true;
    const std::uint64_t offset = one_in(5) ? below(range->size_bytes) : 0;
    const auto a = a_.release_addresses(range->address.a + offset);
    const auto b = b_.release_addresses(range->address.b + offset);
    if (a && b)
      reservations_[static_cast<std::size_t>(range - reservations_.data())].is_live = false;
    return same(a, b);
  }

  bool create_pages() {
    const std::uint64_t bytes = size(4, one_in(20) ? 1000 : page_);
    const auto a = a_.create_pages(bytes);
    const auto b = b_.create_pages(bytes);
    if (a && b) handles_.push_back({*a, *b});
    return same(a, b);
  }

  bool release_pages() {
    const auto handle = pick(handles_, below(2) * UINT64_MAX);
    return same(a_.release_pages(handle.a), b_.release_pages(handle.b));
  }

  bool map() {
    const Range* range = pick_range(reservations_);
    if (range == nullptr) return true;
    const std::uint64_t slots = std::min<std::uint64_t>(range->size_bytes / page_, 64);
    const std::uint64_t offset = below(slots) * page_ + (one_in(20) ? 4096 : 0);
    std::vector<PageHandle> in_a;
    std::vector<PageHandle> in_b;
    for (std::uint64_t i = below(5); i > 0; --i) {
      const auto handle = pick(handles_, 0);
      in_a.push_back(handle.a);
      in_b.push_back(handle.b);
    }
    return same(a_.map_pages(range->address.a + offset, in_a),
                b_.map_pages(range->address.b + offset, in_b));
  }

  bool unmap() {
    const Range* range = pick_range(reservations_);
    if (range == nullptr) return true;
    const std::uint64_t slots = std::min<std::uint64_t>(range->size_bytes / page_, 64);
    const std::uint64_t slot = below(slots);
    // Not past the reservation: the next one is elsewhere on the other device.
    std::uint64_t bytes = (1 + below(slots - slot)) * page_;
    if (one_in(20)) bytes = one_in(2) ? 0 : bytes - 1;
    return same(a_.unmap_pages(range->address.a + slot * page_, bytes),
                b_.unmap_pages(range->address.b + slot * page_, bytes));
  }

  bool create_stream() {
    if (streams_.size() >= 12) return true;
    const auto a = a_.create_stream();
    const auto b = b_.create_stream();
    if (a && b) streams_.push_back({*a, *b});
    return same(a, b);
  }

  // The default stream, one that was made and perhaps released, or a stranger.
  Twin<StreamId> pick_stream() { return one_in(4) ? Twin<StreamId>{} : pick(streams_, UINT64_MAX); }

  bool release_stream() {
    if (!one_in(4)) return true;
    const auto stream = pick_stream();
    return same(a_.release_stream(stream.a), b_.release_stream(stream.b));
  }

  bool record_event() {
    const auto stream = pick_stream();
    const auto a = a_.record_event(stream.a);
    const auto b = b_.record_event(stream.b);
    if (a && b) events_.push_back({*a, *b});
    return same(a, b);
  }

  bool use_event() {
    const auto event = pick(events_, below(2) * UINT64_MAX);
    const auto stream = pick_stream();
    switch (random_() % 4) {
      case 0:
        return same(a_.query_event(event.a), b_.query_event(event.b));
      case 1:
        return same(a_.synchronize_event(event.a), b_.synchronize_event(event.b));
      case 2:
        return same(a_.release_event(event.a), b_.release_event(event.b));
      default:
        return same(a_.wait_event(stream.a, event.a), b_.wait_event(stream.b, event.b));
    }
  }

  bool use_stream() {
    const auto stream = pick_stream();
    static std::atomic<int> ran = 0;
    const HostTask task{.run = one_in(10) ? nullptr : +[](void*) noexcept { ++ran; }};
    switch (random_() % 3) {
      case 0:
        return same(a_.synchronize_stream(stream.a), b_.synchronize_stream(stream.b));
      case 1:
        return same(a_.is_capturing(stream.a), b_.is_capturing(stream.b));
      default:
        return same(a_.enqueue_host(stream.a, task), b_.enqueue_host(stream.b, task));
    }
  }

  // An address and a size within one segment or reservation, and past its end only for a segment,
  // where that is wrong whatever comes next.
  struct Piece {
    Twin<DeviceAddress> address;
    std::uint64_t size_bytes;
  };
  std::optional<Piece> piece() {
    const bool in_segment = one_in(2);
    const Range* range = pick_range(in_segment ? segments_ : reservations_);
    if (range == nullptr) return std::nullopt;
    const std::uint64_t reach = std::min<std::uint64_t>(range->size_bytes, 64 * page_);
    const std::uint64_t offset = one_in(2) ? 0 : below(reach);
    const std::uint64_t left = reach - offset + (in_segment && one_in(10) ? 1 : 0);
    return Piece{{range->address.a + offset, range->address.b + offset},
                 one_in(30) ? 0 : 1 + below(std::min<std::uint64_t>(left, 3 * page_))};
  }

  // Memory must not go while queued work uses it, so the stream is waited for.
  bool copy() {
    const auto to = piece();
    const auto from = piece();
    if (!to || !from) return true;
    const auto stream = pick_stream();
    const std::uint64_t bytes = std::min(to->size_bytes, from->size_bytes);
    host_.resize(std::max<std::size_t>(host_.size(), to->size_bytes));
    bool is_same = true;
    switch (random_() % 5) {
      case 0:
        is_same = same(a_.fill(to->address.a, 1, to->size_bytes, stream.a),
                       b_.fill(to->address.b, 1, to->size_bytes, stream.b));
        break;
      case 1:
        is_same = same(a_.copy_to_device(to->address.a, host_.data(), to->size_bytes, stream.a),
                       b_.copy_to_device(to->address.b, host_.data(), to->size_bytes, stream.b));
        break;
      case 2: {
        auto a = a_.copy_to_host(host_.data(), to->address.a, to->size_bytes, stream.a);
        auto b = b_.copy_to_host(host_.data(), to->address.b, to->size_bytes, stream.b);
        // The one permitted difference: no values on meta.
        if (!a && a.error().code == StatusCode::kNotSupported) a = {};
        if (!b && b.error().code == StatusCode::kNotSupported) b = {};
        is_same = same(a, b);
        break;
      }
      case 3:
        if (overlap(to->address.a, from->address.a, bytes)) return true;
        if (overlap(to->address.b, from->address.b, bytes)) return true;
        is_same = same(a_.copy_within(to->address.a, from->address.a, bytes, stream.a),
                       b_.copy_within(to->address.b, from->address.b, bytes, stream.b));
        break;
      default:
        if (overlap(to->address.a, from->address.a, bytes)) return true;
        if (overlap(to->address.b, from->address.b, bytes)) return true;
        is_same = same(a_.copy_peer(to->address.a, a_, from->address.a, bytes, stream.a),
                       b_.copy_peer(to->address.b, b_, from->address.b, bytes, stream.b));
    }
    return is_same && same(a_.synchronize_stream(stream.a), b_.synchronize_stream(stream.b));
  }
  static bool overlap(DeviceAddress x, DeviceAddress y, std::uint64_t bytes) {
    return x < y + bytes && y < x + bytes;
  }

  bool pinned() {
    if (one_in(2)) {
      const std::uint64_t bytes = one_in(10) ? kAbsurdSize * below(2) : 1 + below(10'000);
      const auto a = a_.allocate_pinned(bytes);
      const auto b = b_.allocate_pinned(bytes);
      if (a && b) pinned_.push_back({*a, *b});
      return same(a, b);
    }
    if (pinned_.empty()) return same(a_.free_pinned(nullptr), b_.free_pinned(nullptr));
    const auto pointer = pinned_.back();
    pinned_.pop_back();
    return same(a_.free_pinned(pointer.a), b_.free_pinned(pointer.b));
  }

  Device& a_;
  Device& b_;
  bool has_exact_capacity_;
  std::uint64_t page_;
  std::mt19937_64 random_;
  std::vector<Range> segments_;
  std::vector<Range> reservations_;
  std::vector<Twin<PageHandle>> handles_;
  std::vector<Twin<StreamId>> streams_;
  std::vector<Twin<EventId>> events_;
  std::vector<Twin<void*>> pinned_;
  std::vector<char> host_;
};

class DeviceLockStep : public testing::DeviceFixture {};
HEADROOM_DEVICE_SUITE(DeviceLockStep, all_backends);

TEST_P(DeviceLockStep, AnswersAsAMetaDeviceOfItsProfileDoes) {
  const unsigned first_seed = testing::test_seed();
  for (unsigned round = 0; round < 10; ++round) {
    const unsigned seed = first_seed + round;
    SCOPED_TRACE(testing::seed_text(seed));
    auto device = make();
    BackendProfile profile = backend().profile;
    profile.granularity_bytes = device->properties().granularity_bytes;
    const auto meta = MetaDevice::create(
        {.capacity_bytes = device->properties().total_bytes,
         .profile = profile,
         .addresses = seed % 2 == 0 ? AddressOrder::kDescending : AddressOrder::kAscending});
    LockStep lock_step(*meta, *device, backend().has_exact_capacity, seed);
    for (int step = 0; step < 3'000; ++step) {
      ASSERT_TRUE(lock_step.step()) << "step " << step;
    }
    EXPECT_EQ(meta->check_invariants(), std::nullopt);
  }
}

}  // namespace
}  // namespace headroom::device
