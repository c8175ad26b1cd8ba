// Many maps, aliases and remaps at random, with every byte's origin known. A model says which
// handle is behind which slot; each handle holds a number of its own, kept at its two ends.
#include <array>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/cpu/cpu_device.h"
#include "headroom/device/cpu/internal/areas.h"

#include "tests/device/small_device.h"
#include "tests/support/sanitized.h"
#include "tests/support/seed.h"

namespace headroom::device {
namespace {

using internal::to_pointer;

// Sanitizers make each step some ten times slower and learn nothing from the last ones.
constexpr int kSteps = headroom::testing::kIsSanitized ? 10'000 : 100'000;

class RemapModel {
 public:
  explicit RemapModel(CpuDevice& device, std::uint64_t seed) : device_(device), random_(seed) {
    base_ = device_.reserve_addresses(kSlots * kPage).value();
    for (Handle& handle : handles_) create(handle);
  }

  // One step unmaps what is in some slots and maps other handles there.
  void step() {
    const std::size_t count = 1 + random_() % 4;
    const std::size_t first = random_() % (kSlots - count + 1);
    bool is_any_mapped = false;
    for (std::size_t slot = first; slot < first + count; ++slot) {
      is_any_mapped |= slots_[slot].has_value();
      slots_[slot].reset();
    }
    ASSERT_EQ(device_.unmap_pages(address(first), count * kPage).has_value(), is_any_mapped);
    if (random_() % 8 == 0) replace(handles_[random_() % kHandles]);

    std::vector<PageHandle> wanted;
    for (std::size_t slot = first; slot < first + count; ++slot) {
      slots_[slot] = random_() % kHandles;
      wanted.push_back(handles_[*slots_[slot]].id);
    }
    ASSERT_TRUE(device_.map_pages(address(first), wanted));
    maps_ += count;
    for (std::size_t slot = first; slot < first + count; ++slot) {
      check(slot);
      // Written through this slot, read through every other one that aliases it.
      Handle& handle = handles_[*slots_[slot]];
      handle.value = random_();
      write(slot, handle.value);
    }
    check(random_() % kSlots);
  }

  void check_all() {
    for (std::size_t slot = 0; slot < kSlots; ++slot) check(slot);
  }

  [[nodiscard]] std::uint64_t maps() const { return maps_; }
  [[nodiscard]] std::uint64_t aliases_seen() const { return aliases_; }

 private:
  static constexpr std::size_t kSlots = 256;
  static constexpr std::size_t kHandles = 96;  // fewer than slots: most slots have an alias

  struct Handle {
    PageHandle id = PageHandle::kNone;
    std::uint64_t value = 0;
  };

  [[nodiscard]] DeviceAddress address(std::size_t slot) const { return base_ + slot * kPage; }

  void create(Handle& handle) {
    handle.id = device_.create_pages(kPage).value();
    handle.value = 0;
  }

  // Released while mapped: the old memory stays behind the slots that have it. They are forgotten
  // by the model and unmapped, so that the capacity holds.
  void replace(Handle& handle) {
    const auto index = static_cast<std::size_t>(&handle - handles_.data());
    ASSERT_TRUE(device_.release_pages(handle.id));
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      if (slots_[slot] != index) continue;
      ASSERT_EQ(read(slot), handle.value);
      ASSERT_TRUE(device_.unmap_pages(address(slot), kPage));
      slots_[slot].reset();
    }
    create(handle);
  }

  void write(std::size_t slot, std::uint64_t value) {
    std::memcpy(to_pointer(address(slot)), &value, sizeof value);
    std::memcpy(to_pointer(address(slot + 1) - sizeof value), &value, sizeof value);
  }

  [[nodiscard]] std::uint64_t read(std::size_t slot) {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    std::memcpy(&low, to_pointer(address(slot)), sizeof low);
    std::memcpy(&high, to_pointer(address(slot + 1) - sizeof high), sizeof high);
    EXPECT_EQ(low, high);
    return low;
  }

  void check(std::size_t slot) {
    if (!slots_[slot]) {
      ASSERT_FALSE(device_.owns_range(address(slot), kPage));
      return;
    }
    ASSERT_EQ(read(slot), handles_[*slots_[slot]].value) << "slot " << slot;
    for (std::size_t other = 0; other < kSlots; ++other) {
      aliases_ += other != slot && slots_[other] == slots_[slot] ? 1 : 0;
    }
  }

  CpuDevice& device_;
  std::mt19937_64 random_;
  DeviceAddress base_ = 0;
  std::array<Handle, kHandles> handles_;
  std::array<std::optional<std::size_t>, kSlots> slots_;
  std::uint64_t maps_ = 0;
  std::uint64_t aliases_ = 0;
};

TEST(CpuRemap, DataIsRightAfterEachOfManyRemaps) {
  const unsigned seed = testing::test_seed();
  SCOPED_TRACE(testing::seed_text(seed));
  const auto device = CpuDevice::create({.capacity_bytes = 16_MiB, .granularity_bytes = kPage});
  RemapModel model(*device, seed);
  while (model.maps() < kSteps && !::testing::Test::HasFatalFailure()) model.step();
  model.check_all();
  EXPECT_GT(model.aliases_seen(), model.maps());
  EXPECT_EQ(device->memory_info().value().free_bytes, 16_MiB - 96 * kPage);
}

}  // namespace
}  // namespace headroom::device
