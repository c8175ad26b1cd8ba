#include "headroom/device/internal/ledger.h"

#include <array>
#include <random>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"

#include "tests/device/small_device.h"

namespace headroom::device::internal {
namespace {

constexpr DeviceAddress kBase = 1_GiB;

Ledger small_ledger() {
  return Ledger({.capacity_bytes = 1_MiB,
                 .granularity_bytes = kPage,
                 .max_reservation_bytes = 16_MiB,
                 .max_mappings = 8});
}

std::vector<PageRecord> unmap_all(Ledger& ledger, DeviceAddress address, std::uint64_t size) {
  const auto mappings = ledger.mappings_in(address, size).value();
  std::vector<PageRecord> dead;
  dead.reserve(mappings.size());
  ledger.unmap(mappings, dead);
  return dead;
}

TEST(Ledger, SegmentsCountAgainstTheCapacity) {
  Ledger ledger = small_ledger();
  ASSERT_TRUE(ledger.add_segment(kBase, 1_MiB));
  EXPECT_EQ(ledger.add_segment(kBase + 2_MiB, 1).error().code, StatusCode::kOutOfMemory);
  ledger.remove_segment(kBase);
  EXPECT_EQ(ledger.used_bytes(), 0U);
}

TEST(Ledger, PagesLiveUntilReleasedAndUnmapped) {
  Ledger ledger = small_ledger();
  ASSERT_TRUE(ledger.add_reservation(kBase, 1_MiB));
  const PageHandle handle = ledger.add_pages(kPage, 7).value();
  ASSERT_TRUE(ledger.map(kBase, std::array{handle}));
  EXPECT_EQ(ledger.release_pages(handle).value(), std::nullopt) << "still mapped";
  EXPECT_EQ(ledger.used_bytes(), kPage);
  EXPECT_FALSE(ledger.map(kBase + kPage, std::array{handle})) << "released handles map no more";
  const auto dead = unmap_all(ledger, kBase, kPage);
  ASSERT_EQ(dead.size(), 1U);
  EXPECT_EQ(dead[0].backing, 7U);
  EXPECT_EQ(ledger.used_bytes(), 0U);
}

TEST(Ledger, OneHandleMayBeMappedTwiceButNotOverItself) {
  Ledger ledger = small_ledger();
  ASSERT_TRUE(ledger.add_reservation(kBase, 1_MiB));
  const PageHandle handle = ledger.add_pages(kPage, 0).value();
  ASSERT_TRUE(ledger.map(kBase, std::array{handle, handle}));
  EXPECT_FALSE(ledger.map(kBase + kPage, std::array{handle}));
  EXPECT_TRUE(ledger.owns_range(kBase, 2 * kPage));
  EXPECT_FALSE(ledger.owns_range(kBase, 2 * kPage + 1));
  EXPECT_EQ(ledger.check_invariants(), std::nullopt);
}

TEST(Ledger, RefusesHalfMappingsAndMappedReservations) {
  Ledger ledger = small_ledger();
  ASSERT_TRUE(ledger.add_reservation(kBase, 1_MiB));
  const PageHandle handle = ledger.add_pages(2 * kPage, 0).value();
  ASSERT_TRUE(ledger.map(kBase, std::array{handle}));
  EXPECT_FALSE(ledger.mappings_in(kBase, kPage));
  EXPECT_FALSE(ledger.mappings_in(kBase + kPage, kPage));
  EXPECT_FALSE(ledger.mappings_in(kBase + 2 * kPage, kPage)) << "nothing there";
  EXPECT_FALSE(ledger.reservation_size(kBase));
}

TEST(Ledger, CountsMappingsAndAddresses) {
  Ledger ledger = small_ledger();
  EXPECT_EQ(ledger.add_reservation(kBase, 17_MiB).error().code, StatusCode::kOutOfAddressSpace);
  ASSERT_TRUE(ledger.add_reservation(kBase, 16_MiB));
  const PageHandle handle = ledger.add_pages(kPage, 0).value();
  const std::vector<PageHandle> nine(9, handle);
  EXPECT_EQ(ledger.map(kBase, nine).error().code, StatusCode::kTooManyMappings);
  EXPECT_EQ(ledger.mapping_count(), 0U) << "all or nothing";
}

TEST(Ledger, ManyAliasesDoNotWrapAround) {
  Ledger ledger({.capacity_bytes = kAbsurdSize,
                 .granularity_bytes = kPage,
                 .max_reservation_bytes = 16_MiB,
                 .max_mappings = 1000});
  ASSERT_TRUE(ledger.add_reservation(kBase, 16_MiB));
  const PageHandle handle = ledger.add_pages(kAbsurdSize / 2, 0).value();
  const std::vector<PageHandle> aliases(32, handle);  // 2^64 bytes in all
  EXPECT_EQ(ledger.map(kBase, aliases).error().code, StatusCode::kInvalidArgument);
  EXPECT_EQ(ledger.check_invariants(), std::nullopt);
}

// Random calls, most of them wrong, against the invariants.
TEST(Ledger, KeepsItsInvariantsUnderRandomCalls) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Ledger ledger = small_ledger();
  std::vector<PageHandle> handles;
  const auto address = [&] { return kBase + (random() % 64) * kPage; };
  for (int step = 0; step < 20'000; ++step) {
    switch (random() % 7) {
      case 0:
        (void)ledger.add_reservation(address(), (1 + random() % 16) * kPage);
        break;
      case 1:
        if (const auto at = address(); ledger.reservation_size(at)) ledger.remove_reservation(at);
        break;
      case 2:
        if (auto made = ledger.add_pages((1 + random() % 3) * kPage, 0)) handles.push_back(*made);
        break;
      case 3:
        if (!handles.empty()) (void)ledger.release_pages(handles[random() % handles.size()]);
        break;
      case 4:
        if (!handles.empty()) {
          (void)ledger.map(
              address(),
              std::array{handles[random() % handles.size()], handles[random() % handles.size()]});
        }
        break;
      case 5: {
        const auto at = address();
        const auto size = (1 + random() % 8) * kPage;
        if (ledger.mappings_in(at, size)) unmap_all(ledger, at, size);
        break;
      }
      default:
        if (const auto at = address(); ledger.segment_size(at)) {
          ledger.remove_segment(at);
        } else {
          (void)ledger.add_segment(at, (1 + random() % 4) * kPage);
        }
    }
    ASSERT_EQ(ledger.check_invariants(), std::nullopt) << "step " << step;
  }
}

}  // namespace
}  // namespace headroom::device::internal
