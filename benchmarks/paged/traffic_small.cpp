// Blocks up to 64 KiB, which share pages.
#include <array>
#include <cstdint>

#include "headroom/base/bytes.h"

#include "benchmarks/paged/blocks.h"
#include "benchmarks/paged/generators.h"

namespace headroom::bench {
namespace {

void random_small(Traffic& traffic) {
  replace_at_random(traffic, 64_MiB, 20'000, [&] { return traffic.random().between(1, 64_KiB); });
}

void small_by_octaves(Traffic& traffic) {
  replace_at_random(
      traffic, 48_MiB, 30'000, [&] { return traffic.random().by_octaves(16, 64_KiB); });
}

// Of each size, pages full of blocks; then all go but one in 2 MiB.
void survivors(Traffic& traffic) {
  Blocks kept(traffic);
  for (std::uint64_t size_bytes = 512; size_bytes <= 64_KiB; size_bytes += size_bytes / 2) {
    Blocks fresh(traffic);
    while (fresh.bytes() < 24_MiB) fresh.add(size_bytes);
    const std::size_t per_page = 2_MiB / size_bytes;
    for (std::size_t i = 0; !fresh.is_empty(); ++i) {
      if (i % per_page == per_page / 2) kept.add(size_bytes);
      fresh.free_first();
    }
  }
  kept.free_all();
}

// The survivors themselves stay where they are.
void survivors_in_place(Traffic& traffic) {
  Blocks kept(traffic);
  for (std::uint64_t size_bytes = 512; size_bytes <= 64_KiB; size_bytes *= 2) {
    const std::size_t per_page = 2_MiB / size_bytes;
    std::deque<Block> fresh;
    for (std::size_t i = 0; i < 16 * per_page; ++i) fresh.push_back(traffic.allocate(size_bytes));
    for (std::size_t i = 0; i < fresh.size(); ++i) {
      if (i % per_page != 0) traffic.free(fresh[i]);
    }
    for (std::size_t i = 0; i < fresh.size(); i += per_page) kept.adopt(fresh[i]);
  }
  kept.free_all();
}

// 5 % of many small blocks stay, then come blocks of 100 MiB.
void few_stay(Traffic& traffic) {
  Random& random = traffic.random();
  Blocks kept(traffic);
  Blocks large(traffic);
  for (int round = 0; round < traffic.times(3); ++round) {
    Blocks fresh(traffic);
    while (fresh.bytes() < 512_MiB) fresh.add(random.between(1_KiB, 64_KiB));
    while (!fresh.is_empty()) {
      if (random.chance(5)) {
        kept.adopt(fresh.take_last());
      } else {
        fresh.free_last();
      }
    }
    for (int i = 0; i < 5; ++i) large.add(100_MiB);
    if (round > 0) large.free_random();
  }
  large.free_all();
  kept.free_all();
}

// 5 % of blocks between 64 KiB and 1 MiB stay, then come blocks of 100 MiB.
void few_medium_stay(Traffic& traffic) {
  Random& random = traffic.random();
  Blocks kept(traffic);
  Blocks large(traffic);
  for (int round = 0; round < traffic.times(3); ++round) {
    Blocks fresh(traffic);
    while (fresh.bytes() < 1_GiB) fresh.add(random.between(64_KiB + 1, 1_MiB));
    while (!fresh.is_empty()) {
      if (random.chance(5)) {
        kept.adopt(fresh.take_last());
      } else {
        fresh.free_last();
      }
    }
    for (int i = 0; i < 8; ++i) large.add(100_MiB);
  }
  large.free_all();
  kept.free_all();
}

// The sizes of one phase are none of the next.
void sizes_by_phase(Traffic& traffic) {
  Random& random = traffic.random();
  for (int round = 0; round < traffic.times(20); ++round) {
    const std::uint64_t size_bytes = random.by_octaves(512, 48_KiB);
    Blocks blocks(traffic);
    while (blocks.bytes() < 24_MiB) blocks.add(random.between(size_bytes, size_bytes * 5 / 4));
    while (blocks.bytes() > 1_MiB) blocks.free_random();
    Blocks next(traffic);
    while (next.bytes() < 24_MiB) next.add(size_bytes / 2 + 16);
    blocks.free_all();
    next.free_all();
  }
}

// A scalar is logged at every step and kept, beside a step that repeats itself.
void kept_scalars(Traffic& traffic) {
  Blocks scalars(traffic);
  for (int step = 0; step < traffic.times(3000); ++step) {
    Blocks saved(traffic);
    for (int layer = 0; layer < 3; ++layer)
      saved.add(6_MiB + static_cast<std::uint64_t>(layer) * 64_KiB);
    scalars.add(4);
    saved.free_backwards();
    traffic.mark_step();
  }
}

constexpr std::array kSmall{
    Generator{"small", "random", "1 B to 64 KiB, 64 MiB live", random_small},
    Generator{"small", "by_octaves", "16 B to 64 KiB, each octave as likely", small_by_octaves},
    Generator{"small", "survivors", "one in 2 MiB of each size stays", survivors_in_place},
    Generator{"small", "survivors_copied", "the same, each copied before its page goes", survivors},
    Generator{"small", "few_stay", "5 % of small blocks stay, then blocks of 100 MiB", few_stay},
    Generator{
        "small", "few_medium_stay", "5 % of 64 KiB to 1 MiB stay, then 100 MiB", few_medium_stay},
    Generator{"small", "sizes_by_phase", "each phase has a size of its own", sizes_by_phase},
    Generator{
        "small", "kept_scalars", "a scalar kept at each step (they stay)", kept_scalars, true},
};

}  // namespace

std::span<const Generator> small_traffic() { return kSmall; }

}  // namespace headroom::bench
