// Traffic made up for the search for settings: programs without a recording.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "headroom/replay/program.h"

namespace headroom::replay::testing {

class Traffic {
 public:
  explicit Traffic(unsigned seed) : random_(seed) {
    program_.trace = &trace_;
    program_.device = &device_;
    program_.streams = {StreamId::kDefault};
    program_.pools = {memory::PoolId{}};
    program_.version = memory::kPyTorch211;
  }
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;

  [[nodiscard]] Program& program() noexcept { return program_; }

  // Batches of a graph: few large blocks, whose sizes are never the same twice.
  void sample_graphs(int steps, double nodes, double spread) {
    for (int step = 0; step < steps; ++step) {
      std::vector<std::uint32_t> kept;
      const double count = nodes * std::exp(std::normal_distribution<double>(0, spread)(random_));
      for (const double share : {1.0, 0.2, 0.04}) {
        kept.push_back(allocate(count * share * 512));
        kept.push_back(allocate(count * share * uniform(32, 160)));
        const std::uint32_t messages = allocate(count * share * uniform(256, 1280));
        kept.push_back(allocate(count * share * 512));
        free(messages);
      }
      backward(kept);
    }
  }

  // Sequences of varying length: many blocks, whose sizes grow and shrink together.
  void vary_lengths(int steps, int layers, double width) {
    for (int i = 0; i < layers * 3; ++i) (void)allocate(width * width * 16);
    for (int step = 0; step < steps; ++step) {
      const double length = std::ceil(uniform(32, 1024));
      std::vector<std::uint32_t> kept;
      for (int i = 0; i < layers; ++i) {
        for (const double times : {1, 3, 1, 4, 4, 1}) {
          kept.push_back(allocate(8 * length * width * times * 2));
        }
        const std::uint32_t mask = allocate(8 * length * width * 4);
        kept.push_back(allocate(8 * length * 4));
        free(mask);
      }
      kept.push_back(allocate(8 * length * 32000));
      backward(kept);
    }
  }

 private:
  double uniform(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }

  // A gradient for each, the last first.
  void backward(std::vector<std::uint32_t>& kept) {
    for (; !kept.empty(); kept.pop_back()) {
      const std::uint32_t gradient = allocate(static_cast<double>(sizes_[kept.back()]));
      free(kept.back());
      free(gradient);
    }
  }

  std::uint32_t allocate(double bytes) {
    std::uint32_t slot = program_.slot_count;
    if (free_slots_.empty()) {
      ++program_.slot_count;
      sizes_.push_back(0);
    } else {
      slot = free_slots_.back();
      free_slots_.pop_back();
    }
    sizes_[slot] = static_cast<std::uint64_t>(std::max(bytes, 512.0));
    live_ += sizes_[slot];
    program_.peak_live = std::max(program_.peak_live, live_);
    program_.peak_live_if_served = program_.peak_live;
    program_.ops.push_back({.size_bytes = sizes_[slot], .slot = slot, .kind = OpKind::kAllocate});
    return slot;
  }

  void free(std::uint32_t slot) {
    live_ -= sizes_[slot];
    free_slots_.push_back(slot);
    program_.ops.push_back({.slot = slot, .kind = OpKind::kFree});
  }

  std::mt19937 random_;
  trace::Trace trace_{};
  trace::DeviceTrace device_{};
  Program program_{};
  std::vector<std::uint32_t> free_slots_{};
  std::vector<std::uint64_t> sizes_{};
  std::uint64_t live_ = 0;
};

}  // namespace headroom::replay::testing
