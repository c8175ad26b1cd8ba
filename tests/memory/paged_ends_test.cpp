// Blocks of a few pages under a limit: windows that begin and end in parts of pages in use
// elsewhere.
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/cpu/cpu_device.h"
#include "headroom/device/fault_device.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/paged/paged_allocator.h"

#include "tests/support/device_status.h"

namespace headroom::memory {
namespace {

using device::MetaDevice;
using device::StatusCode;
using headroom::testing::worked;

struct HeldBlock {
  DeviceAddress address = 0;
  std::uint64_t size = 0;
  std::uint8_t mark = 0;
  StreamId stream{};
};

// Random blocks, of which at most so many bytes are held at a time: before a block is taken, others
// go in random order.
class EndsTraffic {
 public:
  EndsTraffic(std::uint64_t least, std::uint64_t most, std::uint64_t live, unsigned seed)
      : least_(least), most_(most), live_(live), random_(seed) {}

  // Calls free(block) for those that go; returns the size of the next.
  template <class Free>
  std::uint64_t next(Free&& free) {
    const std::uint64_t size = least_ + random_() % (most_ - least_ + 1);
    while (!held_.empty() && sum_ + size > live_) {
      std::swap(held_[random_() % held_.size()], held_.back());
      sum_ -= held_.back().size;
      free(held_.back());
      held_.pop_back();
    }
    return size;
  }
  void hold(HeldBlock block) {
    sum_ += block.size;
    held_.push_back(block);
  }
  [[nodiscard]] std::vector<HeldBlock>& held() { return held_; }
  [[nodiscard]] std::uint64_t draw() { return random_(); }

