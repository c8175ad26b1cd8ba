// Programs people write, and what PyTorch 2.11 on an H200 reports after each of their steps.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/cuda/cuda_device.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/caching/caching_allocator.h"

namespace headroom::memory {
namespace {

// A step makes and drops tensors by name, and then the program prints. What a library takes by
// itself is a tensor too: a cuBLAS workspace is 32 MiB on that card, a cuBLASLt one 1 MiB.
struct Step {
  std::vector<std::pair<const char*, std::uint64_t>> made{};
  std::vector<const char*> dropped{};
  bool empties_cache = false;
  std::uint64_t allocated = 0;
  std::uint64_t reserved = 0;
  std::uint64_t peak_allocated = 0;
  std::uint64_t peak_reserved = 0;
};

struct Program {
  const char* name;
  std::vector<Step> steps;
};

constexpr std::uint64_t floats(std::uint64_t n) { return 4 * n; }

const std::vector<Program>& programs() {
  static const std::vector<Program> kPrograms{
      {"x = randn(1024, 1024).cuda(); y = x * 2; del x",
       {{.made = {{"x", floats(1024 * 1024)}},
         .allocated = 4194304,
         .reserved = 20971520,
         .peak_allocated = 4194304,
         .peak_reserved = 20971520},
        {.made = {{"y", floats(1024 * 1024)}},
         .allocated = 8388608,
         .reserved = 20971520,
         .peak_allocated = 8388608,
         .peak_reserved = 20971520},
        {.dropped = {"x"},
         .allocated = 4194304,
         .reserved = 20971520,
         .peak_allocated = 8388608,
         .peak_reserved = 20971520}}},
      // A first y of 1024 x 1024 does not fit the product; the second y comes before it goes.
      {"z = x @ y; del x, y",
       {{.made = {{"x", floats(2048 * 2048)},
                  {"small y", floats(1024 * 1024)},
                  {"y", floats(2048 * 2048)}},
         .dropped = {"small y"},
         .allocated = 33554432,  // not printed by the program
         .reserved = 37748736,
         .peak_allocated = 37748736,
         .peak_reserved = 37748736},
        {.made = {{"z", floats(2048 * 2048)}, {"workspace", 32_MiB}},
         .allocated = 83886080,
         .reserved = 88080384,
         .peak_allocated = 83886080,
         .peak_reserved = 88080384},
        {.dropped = {"x", "y"},
         .allocated = 50331648,
         .reserved = 88080384,
         .peak_allocated = 83886080,
         .peak_reserved = 88080384}}},
      {"10 GiB ahead, three tensors of 1000 x 1000, del the 10 GiB",
       {{.made = {{"ahead", 10_GiB}},
         .allocated = 10737418240,
         .reserved = 10737418240,
         .peak_allocated = 10737418240,
         .peak_reserved = 10737418240},
        {.made = {{"a", floats(1000 * 1000)},
                  {"b", floats(1000 * 1000)},
                  {"c", floats(1000 * 1000)},
                  {"workspace", 32_MiB}},
         .allocated = 10782973440,
         .reserved = 10791944192,
         .peak_allocated = 10782973440,
         .peak_reserved = 10791944192},
        {.dropped = {"ahead"},
         .allocated = 45555200,
         .reserved = 10791944192,
         .peak_allocated = 10782973440,
         .peak_reserved = 10791944192}}},
      {"x = randn(1024, 1024, 1024); y = x.sin(); del x, y; empty_cache",
       {{.made = {{"x", floats(1024 * 1024 * 1024)}, {"y", floats(1024 * 1024 * 1024)}},
         .allocated = 8589934592,
         .reserved = 8589934592,
         .peak_allocated = 8589934592,
         .peak_reserved = 8589934592},
        {.dropped = {"x", "y"},
         .empties_cache = true,
         .allocated = 0,
         .reserved = 0,
         .peak_allocated = 8589934592,
         .peak_reserved = 8589934592}}},
      {"Linear(1000, 10) without gradients",
       {{.made = {{"weight", floats(1000 * 10)},
                  {"bias", floats(10)},
                  {"input", floats(1000)},
                  {"output", floats(10)},
                  {"workspace", 32_MiB},
                  {"Lt workspace", 1_MiB}},
         .allocated = 34648576,
         .reserved = 35651584,
         .peak_allocated = 34648576,
         .peak_reserved = 35651584}}}};
  return kPrograms;
}

#if defined(HEADROOM_TEST_CUDA)
// The card itself, where there is one with room.
std::unique_ptr<device::Device> make_card(std::string& why_none) {
  constexpr std::uint64_t kNeeded = 12_GiB;
  auto card = device::CudaDevice::create();
  if (!card) {
    why_none = card.error();
    return nullptr;
  }
  const auto info = (*card)->memory_info();
  if (!info || info->free_bytes < kNeeded) {
    why_none = info ? "less than 12 GiB of the card are free" : to_string(info.error());
    return nullptr;
  }
  return *std::move(card);
}
#else
// As large as the card on which the numbers were printed.
std::unique_ptr<device::Device> make_card(std::string& /*why_none*/) {
  return device::MetaDevice::create({.capacity_bytes = 150'109'880'320});
}
#endif

TEST(SeedNumbers, AllocatedAndReservedAreWhatPyTorchPrinted) {
  std::string why_none;
  const auto card = make_card(why_none);
  if (card == nullptr) GTEST_SKIP() << why_none;
  for (const Program& program : programs()) {
    SCOPED_TRACE(program.name);
    CachingAllocator allocator(*card, {.version = kPyTorch211});
    std::map<std::string, DeviceAddress> tensors;
    for (std::size_t i = 0; i < program.steps.size(); ++i) {
      SCOPED_TRACE("step " + std::to_string(i + 1));
      const Step& step = program.steps[i];
      for (const auto& [name, size] : step.made) tensors[name] = allocator.allocate(size);
      for (const char* name : step.dropped) allocator.free(tensors.at(name));
      if (step.empties_cache) allocator.empty_cache();
      const Statistics stats = allocator.statistics();
      EXPECT_EQ(stats.allocated_bytes.all.current, static_cast<std::int64_t>(step.allocated));
      EXPECT_EQ(stats.reserved_bytes.all.current, static_cast<std::int64_t>(step.reserved));
      EXPECT_EQ(stats.allocated_bytes.all.peak, static_cast<std::int64_t>(step.peak_allocated));
      EXPECT_EQ(stats.reserved_bytes.all.peak, static_cast<std::int64_t>(step.peak_reserved));
    }
  }
}

}  // namespace
}  // namespace headroom::memory
