// Sizes drawn at random, and patterns of sizes.
#include <array>
#include <cstdint>

#include "headroom/base/bytes.h"

#include "benchmarks/paged/blocks.h"
#include "benchmarks/paged/generators.h"

namespace headroom::bench {
namespace {

template <std::uint64_t kLow, std::uint64_t kHigh, std::uint64_t kLive, int kRequests>
void draw_between(Traffic& traffic) {
  replace_at_random(
      traffic, kLive, kRequests, [&] { return traffic.random().between(kLow, kHigh); });
}

void draw_by_octaves(Traffic& traffic) {
  replace_at_random(traffic, 1_GiB, 8000, [&] { return traffic.random().by_octaves(512, 64_MiB); });
}

void draw_heavy_tailed(Traffic& traffic) {
  replace_at_random(
      traffic, 4_GiB, 10'000, [&] { return traffic.random().heavy_tailed(64_KiB, 1_GiB); });
}

void draw_two_modes(Traffic& traffic) {
  Random& random = traffic.random();
  replace_at_random(traffic, 2_GiB, 8000, [&] {
    return random.chance(80) ? random.between(20_KiB, 200_KiB) : random.between(20_MiB, 40_MiB);
  });
}

void draw_huge_and_tiny(Traffic& traffic) {
  Random& random = traffic.random();
  Blocks huge(traffic);
  Blocks tiny(traffic);
  for (int i = 0; i < traffic.times(1500); ++i) {
    huge.add(random.between(512_MiB, 1536_MiB));
    for (int k = 0; k < 4; ++k) tiny.add(random.between(512, 4_KiB));
    while (huge.size() > 6) huge.free_random();
    while (tiny.size() > 1000) tiny.free_random();
  }
  huge.free_all();
  tiny.free_all();
}

void powers_of_two(Traffic& traffic) {
  replace_at_random(traffic, 1_GiB, 8000, [&] { return 64_KiB << traffic.random().below(12); });
}

void above_powers_of_two(Traffic& traffic) {
  replace_at_random(
      traffic, 1_GiB, 8000, [&] { return (64_KiB << traffic.random().below(12)) + 512; });
}

void fibonacci_sizes(Traffic& traffic) {
  std::array<std::uint64_t, 20> sizes{64_KiB, 128_KiB};
  for (std::size_t i = 2; i < sizes.size(); ++i) sizes[i] = sizes[i - 1] + sizes[i - 2];
  replace_at_random(
      traffic, 4_GiB, 6000, [&] { return sizes[traffic.random().below(sizes.size())]; });
}

// One block just below 4 MiB, one just above, one a little further below ...
void around_4_mib(Traffic& traffic) {
  Random& random = traffic.random();
  int turn = 0;
  replace_at_random(traffic, 512_MiB, 8000, [&] {
    const std::uint64_t off = random.between(1, 256) * 1_KiB;
    return ++turn % 2 == 0 ? 4_MiB - off : 4_MiB + off;
  });
}

void around_2_mib(Traffic& traffic) {
  Random& random = traffic.random();
  int turn = 0;
  replace_at_random(traffic, 512_MiB, 8000, [&] {
    const std::uint64_t off = random.between(1, 128) * 1_KiB;
    return ++turn % 2 == 0 ? 2_MiB - off : 2_MiB + off;
  });
}

void first_in_first_out(Traffic& traffic) {
  Blocks blocks(traffic);
  for (int i = 0; i < traffic.times(6000); ++i) {
    const std::uint64_t size_bytes = traffic.random().between(1_MiB, 16_MiB);
    while (!blocks.is_empty() && blocks.bytes() + size_bytes > 2_GiB) blocks.free_first();
    blocks.add(size_bytes);
  }
  blocks.free_all();
}

// Grows for a while, shrinks for a while, always at the end.
void last_in_first_out(Traffic& traffic) {
  Random& random = traffic.random();
  Blocks blocks(traffic);
  for (int i = 0; i < traffic.times(400); ++i) {
    for (std::uint64_t k = random.between(1, 24); k > 0; --k) {
      blocks.add(random.by_octaves(128_KiB, 64_MiB));
    }
    while (blocks.bytes() > 3_GiB) blocks.free_last();
    for (std::uint64_t k = random.below(blocks.size()); k > 0; --k) blocks.free_last();
  }
  blocks.free_backwards();
}

// Never the same size twice.
void ever_new_sizes(Traffic& traffic) {
  std::uint64_t size_bytes = 1_MiB;
  replace_at_random(traffic, 2_GiB, 6000, [&] { return size_bytes += 1536; });
}

// The middle of what is asked for moves from 1 to 32 MiB and back.
void drifting_sizes(Traffic& traffic) {
  Random& random = traffic.random();
  const int requests = traffic.times(8000);
  int i = 0;
  replace_at_random(traffic, 2_GiB, 8000, [&] {
    const int half = requests / 2 + 1;
    const int far = i < half ? i : requests - i;
    ++i;
    const std::uint64_t middle = 1_MiB + 31_MiB * static_cast<std::uint64_t>(far > 0 ? far : 0) /
                                             static_cast<std::uint64_t>(half);
    return random.between(middle * 3 / 4, middle * 5 / 4);
  });
}

// Every fiftieth block lives fifty times as long as the others.
void long_lived_among_short(Traffic& traffic) {
  Random& random = traffic.random();
  Blocks long_lived(traffic);
  Blocks short_lived(traffic);
  for (int i = 0; i < traffic.times(10'000); ++i) {
    Blocks& blocks = i % 50 == 0 ? long_lived : short_lived;
    blocks.add(random.between(256_KiB, 12_MiB));
    while (short_lived.bytes() > 1_GiB) short_lived.free_random();
    while (long_lived.bytes() > 512_MiB) long_lived.free_random();
  }
  short_lived.free_all();
  long_lived.free_all();
}

// Every second of 1 MiB goes, then comes 1.5 MiB, and so on up to 24 MiB.
void every_second_goes(Traffic& traffic) {
  for (int round = 0; round < traffic.times(4); ++round) {
    Blocks kept(traffic);
    for (std::uint64_t size_bytes = 1_MiB; size_bytes <= 24_MiB; size_bytes += size_bytes / 2) {
      Blocks fresh(traffic);
      while (kept.bytes() + fresh.bytes() + size_bytes <= 2_GiB) fresh.add(size_bytes);
      for (std::size_t at = 0; at < fresh.size(); ++at) fresh.free_at(at);
      while (kept.bytes() > 768_MiB) kept.free_random();
      while (!fresh.is_empty()) kept.adopt(fresh.take_last());
    }
    kept.free_all();
  }
}

// One block that doubles when it is full, as a vector does, among others.
void doubling_block(Traffic& traffic) {
  Random& random = traffic.random();
  for (int round = 0; round < traffic.times(30); ++round) {
    Blocks others(traffic);
    Blocks vector(traffic);
    vector.add(random.between(1_MiB, 2_MiB));
    while (vector.size_at(0) < 2_GiB) {
      for (int k = 0; k < 20; ++k) {
        others.add(random.between(64_KiB, 6_MiB));
        if (others.bytes() > 512_MiB) others.free_random();
      }
      vector.replace(0, 2 * vector.size_at(0));
    }
    vector.free_all();
    others.free_all();
  }
}

// Full at 16 GiB, and one goes for one that comes, as under a limit.
void steady_and_full(Traffic& traffic) {
  replace_at_random(traffic, 16_GiB, 8000, [&] { return traffic.random().between(8_MiB, 24_MiB); });
}

void many_times_a_size(Traffic& traffic) {
  Random& random = traffic.random();
  std::array<std::uint64_t, 8> sizes{};
  for (std::uint64_t& size_bytes : sizes) size_bytes = random.between(1_MiB, 48_MiB);
  replace_at_random(traffic, 2_GiB, 8000, [&] { return sizes[random.below(sizes.size())]; });
}

constexpr std::array kRandom{
    Generator{"random",
              "between_2_4_mib",
              "2 to 4 MiB, 1 GiB live, random ones go",
              draw_between<2_MiB, 4_MiB, 1_GiB, 8000>},
    Generator{"random",
              "between_1_16_mib",
              "1 to 16 MiB, 2 GiB live",
              draw_between<1_MiB, 16_MiB, 2_GiB, 8000>},
    Generator{"random",
              "between_1_64_mib",
              "1 to 64 MiB, 4 GiB live",
              draw_between<1_MiB, 64_MiB, 4_GiB, 6000>},
    Generator{"random",
              "between_tenth_8_mib",
              "0.1 to 8 MiB, 100 MiB live",
              draw_between<100_KiB, 8_MiB, 100_MiB, 8000>},
    Generator{"random",
              "between_tenth_64_mib",
              "0.1 to 64 MiB, 2 GiB live",
              draw_between<100_KiB, 64_MiB, 2_GiB, 6000>},
    Generator{"random",
              "between_64_kib_1_mib",
              "64 KiB to 1 MiB, 256 MiB live",
              draw_between<64_KiB + 1, 1_MiB, 256_MiB, 10'000>},
    Generator{"random",
              "between_64_256_mib",
              "64 to 256 MiB, 8 GiB live",
              draw_between<64_MiB, 256_MiB, 8_GiB, 3000>},
    Generator{"random", "by_octaves", "512 B to 64 MiB, each octave as likely", draw_by_octaves},
    Generator{
        "random", "heavy_tail", "64 KiB to 1 GiB, each octave half as likely", draw_heavy_tailed},
    Generator{"random", "two_modes", "20 to 200 KiB, or 20 to 40 MiB", draw_two_modes},
    Generator{
        "random", "huge_and_tiny", "0.5 to 1.5 GiB beside 512 B to 4 KiB", draw_huge_and_tiny},
    Generator{"random", "powers_of_two", "64 KiB to 128 MiB, powers of two", powers_of_two},
    Generator{"random", "above_powers", "512 B more than powers of two", above_powers_of_two},
    Generator{"random", "fibonacci", "each size the sum of the two before", fibonacci_sizes},
    Generator{"random", "around_4_mib", "a little less and a little more than 4 MiB", around_4_mib},
    Generator{"random", "around_2_mib", "a little less and a little more than 2 MiB", around_2_mib},
    Generator{"random", "first_in_first_out", "1 to 16 MiB, the oldest goes", first_in_first_out},
    Generator{"random", "last_in_first_out", "a stack that grows and shrinks", last_in_first_out},
    Generator{
        "random", "ever_new_sizes", "each block 1.5 KiB larger than the last", ever_new_sizes},
    Generator{"random", "drifting_sizes", "sizes move from 1 to 32 MiB and back", drifting_sizes},
    Generator{
        "random", "long_among_short", "every fiftieth block lives long", long_lived_among_short},
    Generator{"random",
              "every_second_goes",
              "gaps that the next, larger blocks do not fit",
              every_second_goes},
    Generator{"random",
              "doubling_block",
              "a block that doubles up to 2 GiB, among others",
              doubling_block},
    Generator{"random", "steady_and_full", "8 to 24 MiB, 16 GiB live", steady_and_full},
    Generator{"random", "eight_sizes", "eight sizes again and again", many_times_a_size},
};

}  // namespace

std::span<const Generator> random_traffic() { return kRandom; }

}  // namespace headroom::bench
