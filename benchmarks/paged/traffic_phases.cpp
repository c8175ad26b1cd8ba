// Programs in phases: what one leaves behind must serve the next.
#include <array>
#include <cstdint>

#include "headroom/base/bytes.h"

#include "benchmarks/paged/blocks.h"
#include "benchmarks/paged/generators.h"

namespace headroom::bench {
namespace {

// Grows to 2 GiB, falls to a tenth, with other sizes each time.
void sawtooth(Traffic& traffic) {
  Random& random = traffic.random();
  Blocks blocks(traffic);
  for (int tooth = 0; tooth < traffic.times(24); ++tooth) {
    const std::uint64_t low = random.by_octaves(128_KiB, 16_MiB);
    while (blocks.bytes() < 2_GiB) blocks.add(random.between(low, 3 * low));
    while (blocks.bytes() > 200_MiB) blocks.free_random();
  }
  blocks.free_all();
}

void sawtooth_emptied(Traffic& traffic) {
  Random& random = traffic.random();
  Blocks blocks(traffic);
  for (int tooth = 0; tooth < traffic.times(16); ++tooth) {
    const std::uint64_t low = random.by_octaves(128_KiB, 16_MiB);
    while (blocks.bytes() < 2_GiB) blocks.add(random.between(low, 3 * low));
    while (blocks.bytes() > 200_MiB) blocks.free_random();
    traffic.empty_cache();
  }
  blocks.free_all();
}

void keep_and_free(Traffic& traffic, int layers, std::uint64_t bytes) {
  Blocks saved(traffic);
  for (int i = 0; i < layers; ++i) saved.add(bytes + static_cast<std::uint64_t>(i % 3) * bytes / 2);
  saved.free_backwards();
}

// Training with a fixed shape, then an evaluation with batches of any size.
template <bool kEmpties>
void evaluated(Traffic& traffic) {
  Random& random = traffic.random();
  Blocks parameters(traffic);
  parameters.add(30_MiB, 24);
  for (int epoch = 0; epoch < traffic.times(10); ++epoch) {
    for (int step = 0; step < 12; ++step) {
      keep_and_free(traffic, 60, 11_MiB);
      traffic.mark_step();
    }
    if (kEmpties) traffic.empty_cache();
    Blocks results(traffic);
    for (int batch = 0; batch < 30; ++batch) {
      const std::uint64_t bytes = random.between(4, 60) * 700_KiB;
      Blocks two(traffic);
      for (int layer = 0; layer < 20; ++layer) {
        two.add(bytes);
        if (two.size() > 2) two.free_first();
      }
      two.free_all();
      results.add(random.between(1, 64) * 4_KiB);
    }
    if (kEmpties) traffic.empty_cache();
    results.free_all();
  }
  parameters.free_all();
}

// Reinforcement learning: answers are generated with a cache that grows, then trained on.
void generate_and_train(Traffic& traffic) {
  Random& random = traffic.random();
  Blocks parameters(traffic);
  parameters.add(48_MiB, 24);
  for (int round = 0; round < traffic.times(12); ++round) {
    const std::uint64_t sequences = random.between(16, 64);
    std::uint64_t tokens = random.between(32, 256);
    Blocks answers(traffic);
    {
      Blocks caches(traffic);
      for (int layer = 0; layer < 24; ++layer) caches.add(sequences * tokens * 2_KiB);
      for (std::uint64_t left = random.between(8, 24); left > 0; --left) {
        tokens += 16;
        for (std::size_t i = 0; i < caches.size(); ++i) {
          caches.replace(i, sequences * tokens * 2_KiB);
        }
        answers.add(sequences * 16 * 12);
      }
      caches.free_all();
    }
    for (int step = 0; step < 4; ++step) {
      keep_and_free(traffic, 72, sequences * tokens * 512);
      traffic.mark_step();
    }
    answers.free_all();
  }
  parameters.free_all();
}

// Four models in turn, each with sizes of its own.
void four_models(Traffic& traffic) {
  Random& random = traffic.random();
  std::array<std::uint64_t, 4> unit{};
  for (std::uint64_t& bytes : unit) bytes = random.between(1_MiB, 30_MiB);
  Blocks parameters(traffic);
  for (const std::uint64_t bytes : unit) parameters.add(bytes, 12);
  for (int step = 0; step < traffic.times(160); ++step) {
    keep_and_free(traffic, 40, unit[random.below(unit.size())]);
    traffic.mark_step();
  }
  parameters.free_all();
}

// The same model again and again with other widths, as a search for settings makes it.
void settings_search(Traffic& traffic) {
  Random& random = traffic.random();
  for (int trial = 0; trial < traffic.times(30); ++trial) {
    const std::uint64_t width = random.between(4, 32) * 64;
    const std::uint64_t tokens = random.between(8, 64) * 128;
    Blocks parameters(traffic);
    for (int layer = 0; layer < 12; ++layer) parameters.add(width * width * 48, 3);
    for (int step = 0; step < 3; ++step) {
      Blocks saved(traffic);
      for (int layer = 0; layer < 12; ++layer) {
        saved.add(tokens * width * 2, 4);
        saved.add(tokens * width * 8);
      }
      saved.free_backwards();
    }
    parameters.free_all();
  }
}

// A whole is read into pieces, the pieces are freed in another order while the next is read.
void loaded_checkpoints(Traffic& traffic) {
  Random& random = traffic.random();
  Blocks model(traffic);
  for (int i = 0; i < 200; ++i) model.add(random.by_octaves(16_KiB, 64_MiB));
  for (int load = 0; load < traffic.times(12); ++load) {
    Blocks file(traffic);
    for (std::size_t i = 0; i < model.size(); ++i) file.add(model.size_at(i));
    for (std::size_t i = 0; i < model.size(); ++i) model.replace(i, model.size_at(i));
    while (!file.is_empty()) file.free_random();
    for (int step = 0; step < 4; ++step) {
      keep_and_free(traffic, 30, random.between(256_KiB, 20_MiB));
    }
  }
  model.free_all();
}

// Gradients are all made at once and dropped at once; between them, activations of another size.
void set_to_none(Traffic& traffic) {
  Random& random = traffic.random();
  Blocks parameters(traffic);
  for (int i = 0; i < 120; ++i) parameters.add(random.by_octaves(4_KiB, 32_MiB));
  for (int step = 0; step < traffic.times(40); ++step) {
    Blocks saved(traffic);
    for (int i = 0; i < 60; ++i) saved.add(random.between(500_KiB, 12_MiB));
    Blocks gradients(traffic);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      gradients.add(parameters.size_at(parameters.size() - 1 - i));
      if (i % 2 == 1 && !saved.is_empty()) saved.free_last();
    }
    saved.free_backwards();
    gradients.free_all();
    traffic.mark_step();
  }
  parameters.free_all();
}

constexpr std::array kPhases{
    Generator{"phases", "sawtooth", "up to 2 GiB, down to a tenth, other sizes", sawtooth},
    Generator{
        "phases", "sawtooth_emptied", "the same, the cache emptied each time", sawtooth_emptied},
    Generator{"phases", "evaluated", "epochs, and evaluations of any size", evaluated<false>},
    Generator{
        "phases", "evaluated_emptied", "the same, the cache emptied in between", evaluated<true>},
    Generator{"phases",
              "generate_and_train",
              "reinforcement learning: answers, then steps",
              generate_and_train},
    Generator{"phases", "four_models", "four models in turn", four_models},
    Generator{"phases", "settings_search", "a model of another width each time", settings_search},
    Generator{"phases", "checkpoints", "a model loaded beside itself", loaded_checkpoints},
    Generator{"phases", "set_to_none", "gradients made and dropped each step", set_to_none},
};

}  // namespace

std::span<const Generator> phases_traffic() { return kPhases; }

}  // namespace headroom::bench