 private:
  std::uint64_t least_;
  std::uint64_t most_;
  std::uint64_t live_;
  std::mt19937_64 random_;
  std::vector<HeldBlock> held_{};
  std::uint64_t sum_ = 0;
};

// Runs of mapped addresses that begin in the middle of a page: the free end of one that is in use
// elsewhere.
std::size_t count_ends(const Allocator& allocator, std::uint64_t page_bytes) {
  std::size_t count = 0;
  for (const SegmentInfo& segment : allocator.segments()) {
    count += segment.address % page_bytes == 0 ? 0 : 1;
  }
  return count;
}

struct EndsCase {
  const char* name;
  std::uint64_t least;
  std::uint64_t most;
  std::uint64_t live;
  double factor;  // of live, what the limit is, beside 8 MiB
};

class PagedEnds : public ::testing::TestWithParam<EndsCase> {};

TEST_P(PagedEnds, ALimitALittleAboveLiveIsEnough) {
  const EndsCase& c = GetParam();
  const auto card = MetaDevice::create({.capacity_bytes = 64_GiB});
  PagedAllocator allocator(*card);
  allocator.set_limit(static_cast<std::uint64_t>(static_cast<double>(c.live) * c.factor) + 8_MiB);
  EndsTraffic traffic(c.least, c.most, c.live, 7);
  for (int i = 0; i < 3000; ++i) {
    const std::uint64_t size =
        traffic.next([&](const HeldBlock& block) { allocator.free(block.address); });
    const auto block = allocator.try_allocate(size);
    ASSERT_TRUE(block.has_value()) << "request " << i << " of " << size << " bytes";
    traffic.hold({.address = *block, .size = size});
    ASSERT_TRUE(allocator.bound().is_kept());
    if (i % 100 == 0) {
      ASSERT_EQ(allocator.check_invariants(), std::nullopt) << i;
    }
  }
  EXPECT_GT(count_ends(allocator, 2_MiB), 0U);
  // Every byte is seen at one place at most.
  std::uint64_t seen = 0;
  for (const SegmentInfo& segment : allocator.segments()) seen += segment.size_bytes;
  EXPECT_LE(seen, static_cast<std::uint64_t>(allocator.statistics().reserved_bytes.all.current));
  for (const HeldBlock& block : traffic.held()) allocator.free(block.address);
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
  allocator.empty_cache();
  EXPECT_EQ(allocator.statistics().reserved_bytes.all.current, 0);
}

INSTANTIATE_TEST_SUITE_P(Sizes,
                         PagedEnds,
                         ::testing::Values(EndsCase{"From2To4", 2_MiB, 4_MiB, 2_GiB, 1.05},
                                           EndsCase{"From2To4Looser", 2_MiB, 4_MiB, 2_GiB, 1.08},
                                           EndsCase{"From1To5", 1_MiB, 5_MiB, 2_GiB, 1.06}),
                         [](const auto& ends) { return std::string(ends.param.name); });

// Under a limit a program gets the same addresses each time, and mark_step changes nothing of that.
TEST(PagedEndsOfSteps, TheSameRequestsGetTheSameAddresses) {
  const auto run = [] {
    const auto card = MetaDevice::create({.capacity_bytes = 64_GiB});
    PagedAllocator allocator(*card);
    allocator.set_limit(560_MiB);
    EndsTraffic traffic(1_MiB, 5_MiB, 500_MiB, 11);
    std::vector<std::uint64_t> seen;
    for (int i = 0; i < 1500; ++i) {
      const std::uint64_t size =
          traffic.next([&](const HeldBlock& block) { allocator.free(block.address); });
      const auto block = allocator.try_allocate(size);
      if (!block) continue;
      traffic.hold({.address = *block, .size = size});
      seen.push_back(*block);
      if (i % 97 == 96) allocator.mark_step();
      if (i % 31 == 0) seen.push_back(allocator.fingerprint());
    }
    EXPECT_EQ(allocator.check_invariants(), std::nullopt);
    return seen;
  };
  EXPECT_EQ(run(), run());
}

// Two streams fill every byte of their blocks on the cpu device, whose aliases are real, and find
// them again when the block is freed.
TEST(PagedEndsOfData, NoByteIsAnotherBlocks) {
  const auto device =
      device::CpuDevice::create({.capacity_bytes = 64_MiB, .granularity_bytes = 64_KiB});
  PagedAllocator allocator(*device,
                           {.page_bytes = 128_KiB,
                            .large_page_bytes = 512_KiB,
                            .large_from_bytes = 16_MiB,
                            .cushion_fraction = 0,
                            .cushion_bytes = 0});
  allocator.set_limit(17_MiB);
  const std::array streams{StreamId::kDefault, device->create_stream().value()};
  EndsTraffic traffic(64_KiB + 512, 300_KiB, 15_MiB, 3);
  std::vector<std::uint8_t> bytes;
  std::uint64_t wrong = 0;
  std::size_t ends = 0;
  const auto check_and_free = [&](const HeldBlock& block) {
    bytes.assign(block.size, 0);
    EXPECT_TRUE(worked(device->synchronize_stream(block.stream)));
    EXPECT_TRUE(
        worked(device->copy_to_host(bytes.data(), block.address, block.size, block.stream)));
    EXPECT_TRUE(worked(device->synchronize_stream(block.stream)));
    for (const std::uint8_t byte : bytes) wrong += byte == block.mark ? 0 : 1;
    allocator.free(block.address);
  };
  for (int i = 0; i < 1500; ++i) {
    const std::uint64_t size = traffic.next(check_and_free);
    const StreamId stream = streams[traffic.draw() % 4 == 0 ? 1 : 0];
    const auto block = allocator.try_allocate(size, stream);
    if (!block) continue;
    const HeldBlock held{.address = *block,
                         .size = size,
                         .mark = static_cast<std::uint8_t>(1 + i % 251),
                         .stream = stream};
    ASSERT_TRUE(worked(device->fill(held.address, held.mark, held.size, stream)));
    traffic.hold(held);
    if (i % 200 == 0) {
      ASSERT_EQ(allocator.check_invariants(), std::nullopt) << i;
      ends += count_ends(allocator, 64_KiB);
    }
  }
  EXPECT_GT(ends, 0U);
  for (const HeldBlock& block : traffic.held()) check_and_free(block);
  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
}

// Each call of the device fails once: nothing is lost, and what comes after is served.
TEST(PagedEndsOfFaults, EachCallAtEachPositionLosesNothing) {
  const auto run = [](std::uint64_t position, StatusCode code) {
    const auto card = MetaDevice::create({.capacity_bytes = 4_GiB});
    device::FaultDevice faulty(*card);
    PagedAllocator allocator(faulty);
    allocator.set_limit(120_MiB);
    if (position > 0) faulty.fail_at(position, code);
    EndsTraffic traffic(1_MiB, 5_MiB, 105_MiB, 5);
    std::uint64_t failed = 0;
    for (int i = 0; i < 150; ++i) {
      const std::uint64_t size =
          traffic.next([&](const HeldBlock& block) { allocator.free(block.address); });
      if (const auto block = allocator.try_allocate(size)) {
        traffic.hold({.address = *block, .size = size});
      }
      if (faulty.failed() == failed && i % 50 != 0) continue;
      failed = faulty.failed();
      EXPECT_EQ(allocator.check_invariants(), std::nullopt) << i << ", position " << position;
    }
    const std::uint64_t seen = faulty.seen();
    EXPECT_GT(count_ends(allocator, 2_MiB), 0U);
    faulty.clear();
    for (const HeldBlock& block : traffic.held()) allocator.free(block.address);
    allocator.empty_cache();
    EXPECT_EQ(allocator.check_invariants(), std::nullopt) << "position " << position;
    EXPECT_EQ(allocator.statistics().reserved_bytes.all.current, 0) << "position " << position;
    return seen;
  };
  const std::uint64_t calls = run(0, StatusCode::kFailed);
  for (std::uint64_t position = 1; position <= calls; ++position) {
    run(position, position % 2 == 0 ? StatusCode::kOutOfMemory : StatusCode::kFailed);
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace headroom::memory
