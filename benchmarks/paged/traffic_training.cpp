// Training steps: what a forward keeps, a backward frees, in the ways in which programs differ.
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "headroom/base/bytes.h"

#include "benchmarks/paged/blocks.h"
#include "benchmarks/paged/generators.h"

namespace headroom::bench {
namespace {

struct Transformer {
  int layers = 12;
  std::uint64_t width = 768;
  std::uint64_t vocabulary = 50'257;
  std::uint64_t element = 2;  // bytes
};

// Weights and, per weight, a gradient's worth of state.
void add_parameters(Blocks& parameters, const Transformer& model, int copies = 3) {
  for (int copy = 0; copy < copies; ++copy) {
    parameters.add(model.vocabulary * model.width * 4);
    for (int i = 0; i < model.layers; ++i) {
      parameters.add(model.width * model.width * 12);
      parameters.add(model.width * model.width * 4);
      parameters.add(model.width * model.width * 16, 2);
      parameters.add(model.width * 4, 8);
    }
  }
}

// The bytes that a block of `tokens` keeps for its backward.
void keep_layer(Blocks& saved, const Transformer& model, std::uint64_t tokens) {
  const std::uint64_t row = tokens * model.width * model.element;
  saved.add(row);
  saved.add(3 * row);
  saved.add(row);
  saved.add(row);
  saved.add(4 * row, 2);
  saved.add(tokens * 4, 2);
}

// A gradient for each, the last first.
void go_back(Traffic& traffic, Blocks& saved) {
  Blocks gradient(traffic);
  while (!saved.is_empty()) {
    gradient.add(saved.size_at(saved.size() - 1));
    saved.free_last();
    if (gradient.size() > 1) gradient.free_first();
  }
  gradient.free_all();
}

void train_on(Traffic& traffic, const Transformer& model, std::uint64_t tokens) {
  Blocks saved(traffic);
  for (int i = 0; i < model.layers; ++i) keep_layer(saved, model, tokens);
  saved.add(tokens * model.vocabulary * model.element);
  saved.add(tokens * model.vocabulary * 4);
  go_back(traffic, saved);
}

void same_step(Traffic& traffic) {
  const Transformer model;
  Blocks parameters(traffic);
  add_parameters(parameters, model);
  for (int step = 0; step < traffic.times(60); ++step) {
    train_on(traffic, model, std::uint64_t{8} * 1024);
    traffic.mark_step();
  }
  parameters.free_all();
}

void ragged_lengths(Traffic& traffic) {
  const Transformer model;
  Blocks parameters(traffic);
  add_parameters(parameters, model);
  for (int step = 0; step < traffic.times(120); ++step) {
    train_on(traffic, model, 8 * traffic.random().between(32, 1024));
    traffic.mark_step();
  }
  parameters.free_all();
}

// The length grows by a few tokens per step.
void curriculum(Traffic& traffic) {
  const Transformer model;
  Blocks parameters(traffic);
  add_parameters(parameters, model);
  std::uint64_t length = 64;
  for (int step = 0; step < traffic.times(120); ++step) {
    length += traffic.random().between(1, 12);
    train_on(traffic, model, 8 * length);
    traffic.mark_step();
  }
  parameters.free_all();
}

void accumulated_gradients(Traffic& traffic) {
  Random& random = traffic.random();
  const Transformer model;
  Blocks parameters(traffic);
  add_parameters(parameters, model, 2);
  for (int step = 0; step < traffic.times(20); ++step) {
    Blocks gradients(traffic);
    for (int micro = 0; micro < 6; ++micro) {
      train_on(traffic, model, 2 * random.between(64, 1024));
      if (micro == 0) add_parameters(gradients, model, 1);
    }
    gradients.free_all();
    traffic.mark_step();
  }
  parameters.free_all();
}

// Only what goes into a block is kept; the block runs again in the backward.
void checkpointed(Traffic& traffic) {
  const Transformer model{.layers = 24, .width = 1024};
  Blocks parameters(traffic);
  add_parameters(parameters, model);
  for (int step = 0; step < traffic.times(60); ++step) {
    const std::uint64_t tokens = 8 * traffic.random().between(64, 1024);
    Blocks inputs(traffic);
    for (int i = 0; i < model.layers; ++i) {
      inputs.add(tokens * model.width * model.element);
      traffic.use_briefly(tokens * model.width * model.element * 4);
    }
    while (!inputs.is_empty()) {
      Blocks saved(traffic);
      keep_layer(saved, model, tokens);
      go_back(traffic, saved);
      inputs.free_last();
    }
    traffic.mark_step();
  }
  parameters.free_all();
}

// The optimiser's state is on the host but for its update.
void state_swapped(Traffic& traffic) {
  const Transformer model;
  Blocks parameters(traffic);
  add_parameters(parameters, model, 1);
  for (int step = 0; step < traffic.times(40); ++step) {
    train_on(traffic, model, 8 * traffic.random().between(64, 512));
    Blocks state(traffic);
    add_parameters(state, model, 2);
    state.free_all();
    traffic.mark_step();
  }
  parameters.free_all();
}

// Each layer's parameters are gathered before it runs, the next one's beside it, on a stream of
// their own; they go when the layer has run.
void sharded_parameters(Traffic& traffic) {
  Random& random = traffic.random();
  constexpr int kLayers = 24;
  std::vector<std::uint64_t> flat(kLayers);
  for (std::uint64_t& bytes : flat) bytes = random.between(40, 120) * 1_MiB;
  Blocks shards(traffic);
  for (const std::uint64_t bytes : flat) shards.add(bytes / 8, 3);
  for (int step = 0; step < traffic.times(20); ++step) {
    const std::uint64_t tokens = random.between(2048, 8192);
    Blocks saved(traffic);
    std::vector<Hold> holds;
    const auto run_layer = [&](int layer, Block& next, int after) {
      const Block own = next;
      if (after >= 0 && after < kLayers)
        next = traffic.allocate(flat[static_cast<std::size_t>(after)], 1);
      traffic.use_briefly(tokens * 16_KiB);
      holds.push_back(traffic.free_while_used(own));  // gathered on stream 1, used on stream 0
      if (holds.size() > 2) {
        traffic.complete(holds.front());
        holds.erase(holds.begin());
      }
      (void)layer;
    };
    Block next = traffic.allocate(flat[0], 1);
    for (int layer = 0; layer < kLayers; ++layer) {
      run_layer(layer, next, layer + 1);
      saved.add(tokens * 4_KiB);
      saved.add(tokens * 12_KiB);
    }
    next = traffic.allocate(flat[kLayers - 1], 1);
    for (int layer = kLayers - 1; layer >= 0; --layer) {
      const Block gradient = traffic.allocate(flat[static_cast<std::size_t>(layer)]);
      run_layer(layer, next, layer - 1);
      saved.free_last();
      saved.free_last();
      traffic.use_briefly(flat[static_cast<std::size_t>(layer)] / 8, 1);
      traffic.free(gradient);
    }
    for (const Hold hold : holds) traffic.complete(hold);
    traffic.mark_step();
  }
  shards.free_all();
}

// Gradients are copied into buckets of 25 MiB, which another stream reduces.
void bucketed_gradients(Traffic& traffic) {
  const Transformer model;
  Blocks parameters(traffic);
  add_parameters(parameters, model, 3);
  for (int step = 0; step < traffic.times(40); ++step) {
    const std::uint64_t tokens = 8 * traffic.random().between(128, 768);
    Blocks saved(traffic);
    for (int i = 0; i < model.layers; ++i) keep_layer(saved, model, tokens);
    std::vector<Hold> holds;
    for (int i = 0; i < model.layers; ++i) {
      const Block bucket = traffic.allocate(25_MiB);
      for (int k = 0; k < 8; ++k) {
        traffic.use_briefly(saved.size_at(saved.size() - 1));
        saved.free_last();
      }
      holds.push_back(traffic.free_while_used(bucket));
      if (holds.size() > 3) {
        traffic.complete(holds.front());
        holds.erase(holds.begin());
      }
    }
    for (const Hold hold : holds) traffic.complete(hold);
    traffic.mark_step();
  }
  parameters.free_all();
}

// Experts with as many tokens as the router gives them.
void mixture_of_experts(Traffic& traffic) {
  Random& random = traffic.random();
  constexpr std::uint64_t kExperts = 16;
  Blocks weights(traffic);
  weights.add(24_MiB, 64);
  for (int step = 0; step < traffic.times(40); ++step) {
    Blocks saved(traffic);
    const std::uint64_t tokens = 4096;
    for (int layer = 0; layer < 4; ++layer) {
      saved.add(tokens * 4096);
      std::uint64_t left = 2 * tokens;
      for (std::uint64_t expert = 0; expert < kExperts; ++expert) {
        const std::uint64_t share =
            expert + 1 == kExperts ? left : random.below(2 * left / (kExperts - expert) + 1);
        const std::uint64_t mine = std::min(share, left);
        left -= mine;
        if (mine == 0) continue;
        saved.add(mine * 4096);
        saved.add(mine * 14'336);
        saved.add(mine * 8);
      }
    }
    go_back(traffic, saved);
    traffic.mark_step();
  }
  weights.free_all();
}

// Neighbours of neighbours: three sizes per batch, never the same twice.
void sampled_graphs(Traffic& traffic) {
  Random& random = traffic.random();
  Blocks features(traffic);
  features.add(900_MiB);
  for (int step = 0; step < traffic.times(300); ++step) {
    Blocks saved(traffic);
    std::uint64_t nodes = random.between(512, 2048);
    for (int hop = 0; hop < 3; ++hop) {
      const std::uint64_t edges = nodes * random.between(5, 15);
      saved.add(edges * 16);
      saved.add(edges * random.between(128, 512));
      saved.add(nodes * 1024);
      traffic.use_briefly(edges * 512);
      nodes = edges * random.between(40, 90) / 100;
    }
    go_back(traffic, saved);
    traffic.mark_step();
  }
  features.free_all();
}

// Tables, and gradients of the rows that a batch names.
void sparse_embeddings(Traffic& traffic) {
  Random& random = traffic.random();
  Blocks tables(traffic);
  for (int i = 0; i < 26; ++i) tables.add(random.heavy_tailed(256_KiB, 512_MiB));
  for (int step = 0; step < traffic.times(120); ++step) {
    Blocks saved(traffic);
    for (int table = 0; table < 26; ++table) {
      const std::uint64_t rows = random.by_octaves(64, 65'536);
      saved.add(rows * 8);
      saved.add(rows * 128 * 4);
    }
    saved.add(std::uint64_t{8192} * 1024 * 4, 3);
    Blocks gradients(traffic);
    while (!saved.is_empty()) {
      const std::uint64_t bytes = saved.size_at(saved.size() - 1);
      gradients.add(bytes);
      gradients.add(
          std::max<std::uint64_t>(bytes * random.between(30, 100) / 100, 1));  // coalesced
      saved.free_last();
    }
    gradients.free_all();
    traffic.mark_step();
  }
  tables.free_all();
}

// The batch grows until it fails, as a search for the largest does, and shrinks again.
void changing_batch(Traffic& traffic) {
  const Transformer model{.width = 512};
  Blocks parameters(traffic);
  add_parameters(parameters, model);
  std::uint64_t batch = 4;
  bool grows = true;
  for (int step = 0; step < traffic.times(120); ++step) {
    train_on(traffic, model, batch * 512);
    batch = grows ? batch + batch / 4 + 1 : batch - batch / 5;
    if (batch > 64) grows = false;
    if (batch < 6) grows = true;
    traffic.mark_step();
  }
  parameters.free_all();
}

// A vision transformer: each batch has a resolution of its own.
void any_resolution(Traffic& traffic) {
  Random& random = traffic.random();
  const Transformer model{.layers = 12, .width = 768, .vocabulary = 1000, .element = 4};
  Blocks parameters(traffic);
  add_parameters(parameters, model);
  for (int step = 0; step < traffic.times(120); ++step) {
    const std::uint64_t side = random.between(10, 32);
    const std::uint64_t tokens = 16 * (side * side + 1);
    Blocks images(traffic);
    images.add(16 * side * side * 768 * 4);
    Blocks saved(traffic);
    for (int i = 0; i < model.layers; ++i) {
      keep_layer(saved, model, tokens);
      saved.add(std::uint64_t{16} * 12 * (side * side + 1) * 4);
    }
    go_back(traffic, saved);
    images.free_all();
    traffic.mark_step();
  }
  parameters.free_all();
}

// A convolutional network with crops of any size, and a workspace per convolution.
void any_crop(Traffic& traffic) {
  Random& random = traffic.random();
  Blocks parameters(traffic);
  for (std::uint64_t width = 64; width <= 2048; width *= 2) parameters.add(width * width * 36, 3);
  for (int step = 0; step < traffic.times(150); ++step) {
    const std::uint64_t height = random.between(96, 320);
    std::uint64_t pixels = height * random.between(96, 320) * 16;
    Blocks saved(traffic);
    for (std::uint64_t width = 64; width <= 1024; width *= 2) {
      pixels /= 4;
      for (int block = 0; block < 3; ++block) {
        traffic.use_briefly(random.by_octaves(1_MiB, 64_MiB));
        saved.add(pixels * width * 4, 3);
        saved.add(width * 4, 2);
      }
    }
    go_back(traffic, saved);
    traffic.mark_step();
  }
  parameters.free_all();
}

// Micro-batches in flight: the last stage frees what the first one keeps longest.
void pipeline(Traffic& traffic) {
  Random& random = traffic.random();
  const Transformer model{.layers = 6, .width = 1024};
  Blocks parameters(traffic);
  add_parameters(parameters, model);
  for (int step = 0; step < traffic.times(16); ++step) {
    std::deque<Blocks> in_flight;
    for (int micro = 0; micro < 12; ++micro) {
      Blocks saved(traffic);
      const std::uint64_t tokens = random.between(512, 4096);
      for (int i = 0; i < model.layers; ++i) keep_layer(saved, model, tokens);
      in_flight.push_back(std::move(saved));
      if (in_flight.size() < 4) continue;
      go_back(traffic, in_flight.front());
      in_flight.pop_front();
    }
    for (Blocks& saved : in_flight) go_back(traffic, saved);
    traffic.mark_step();
  }
  parameters.free_all();
}

// Retained graphs: losses of some steps are kept with all that their backward needs.
void kept_graphs(Traffic& traffic) {
  Random& random = traffic.random();
  const Transformer model{.layers = 4, .width = 512};
  Blocks parameters(traffic);
  add_parameters(parameters, model);
  std::deque<Blocks> kept;
  for (int step = 0; step < traffic.times(150); ++step) {
    Blocks saved(traffic);
    const std::uint64_t tokens = random.between(256, 4096);
    for (int i = 0; i < model.layers; ++i) keep_layer(saved, model, tokens);
    if (random.chance(20)) {
      kept.push_back(std::move(saved));
    } else {
      go_back(traffic, saved);
    }
    if (kept.size() > 6) {
      kept.front().free_all();
      kept.pop_front();
    }
    traffic.mark_step();
  }
  for (Blocks& saved : kept) saved.free_all();
  parameters.free_all();
}

constexpr std::array kTraining{
    Generator{"training", "same_step", "a step that repeats itself", same_step},
    Generator{"training", "ragged_lengths", "sequences of 32 to 1,024 tokens", ragged_lengths},
    Generator{"training", "curriculum", "sequences that grow step by step", curriculum},
    Generator{"training",
              "accumulated",
              "ragged micro-batches, gradients added up",
              accumulated_gradients},
    Generator{"training", "checkpointed", "blocks run again in the backward, ragged", checkpointed},
    Generator{"training", "state_swapped", "the optimiser's state comes and goes", state_swapped},
    Generator{"training", "sharded", "parameters gathered and freed per layer", sharded_parameters},
    Generator{
        "training", "bucketed", "gradients in buckets, reduced on a stream", bucketed_gradients},
    Generator{"training", "experts", "a mixture of experts, tokens as routed", mixture_of_experts},
    Generator{"training",
              "sampled_graphs",
              "a graph network on neighbours of neighbours",
              sampled_graphs},
    Generator{
        "training", "embeddings", "gradients of the rows that a batch names", sparse_embeddings},
    Generator{"training", "changing_batch", "a batch that grows and shrinks", changing_batch},
    Generator{"training", "any_resolution", "a vision transformer, any resolution", any_resolution},
    Generator{"training", "any_crop", "convolutions with workspaces, any crop", any_crop},
    Generator{"training", "pipeline", "four micro-batches in flight", pipeline},
    Generator{"training", "kept_graphs", "every fifth graph is kept for a while", kept_graphs},
};

}  // namespace

std::span<const Generator> training_traffic() { return kTraining; }

}  // namespace headroom::bench
