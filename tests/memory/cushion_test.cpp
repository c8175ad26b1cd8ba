// How wide the cushion gets, by a clock that the test moves.
#include "headroom/memory/paged/internal/cushion.h"

#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/paged/paged_allocator.h"

namespace headroom::memory {
namespace {

using internal::Cushion;
using namespace std::chrono_literals;

// A program whose requests move pages for a millisecond each, one every so often.
class Moves {
 public:
  explicit Moves(Cushion& cushion) : cushion_(cushion) {}
  void make(int times, std::chrono::nanoseconds every) {
    for (int i = 0; i < times; ++i, now_ += every) cushion_.record_moves(now_, now_ + 1ms);
  }

 private:
  Cushion& cushion_;
  std::chrono::nanoseconds now_ = 1h;
};

TEST(Cushion, StaysWhereMovesAreASmallPartOfTheTime) {
  Cushion cushion(0.02, 0.15);
  Moves(cushion).make(1000, 20ms);
  EXPECT_EQ(cushion.fraction(), 0.02);
}

TEST(Cushion, DoublesUpToTheWidestWhereMovesAreMoreThanASixteenthOfIt) {
  Cushion cushion(0.02, 0.15);
  Moves moves(cushion);
  moves.make(63, 12ms);
  EXPECT_EQ(cushion.fraction(), 0.02) << "too few to tell";
  moves.make(1, 12ms);
  EXPECT_EQ(cushion.fraction(), 0.04);
  moves.make(64, 12ms);
  EXPECT_EQ(cushion.fraction(), 0.08);
  moves.make(1000, 12ms);
  EXPECT_EQ(cushion.fraction(), 0.15);
  cushion.reset();
  EXPECT_EQ(cushion.fraction(), 0.02);
}

TEST(Cushion, IsWideAtOnceWhereThereIsLittleElse) {
  Cushion cushion(0.02, 0.5);
  Moves moves(cushion);
  moves.make(100, 1ms);
  EXPECT_NEAR(cushion.fraction(), 16 * 0.02, 1e-12);
}

TEST(Cushion, DoesNotJudgeByAMomentOrByAPause) {
  Cushion cushion(0.02, 0.15);
  Moves moves(cushion);
  moves.make(90, 1ms);
  EXPECT_EQ(cushion.fraction(), 0.02) << "not a tenth of a second yet";
  moves.make(1, 10s);
  moves.make(8, 1ms);
  moves.make(1, 1ms);
  EXPECT_EQ(cushion.fraction(), 0.02) << "the pause is time too";
}

TEST(Cushion, OfNothingWidensToo) {
  Cushion cushion(0, 0.15);
  Moves(cushion).make(100, 1ms);
  EXPECT_GT(cushion.fraction(), 0);
}

TEST(Cushion, KeepsItsWidthWhereTimeStandsStillOrNothingWiderIsAllowed) {
  Cushion still(0.02, 0.15);
  for (int i = 0; i < 1000; ++i) still.record_moves(0ns, 0ns);
  EXPECT_EQ(still.fraction(), 0.02);
  Cushion fixed(0.2, 0.15);
  Moves(fixed).make(1000, 1ms);
  EXPECT_EQ(fixed.fraction(), 0.2);
}

// Random blocks that are replaced one by one, on a device where every look at the clock is so much
// later than the last: nothing else takes time there.
class WidthUnderChurn : public ::testing::Test {
 protected:
  // Reserved over live, at their peaks.
  double churn(PagedAllocator& allocator) {
    std::mt19937_64 random(7);
    std::vector<DeviceAddress> held(60);
    for (int i = 0; i < 3000; ++i) {
      DeviceAddress& place = held[random() % held.size()];
      if (place != 0) allocator.free(place);
      place = allocator.allocate(1_MiB + random() % 63_MiB);
    }
    const Statistics stats = allocator.statistics();
    EXPECT_TRUE(allocator.bound().is_kept());
    for (const DeviceAddress address : held) allocator.free(address);
    EXPECT_EQ(allocator.check_invariants(), std::nullopt);
    return static_cast<double>(stats.reserved_bytes.all.peak) /
           static_cast<double>(stats.live_bytes.peak);
  }
  std::chrono::nanoseconds look() {
    now_ += step_;
    return now_;
  }

  std::chrono::nanoseconds now_{};
  std::chrono::nanoseconds step_ = 1ms;
  std::unique_ptr<device::MetaDevice> device_ =
      device::MetaDevice::create({.capacity_bytes = 64_GiB, .clock = [this] { return look(); }});
};

// The same requests took 931 MB on an idle processor and 969 MB on a busy one (#21).
TEST_F(WidthUnderChurn, IsForGpus) {
  const device::BackendProfile cpu = device::cpu_profile();
  const auto busy = device::MetaDevice::create(
      {.capacity_bytes = 64_GiB, .profile = cpu, .clock = [this] { return look(); }});
  const auto idle = device::MetaDevice::create({.capacity_bytes = 64_GiB, .profile = cpu});
  PagedAllocator with_a_clock(*busy);
  PagedAllocator without(*idle);
  EXPECT_EQ(churn(with_a_clock), churn(without));
}

TEST_F(WidthUnderChurn, FollowsTheTimeThatMovesTake) {
  PagedAllocator allocator(*device_, {.widest_cushion_fraction = 0.15});
  const double wide = churn(allocator);
  EXPECT_GT(wide, 1.1);
  EXPECT_LT(wide, 1.16);
}

TEST_F(WidthUnderChurn, IsWhatItWasOnceTheCacheWasGivenBack) {
  PagedAllocator allocator(*device_);
  (void)churn(allocator);
  allocator.empty_cache();
  allocator.reset_peak_statistics();
  step_ = 0ns;
  EXPECT_LT(churn(allocator), 1.04);
}

TEST_F(WidthUnderChurn, StaysNarrowWhereAskedToOrUnderALimit) {
  PagedAllocator fixed(*device_, {.widest_cushion_fraction = 0});
  EXPECT_LT(churn(fixed), 1.04);
  PagedAllocator limited(*device_);
  limited.set_limit(32_GiB);
  EXPECT_LT(churn(limited), 1.04);
}

}  // namespace
}  // namespace headroom::memory
