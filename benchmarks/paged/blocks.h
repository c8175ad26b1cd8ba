// Blocks: what a generator holds at a time, and the ways to choose which of it goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "benchmarks/paged/traffic.h"

namespace headroom::bench {

// Where blocks come from.
struct From {
  unsigned stream = 0;
  unsigned pool = 0;
};

class Blocks {
 public:
  explicit Blocks(Traffic& traffic, From from = {}) : traffic_(&traffic), from_(from) {}

  void add(std::uint64_t size_bytes) {
    blocks_.push_back(traffic_->allocate(size_bytes, from_.stream, from_.pool));
    bytes_ += size_bytes;
  }
  void add(std::uint64_t size_bytes, int count) {
    for (int i = 0; i < count; ++i) add(size_bytes);
  }

  // One that came elsewhere.
  void adopt(Block block) {
    blocks_.push_back(block);
    bytes_ += traffic_->size_of(block);
  }

  void free_first() { free_at(0); }
  void free_last() { free_at(blocks_.size() - 1); }
  // The last takes its place, so `free_first` then no longer means the oldest.
  void free_random() {
    const auto at = static_cast<std::size_t>(traffic_->random().below(blocks_.size()));
    std::swap(blocks_[at], blocks_.back());
    free_last();
  }
  void free_at(std::size_t at) {
    bytes_ -= traffic_->size_of(blocks_[at]);
    traffic_->free(blocks_[at]);
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(at));
  }
  // In the order in which they came, or in the opposite one, as a backward does.
  void free_all() {
    while (!blocks_.empty()) free_first();
  }
  void free_backwards() {
    while (!blocks_.empty()) free_last();
  }
  // A block of another size takes the place of this one, copied before the old one goes.
  void replace(std::size_t at, std::uint64_t size_bytes) {
    const Block fresh = traffic_->allocate(size_bytes, from_.stream, from_.pool);
    bytes_ += size_bytes - traffic_->size_of(blocks_[at]);
    traffic_->free(std::exchange(blocks_[at], fresh));
  }

  [[nodiscard]] bool is_empty() const noexcept { return blocks_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return blocks_.size(); }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t size_at(std::size_t at) const {
    return traffic_->size_of(blocks_[at]);
  }
  // The last block, no longer one of these.
  [[nodiscard]] Block take_last() {
    const Block last = blocks_.back();
    bytes_ -= traffic_->size_of(last);
    blocks_.pop_back();
    return last;
  }

 private:
  Traffic* traffic_;
  From from_;
  std::deque<Block> blocks_{};
  std::uint64_t bytes_ = 0;
};

// Requests whose sizes `draw` gives; random blocks go first while more than `live_bytes` would be
// held.
template <class Draw>
void replace_at_random(Traffic& traffic, std::uint64_t live_bytes, int requests, Draw draw) {
  Blocks blocks(traffic);
  for (int i = 0; i < traffic.times(requests); ++i) {
    const std::uint64_t size_bytes = draw();
    while (!blocks.is_empty() && blocks.bytes() + size_bytes > live_bytes) blocks.free_random();
    blocks.add(size_bytes);
  }
  blocks.free_all();
}

}  // namespace headroom::bench
