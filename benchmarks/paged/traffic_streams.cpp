// Several streams, blocks that two of them use, and private pools.
#include <array>
#include <cstdint>
#include <vector>

#include "headroom/base/bytes.h"

#include "benchmarks/paged/blocks.h"
#include "benchmarks/paged/generators.h"

namespace headroom::bench {
namespace {

// 60 streams have 512 bytes each, and one after another 64 MiB.
void tiny_and_large(Traffic& traffic) {
  std::vector<Block> tiny;
  for (unsigned stream = 0; stream < 60; ++stream) tiny.push_back(traffic.allocate(512, stream));
  for (int round = 0; round < traffic.times(10); ++round) {
    for (unsigned stream = 0; stream < 60; ++stream) traffic.use_briefly(64_MiB, stream);
  }
  for (const Block block : tiny) traffic.free(block);
}

void eight_at_random(Traffic& traffic) {
  Random& random = traffic.random();
  std::vector<Blocks> streams;
  for (unsigned stream = 0; stream < 8; ++stream)
    streams.push_back(Blocks(traffic, {.stream = stream}));
  for (int i = 0; i < traffic.times(8000); ++i) {
    Blocks& blocks = streams[random.below(streams.size())];
    const std::uint64_t size_bytes = random.between(256_KiB, 16_MiB);
    while (!blocks.is_empty() && blocks.bytes() + size_bytes > 256_MiB) blocks.free_random();
    blocks.add(size_bytes);
  }
  for (Blocks& blocks : streams) blocks.free_all();
}

// One stream has its gigabyte, gives it back, and the next comes.
void in_turn(Traffic& traffic) {
  Random& random = traffic.random();
  for (int round = 0; round < traffic.times(40); ++round) {
    Blocks blocks(traffic, {.stream = static_cast<unsigned>(round) % 8});
    while (blocks.bytes() < 1_GiB) blocks.add(random.between(1_MiB, 24_MiB));
    while (!blocks.is_empty()) blocks.free_random();
  }
}

// The load moves from stream to stream; a little stays on each.
void moving_load(Traffic& traffic) {
  Random& random = traffic.random();
  std::vector<Blocks> streams;
  for (unsigned stream = 0; stream < 6; ++stream)
    streams.push_back(Blocks(traffic, {.stream = stream}));
  for (int round = 0; round < traffic.times(30); ++round) {
    Blocks& blocks = streams[static_cast<std::size_t>(round) % streams.size()];
    while (blocks.bytes() < 768_MiB) blocks.add(random.between(500_KiB, 20_MiB));
    while (blocks.bytes() > 64_MiB) blocks.free_random();
  }
  for (Blocks& blocks : streams) blocks.free_all();
}

// Batches are copied on a stream of their own, two ahead, while a step runs.
void staged_batches(Traffic& traffic) {
  Random& random = traffic.random();
  Blocks parameters(traffic);
  parameters.add(20_MiB, 24);
  std::deque<Block> staged;
  std::deque<Hold> used;
  for (int step = 0; step < traffic.times(150); ++step) {
    while (staged.size() < 3) staged.push_back(traffic.allocate(random.between(4_MiB, 60_MiB), 1));
    Blocks saved(traffic);
    for (int layer = 0; layer < 24; ++layer) saved.add(random.between(2, 12) * 512_KiB);
    saved.free_backwards();
    used.push_back(traffic.free_while_used(staged.front()));
    staged.pop_front();
    if (used.size() > 1) {
      traffic.complete(used.front());
      used.pop_front();
    }
    traffic.mark_step();
  }
  for (const Hold hold : used) traffic.complete(hold);
  for (const Block block : staged) traffic.free(block);
  parameters.free_all();
}

// Half of the blocks are used by a second stream for some time after their end.
void used_by_two(Traffic& traffic) {
  Random& random = traffic.random();
  std::vector<Block> blocks;
  std::deque<Hold> pending;
  for (int i = 0; i < traffic.times(8000); ++i) {
    blocks.push_back(traffic.allocate(random.between(256_KiB, 12_MiB)));
    while (traffic.live_bytes() > 1_GiB && !blocks.empty()) {
      const std::size_t at = random.below(blocks.size());
      std::swap(blocks[at], blocks.back());
      if (random.chance(50)) {
        traffic.free(blocks.back());
      } else {
        pending.push_back(traffic.free_while_used(blocks.back()));
      }
      blocks.pop_back();
      if (pending.size() > 12) {
        traffic.complete(pending.front());
        pending.pop_front();
      }
    }
  }
  for (const Hold hold : pending) traffic.complete(hold);
  for (const Block block : blocks) traffic.free(block);
}

// A library makes a stream per call, with a workspace on it.
void stream_per_call(Traffic& traffic) {
  Random& random = traffic.random();
  Blocks blocks(traffic);
  for (int call = 0; call < traffic.times(300); ++call) {
    const auto stream = static_cast<unsigned>(1 + call % 64);
    traffic.use_briefly(random.between(64_KiB, 24_MiB), stream);
    blocks.add(random.between(1_MiB, 8_MiB));
    if (blocks.bytes() > 512_MiB) blocks.free_random();
  }
  blocks.free_all();
}

// Graphs are captured into a pool each, on four streams; a pool keeps its peak for its replays.
void pool_per_graph(Traffic& traffic) {
  Random& random = traffic.random();
  Blocks parameters(traffic);
  parameters.add(24_MiB, 24);
  std::vector<Block> outputs;
  for (unsigned graph = 1; graph <= static_cast<unsigned>(traffic.times(24)); ++graph) {
    const unsigned stream = graph % 4;
    Blocks inner(traffic, {.stream = stream, .pool = graph});
    const std::uint64_t unit = random.between(1_MiB, 8_MiB);
    for (int layer = 0; layer < 30; ++layer) {
      inner.add(unit + random.below(unit));
      if (inner.size() > 4) inner.free_first();
    }
    outputs.push_back(traffic.allocate(random.between(64_KiB, 4_MiB), stream, graph));
    inner.free_all();
    for (int k = 0; k < 10; ++k) traffic.use_briefly(random.between(256_KiB, 40_MiB), stream);
  }
  for (const Block block : outputs) traffic.free(block);
  parameters.free_all();
}

// One pool for the graphs of all batch sizes, the largest first, with traffic beside it.
void pool_shared_by_graphs(Traffic& traffic) {
  Random& random = traffic.random();
  Blocks parameters(traffic);
  parameters.add(48_MiB, 16);
  std::vector<Block> outputs;
  for (int graph = traffic.times(40); graph > 0; --graph) {
    const auto batch = static_cast<std::uint64_t>(graph) * 8;
    Blocks inner(traffic, {.pool = 1});
    for (int layer = 0; layer < 32; ++layer) {
      inner.add(batch * 12_KiB);
      inner.add(batch * 44_KiB);
      while (inner.size() > 3) inner.free_first();
    }
    outputs.push_back(traffic.allocate(batch * 4_KiB, 0, 1));
    inner.free_all();
    traffic.use_briefly(random.between(1_MiB, 64_MiB));
  }
  for (const Block block : outputs) traffic.free(block);
  parameters.free_all();
}

// Pools of random traffic, one after the other, then all at once.
void pools_at_random(Traffic& traffic) {
  Random& random = traffic.random();
  std::vector<Blocks> pools;
  for (unsigned pool = 0; pool < 6; ++pool) {
    pools.push_back(Blocks(traffic, {.stream = pool % 2, .pool = pool}));
  }
  for (int i = 0; i < traffic.times(5000); ++i) {
    const std::size_t last =
        std::min<std::size_t>(pools.size() - 1, static_cast<std::size_t>(i) / 500);
    Blocks& blocks = pools[random.below(last + 1)];
    const std::uint64_t size_bytes = random.between(100_KiB, 10_MiB);
    while (!blocks.is_empty() && blocks.bytes() + size_bytes > 200_MiB) blocks.free_random();
    blocks.add(size_bytes);
  }
  for (Blocks& blocks : pools) blocks.free_all();
}

constexpr std::array kStreams{
    Generator{"streams",
              "tiny_and_large",
              "60 streams of 512 B, and 64 MiB on each in turn",
              tiny_and_large},
    Generator{"streams", "eight_at_random", "8 streams, 0.25 to 16 MiB", eight_at_random},
    Generator{"streams", "in_turn", "a gigabyte on one stream after the other", in_turn},
    Generator{"streams", "moving_load", "the load moves, a little stays", moving_load},
    Generator{"streams", "staged_batches", "batches copied on a stream, two ahead", staged_batches},
    Generator{"streams", "used_by_two", "half of the frees wait for a second stream", used_by_two},
    Generator{"streams", "stream_per_call", "64 streams with a workspace each", stream_per_call},
    Generator{"pools", "per_graph", "a pool per graph, on four streams", pool_per_graph},
    Generator{"pools", "shared", "a pool for the graphs of all batch sizes", pool_shared_by_graphs},
    Generator{"pools", "at_random", "random traffic in six pools on two streams", pools_at_random},
};

}  // namespace

std::span<const Generator> streams_traffic() { return kStreams; }

}  // namespace headroom::bench
