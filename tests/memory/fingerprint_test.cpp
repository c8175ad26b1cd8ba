// Two moments with the same fingerprint are followed by the same decisions.
#include "headroom/base/fingerprint.h"

#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/allocator_choice.h"

#include "tests/support/seed.h"

namespace headroom::memory {
namespace {

using headroom::testing::seed_text;
using headroom::testing::test_seed;

TEST(Fingerprint, TellsNumbersAndTheirOrderApart) {
  const auto of = [](std::initializer_list<std::uint64_t> numbers) {
    Fingerprint print;
    for (const std::uint64_t number : numbers) print.add(number);
    return print.value();
  };
  EXPECT_EQ(of({1, 2, 3}), of({1, 2, 3}));
  std::set<std::uint64_t> all;
  for (std::uint64_t a = 0; a < 64; ++a) {
    for (std::uint64_t b = 0; b < 64; ++b) all.insert(of({a << 9U, b << 9U}));
  }
  all.insert({of({}), of({0}), of({0, 0, 0})});
  EXPECT_EQ(all.size(), 64U * 64U + 3U);
}

struct FingerprintWorld {
  explicit FingerprintWorld(const std::string& settings)
      : device(device::MetaDevice::create({.capacity_bytes = 8_GiB})),
        allocator(make_allocator(*device, *parse_choice(settings))) {}
  ~FingerprintWorld() {
    for (const DeviceAddress block : held) allocator->free(block);
  }
  FingerprintWorld(const FingerprintWorld&) = delete;
  FingerprintWorld& operator=(const FingerprintWorld&) = delete;

  void turn(std::uint64_t number) {
    std::mt19937_64 random(number);
    if (held.empty() || random() % 2 == 0) {
      held.push_back(allocator->allocate((64_MiB >> (random() % 16U)) + random() % 5000));
    } else {
      const std::size_t at = random() % held.size();
      allocator->free(held[at]);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }

  std::unique_ptr<device::MetaDevice> device;
  std::unique_ptr<Allocator> allocator;
  std::vector<DeviceAddress> held{};
};

constexpr const char* kSettings[] = {"backend:paged",
                                     "backend:native",
                                     "expandable_segments:True",
                                     "max_split_size_mb:32,garbage_collection_threshold:0.6"};

TEST(AllocatorFingerprint, IsTheSameAfterTheSameRequestsAndMovesWithEach) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed_text(seed));
  for (const char* settings : kSettings) {
    SCOPED_TRACE(settings);
    FingerprintWorld a(settings);
    FingerprintWorld b(settings);
    for (std::uint64_t i = 0; i < 300; ++i) {
      const std::uint64_t before = a.allocator->fingerprint();
      a.turn(seed + i);
      b.turn(seed + i);
      ASSERT_EQ(a.allocator->fingerprint(), b.allocator->fingerprint()) << i;
      ASSERT_NE(a.allocator->fingerprint(), before) << i;
      ASSERT_EQ(a.allocator->fingerprint(), a.allocator->fingerprint());
    }
  }
}

// What a plan relies on.
TEST(AllocatorFingerprint, WhenItComesAgainSoDoesWhatFollows) {
  for (const char* settings : kSettings) {
    SCOPED_TRACE(settings);
    FingerprintWorld world(settings);
    const auto step = [&world] {
      std::vector<DeviceAddress> blocks;
      for (std::uint64_t i = 1; i <= 40; ++i) {
        blocks.push_back(world.allocator->allocate(i * 777'777 % 30'000'000 + 1));
        if (i % 3 == 0) world.allocator->free(std::exchange(blocks[i / 2], 0));
      }
      std::vector<DeviceAddress> given = blocks;
      for (const DeviceAddress block : blocks) world.allocator->free(block);
      world.allocator->mark_step();
      return given;
    };
    std::vector<std::uint64_t> prints;
    std::vector<std::vector<DeviceAddress>> steps;
    for (int i = 0; i < 30; ++i) {
      steps.push_back(step());
      prints.push_back(world.allocator->fingerprint());
    }
    bool has_repeated = false;
    for (std::size_t i = 0; i + 1 < prints.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (prints[i] != prints[j]) continue;
        has_repeated = true;
        ASSERT_EQ(prints[i + 1], prints[j + 1]) << j << " and " << i;
        ASSERT_EQ(steps[i + 1], steps[j + 1]) << j << " and " << i;
      }
    }
    EXPECT_TRUE(has_repeated || std::string(settings).find("garbage") != std::string::npos);
  }
}

}  // namespace
}  // namespace headroom::memory
