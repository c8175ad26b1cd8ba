// Models that answer: caches that grow, requests that come and go, adapters, resolutions.
#include <array>
#include <cstdint>
#include <vector>

#include "headroom/base/bytes.h"

#include "benchmarks/paged/blocks.h"
#include "benchmarks/paged/generators.h"

namespace headroom::bench {
namespace {

void add_weights(Blocks& weights, int layers, std::uint64_t layer_bytes) {
  for (int i = 0; i < layers; ++i) {
    weights.add(layer_bytes / 4);
    weights.add(layer_bytes / 4);
    weights.add(layer_bytes / 2);
    weights.add(8_KiB, 2);
  }
}

// 48 caches; each row that comes copies the cache into a larger one.
void kv_rows(Traffic& traffic) {
  Random& random = traffic.random();
  constexpr std::uint64_t kRow = 64_KiB;
  Blocks caches(traffic);
  for (int i = 0; i < 48; ++i) caches.add(random.between(1, 256) * kRow);
  for (int step = 0; step < traffic.times(6000); ++step) {
    const auto at = static_cast<std::size_t>(random.below(caches.size()));
    const std::uint64_t rows = caches.size_at(at) / kRow + random.between(1, 8);
    caches.replace(at, (rows > 512 ? random.between(1, 64) : rows) * kRow);
  }
  caches.free_all();
}

// As torch.cat does it: keys and values of every layer grow by a token, all layers in turn.
void kv_concatenated(Traffic& traffic) {
  Random& random = traffic.random();
  constexpr std::size_t kLayers = 12;
  constexpr std::uint64_t kToken = 32_KiB;  // 16 sequences of 1,024 halves
  Blocks weights(traffic);
  add_weights(weights, kLayers, 24_MiB);
  for (int prompt = 0; prompt < traffic.times(8); ++prompt) {
    std::uint64_t tokens = random.between(32, 768);
    Blocks caches(traffic);
    for (std::size_t i = 0; i < 2 * kLayers; ++i) caches.add(tokens * kToken);
    for (std::uint64_t left = random.between(20, 60); left > 0; --left) {
      ++tokens;
      for (std::size_t i = 0; i < caches.size(); ++i) {
        traffic.use_briefly(kToken);
        caches.replace(i, tokens * kToken);
      }
      traffic.use_briefly(std::uint64_t{16} * 50'257 * 4);  // logits
      traffic.mark_step();
    }
    caches.free_all();
  }
  weights.free_all();
}

enum class Eviction { kOldest, kAny };

// Requests with lengths of their own; a cache per request, activations of the batch per step.
template <Eviction kEviction>
void ragged_requests(Traffic& traffic) {
  Random& random = traffic.random();
  Blocks weights(traffic);
  add_weights(weights, 24, 48_MiB);
  Blocks caches(traffic);
  for (int request = 0; request < traffic.times(2500); ++request) {
    const std::uint64_t tokens = random.heavy_tailed(32, 8192);
    const std::uint64_t cache_bytes = tokens * 96_KiB;
    while (!caches.is_empty() && caches.bytes() + cache_bytes > 4_GiB) {
      kEviction == Eviction::kOldest ? caches.free_first() : caches.free_random();
    }
    caches.add(cache_bytes);
    Blocks activations(traffic);
    activations.add(tokens * 4_KiB);
    activations.add(tokens * 16_KiB);
    activations.free_first();
    activations.add(tokens * 4_KiB);
    activations.free_all();
    traffic.mark_step();
  }
  caches.free_all();
  weights.free_all();
}

// Per layer and request, as engines without paged attention keep them.
void ragged_layers(Traffic& traffic) {
  Random& random = traffic.random();
  std::vector<Blocks> requests;
  std::uint64_t held = 0;
  for (int i = 0; i < traffic.times(900); ++i) {
    const std::uint64_t bytes = random.between(64, 2048) * 4_KiB;
    Blocks caches(traffic);
    caches.add(bytes, 16);
    held += caches.bytes();
    requests.push_back(std::move(caches));
    while (held > 2_GiB) {
      const auto at = static_cast<std::size_t>(random.below(requests.size()));
      held -= requests[at].bytes();
      requests[at].free_all();
      std::swap(requests[at], requests.back());
      requests.pop_back();
    }
  }
  for (Blocks& caches : requests) caches.free_all();
}

// One pool of pages made at the start; tables, slots and activations change with the batch.
void kv_block_tables(Traffic& traffic) {
  Random& random = traffic.random();
  Blocks weights(traffic);
  add_weights(weights, 16, 32_MiB);
  Blocks pool(traffic);
  pool.add(96_MiB, 32);
  for (int step = 0; step < traffic.times(2000); ++step) {
    const std::uint64_t sequences = random.between(1, 256);
    const std::uint64_t tokens = random.chance(20) ? random.between(512, 8192) : sequences;
    Blocks tables(traffic);
    tables.add(sequences * 2048 * 4);
    tables.add(tokens * 8, 3);
    Blocks activations(traffic);
    activations.add(tokens * 4096);
    activations.add(tokens * 12'288);
    activations.add(tokens * 22'016);
    activations.free_backwards();
    traffic.use_briefly(sequences * 128'256 * 4);  // logits
    tables.free_all();
    traffic.mark_step();
  }
  pool.free_all();
  weights.free_all();
}

// Prefills in chunks beside decoding, with as many tokens as there is time for.
void continuous_batching(Traffic& traffic) {
  Random& random = traffic.random();
  Blocks weights(traffic);
  add_weights(weights, 16, 40_MiB);
  Blocks caches(traffic);
  for (int step = 0; step < traffic.times(1500); ++step) {
    if (caches.size() < 48 && random.chance(30)) caches.add(random.by_octaves(64, 4096) * 32_KiB);
    for (std::size_t i = 0; i < caches.size(); ++i) {
      // A cache has room for 64 tokens more; then it moves.
      if (random.below(64) == 0) caches.replace(i, caches.size_at(i) + 64 * 32_KiB);
    }
    if (caches.size() > 8 && random.chance(30)) caches.free_random();
    const std::uint64_t tokens = caches.size() + random.below(2048);
    Blocks activations(traffic);
    for (int layer = 0; layer < 2; ++layer) {
      activations.add((tokens + 1) * 8_KiB);
      activations.add((tokens + 1) * 28_KiB);
      activations.free_first();
    }
    activations.free_all();
    traffic.mark_step();
  }
  caches.free_all();
  weights.free_all();
}

// Beams are copied in a new order at every token.
void beam_search(Traffic& traffic) {
  Random& random = traffic.random();
  for (int request = 0; request < traffic.times(12); ++request) {
    const std::uint64_t beams = random.between(2, 8);
    std::uint64_t tokens = random.between(16, 512);
    Blocks caches(traffic);
    for (int i = 0; i < 24; ++i) caches.add(beams * tokens * 4_KiB);
    for (std::uint64_t left = random.between(8, 30); left > 0; --left) {
      ++tokens;
      Blocks scores(traffic);
      scores.add(beams * 32'000 * 4, 2);
      scores.add(beams * 2 * 8);
      for (std::size_t i = 0; i < caches.size(); ++i) {
        caches.replace(i, beams * tokens * 4_KiB);  // grown
        caches.replace(i, beams * tokens * 4_KiB);  // in the order of the best beams
      }
      scores.free_all();
      traffic.mark_step();
    }
    caches.free_all();
  }
}

// A small model guesses, the large one checks, and what was wrong is cut off both caches.
void speculative(Traffic& traffic) {
  Random& random = traffic.random();
  Blocks weights(traffic);
  add_weights(weights, 8, 8_MiB);
  add_weights(weights, 16, 48_MiB);
  for (int request = 0; request < traffic.times(10); ++request) {
    std::uint64_t tokens = random.between(64, 1024);
    Blocks draft(traffic);
    Blocks target(traffic);
    draft.add(tokens * 8_KiB, 8);
    target.add(tokens * 32_KiB, 16);
    for (std::uint64_t left = random.between(10, 30); left > 0; --left) {
      const std::uint64_t guesses = random.between(3, 8);
      const std::uint64_t accepted = random.between(1, guesses);
      for (std::uint64_t k = 1; k <= guesses; ++k) {
        for (std::size_t i = 0; i < draft.size(); ++i) draft.replace(i, (tokens + k) * 8_KiB);
      }
      for (std::size_t i = 0; i < target.size(); ++i) {
        target.replace(i, (tokens + guesses) * 32_KiB);
      }
      traffic.use_briefly(guesses * 128'256 * 4);
      tokens += accepted;
      for (std::size_t i = 0; i < draft.size(); ++i) draft.replace(i, tokens * 8_KiB);
      for (std::size_t i = 0; i < target.size(); ++i) target.replace(i, tokens * 32_KiB);
      traffic.mark_step();
    }
    draft.free_all();
    target.free_all();
  }
  weights.free_all();
}

// Adapters of other ranks are loaded and dropped, the least used first.
void adapters(Traffic& traffic) {
  Random& random = traffic.random();
  Blocks weights(traffic);
  add_weights(weights, 24, 48_MiB);
  std::deque<Blocks> loaded;
  std::uint64_t held = 0;
  for (int i = 0; i < traffic.times(150); ++i) {
    const std::uint64_t rank = 8ULL << random.below(5);
    Blocks adapter(traffic);
    for (int layer = 0; layer < 24; ++layer) {
      adapter.add(rank * 4096 * 2, 4);
      adapter.add(rank * 11'008 * 2);
    }
    held += adapter.bytes();
    loaded.push_back(std::move(adapter));
    while (held > 768_MiB) {
      held -= loaded.front().bytes();
      loaded.front().free_all();
      loaded.pop_front();
    }
    for (int step = 0; step < 8; ++step) traffic.use_briefly(random.between(16, 2048) * 24_KiB);
  }
  for (Blocks& adapter : loaded) adapter.free_all();
  weights.free_all();
}

// Several models share a card; one goes when another is asked for.
void model_swapping(Traffic& traffic) {
  Random& random = traffic.random();
  std::vector<Blocks> models;
  for (int i = 0; i < traffic.times(120); ++i) {
    Blocks model(traffic);
    const std::uint64_t width = random.between(8, 40) * 128;
    const int layers = static_cast<int>(random.between(12, 36));
    model.add(width * 32'000 * 2);
    for (int layer = 0; layer < layers; ++layer) {
      model.add(width * width * 2, 4);
      model.add(width * width * 8, 2);
      model.add(width * 2, 4);
    }
    models.push_back(std::move(model));
    if (models.size() > 4) {
      const auto at = static_cast<std::size_t>(random.below(models.size()));
      models[at].free_all();
      std::swap(models[at], models.back());
      models.pop_back();
    }
    for (int step = 0; step < 10; ++step) traffic.use_briefly(width * random.between(64, 4096) * 2);
  }
  for (Blocks& model : models) model.free_all();
}

// Prompts of 1,000 to 200,000 tokens, in chunks, whose scores grow with what was read so far.
void long_prompts(Traffic& traffic) {
  Random& random = traffic.random();
  Blocks weights(traffic);
  add_weights(weights, 8, 64_MiB);
  for (int prompt = 0; prompt < traffic.times(60); ++prompt) {
    const std::uint64_t tokens = random.by_octaves(1024, 200'000);
    Blocks caches(traffic);
    for (std::uint64_t read = 0; read < tokens; read += 4096) {
      const std::uint64_t chunk = std::min<std::uint64_t>(4096, tokens - read);
      caches.add(chunk * 32_KiB);
      Blocks scratch(traffic);
      scratch.add(chunk * 16_KiB);
      scratch.add(chunk * (read + chunk) / 4);
      scratch.add(chunk * 44_KiB);
      scratch.free_all();
    }
    for (int step = 0; step < 10; ++step) caches.add(32_KiB * random.between(16, 64));
    caches.free_all();
  }
  weights.free_all();
}

// An encoder with batches of other lengths, padded to the longest.
void padded_batches(Traffic& traffic) {
  Random& random = traffic.random();
  Blocks weights(traffic);
  add_weights(weights, 12, 28_MiB);
  for (int step = 0; step < traffic.times(400); ++step) {
    const std::uint64_t batch = random.between(1, 64);
    const std::uint64_t length = random.heavy_tailed(8, 512);
    Blocks stream(traffic);
    stream.add(batch * length * 3072);
    for (int layer = 0; layer < 6; ++layer) {
      Blocks inner(traffic);
      inner.add(batch * length * 9216);
      inner.add(batch * 12 * length * length * 4);
      inner.free_first();
      inner.add(batch * length * 3072);
      inner.free_first();
      inner.add(batch * length * 12'288);
      stream.replace(0, batch * length * 3072);
      inner.free_all();
    }
    stream.free_all();
    traffic.mark_step();
  }
  weights.free_all();
}

// A UNet at resolutions that change: down with skips kept, up again, twenty times an image.
void diffusion(Traffic& traffic) {
  Random& random = traffic.random();
  Blocks weights(traffic);
  for (int i = 0; i < 60; ++i) weights.add(random.between(1, 30) * 1_MiB);
  for (int image = 0; image < traffic.times(25); ++image) {
    const std::uint64_t height = random.between(6, 16) * 8;  // latents
    const std::uint64_t width = random.between(6, 16) * 8;
    const std::uint64_t pixels = height * width * random.between(1, 4);
    for (int step = 0; step < 5; ++step) {
      Blocks skips(traffic);
      for (std::uint64_t level = 0; level < 4; ++level) {
        const std::uint64_t bytes = (pixels >> (2 * level)) * (320 << level) * 2;
        skips.add(bytes, 3);
        traffic.use_briefly((pixels >> (2 * level)) * 4096);
      }
      while (!skips.is_empty()) {
        const std::uint64_t bytes = skips.size_at(skips.size() - 1);
        Blocks joined(traffic);
        joined.add(2 * bytes);
        skips.free_last();
        joined.add(bytes);
        joined.free_all();
      }
    }
    Blocks decoder(traffic);
    for (std::uint64_t level = 0; level < 4; ++level) {
      decoder.add((pixels << (2 * level)) * (512 >> level) * 2, 2);
      if (decoder.size() > 2) decoder.free_first();
    }
    decoder.free_all();
    traffic.mark_step();
  }
  weights.free_all();
}

// Detection: proposals, boxes and masks as many as an image has.
void detection(Traffic& traffic) {
  Random& random = traffic.random();
  Blocks weights(traffic);
  add_weights(weights, 16, 10_MiB);
  for (int step = 0; step < traffic.times(250); ++step) {
    const std::uint64_t height = random.between(20, 42) * 32;
    const std::uint64_t width = random.between(20, 42) * 32;
    Blocks pyramid(traffic);
    pyramid.add(height * width * 12);
    for (std::uint64_t level = 2; level < 7; ++level) {
      pyramid.add(std::max<std::uint64_t>((height * width) >> (2 * level), 1) * 1024);
    }
    const std::uint64_t proposals = random.between(100, 2000);
    Blocks found(traffic);
    found.add(proposals * 16);
    found.add(proposals * 49 * 1024);
    found.add(proposals * 4096, 2);
    const std::uint64_t boxes = random.heavy_tailed(1, 300);
    Blocks kept(traffic);
    kept.add(boxes * 16);
    kept.add(boxes * 196 * 1024);
    kept.add(boxes * height * width / 8);
    found.free_all();
    pyramid.free_all();
    kept.free_all();
    traffic.mark_step();
  }
  weights.free_all();
}

// Windows over videos of any length and size; the last frames of one window begin the next.
void video_windows(Traffic& traffic) {
  Random& random = traffic.random();
  for (int video = 0; video < traffic.times(60); ++video) {
    const std::uint64_t height = random.between(240, 1080);
    const std::uint64_t frame = height * random.between(320, 1920) * 3;
    Blocks frames(traffic);
    for (std::uint64_t left = random.between(32, 200); left > 0; --left) {
      frames.add(frame);
      if (frames.size() < 24) continue;
      Blocks features(traffic);
      features.add(frame * 4);
      features.add(frame * 2);
      features.free_first();
      features.free_all();
      while (frames.size() > 8) frames.free_first();
    }
    frames.free_all();
  }
}

constexpr std::array kServing{
    Generator{"serving", "kv_rows", "48 caches that grow by rows", kv_rows},
    Generator{"serving",
              "kv_concatenated",
              "keys and values of 12 layers, a token more each",
              kv_concatenated},
    Generator{"serving",
              "ragged_first_in",
              "a cache per request, the oldest goes",
              ragged_requests<Eviction::kOldest>},
    Generator{"serving",
              "ragged_random",
              "a cache per request, a random one goes",
              ragged_requests<Eviction::kAny>},
    Generator{
        "serving", "ragged_layers", "16 caches per request, random requests go", ragged_layers},
    Generator{
        "serving", "kv_block_tables", "a pool of pages, tables and ragged tokens", kv_block_tables},
    Generator{"serving",
              "continuous_batching",
              "prefills in chunks beside decoding",
              continuous_batching},
    Generator{"serving", "beam_search", "caches copied in the order of the beams", beam_search},
    Generator{"serving", "speculative", "a draft model, and caches that are cut back", speculative},
    Generator{"serving", "adapters", "LoRA adapters of many ranks, loaded and dropped", adapters},
    Generator{"serving", "model_swapping", "models of any size come and go", model_swapping},
    Generator{"serving", "long_prompts", "1,000 to 200,000 tokens, in chunks", long_prompts},
    Generator{"serving", "padded_batches", "an encoder, batches of any length", padded_batches},
    Generator{"serving", "diffusion", "a UNet and a decoder, resolutions that change", diffusion},
    Generator{"serving", "detection", "as many boxes and masks as an image has", detection},
    Generator{"serving", "video_windows", "windows of frames of any size", video_windows},
};

}  // namespace

std::span<const Generator> serving_traffic() { return kServing; }

}  // namespace headroom::bench
