#include "headroom/solve/pack.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <utility>
#include <vector>

#include "headroom/base/check.h"
#include "headroom/base/error.h"
#include "headroom/solve/internal/part.h"
#include "headroom/solve/internal/part_packer.h"
#include "headroom/solve/validate_packing.h"

namespace headroom::solve {
namespace {

using Clock = std::chrono::steady_clock;
using internal::Part;
using internal::PartPacker;

// Of the time: beginnings that are not among the first are worth less than repair.
constexpr double kShareOfStarts = 0.15;

class Packer {
 public:
  Packer(std::span<const Buffer> buffers, const PackOptions& options)
      : buffers_(buffers), options_(options), parts_(internal::split_into_parts(buffers)) {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      std::vector<double> lengths;
      std::vector<std::optional<std::uint64_t>> hints;
      for (const std::size_t b : parts_[i].buffers) {
        lengths.push_back(static_cast<double>(buffers[b].upper - buffers[b].lower));
        hints.push_back(buffers[b].hint_offset);
      }
      packers_.emplace_back(parts_[i], std::move(lengths), std::move(hints), options.seed + i);
    }
  }

  PackResult run() {
    const auto is_over = [this] { return seconds() >= options_.seconds; };
    const auto is_late = [this] { return seconds() >= kShareOfStarts * options_.seconds; };
    for (PartPacker& packer : packers_) {
      packer.start(is_late, is_over);
      tell();
    }
    std::uint64_t rounds = 0;
    while (rounds < options_.most_rounds && !is_over()) {
      PartPacker* const highest = next_to_improve();
      if (highest == nullptr) break;
      highest->improve(options_.capacity_bytes.value_or(0), is_over);
      ++rounds;
      tell();
    }
    return result(rounds);
  }

 private:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(Clock::now() - started_).count();
  }

  [[nodiscard]] std::uint64_t height() const {
    std::uint64_t most = 0;
    for (const PartPacker& packer : packers_) most = std::max(most, packer.height());
    return most;
  }
  [[nodiscard]] std::uint64_t lower_bound() const {
    std::uint64_t most = 0;
    for (const PartPacker& packer : packers_) most = std::max(most, packer.lower_bound());
    return most;
  }

  // The part that decides the height; nobody where that is low enough, or cannot be lower.
  PartPacker* next_to_improve() {
    const std::uint64_t most = height();
    const std::uint64_t least = lower_bound();
    if (most <= least) return nullptr;
    if (options_.capacity_bytes && most <= *options_.capacity_bytes) return nullptr;
    if (options_.capacity_bytes && least > *options_.capacity_bytes) return nullptr;
    return &*std::ranges::find(packers_, most, &PartPacker::height);
  }

  void tell() const {
    if (!options_.progress) return;
    options_.progress(
        {.height_bytes = height(), .lower_bound_bytes = lower_bound(), .seconds = seconds()});
  }

  PackResult result(std::uint64_t rounds) {
    PackResult out{.offsets = Offsets(buffers_.size()),
                   .height_bytes = height(),
                   .lower_bound_bytes = lower_bound(),
                   .rounds = rounds};
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      for (std::size_t k = 0; k < parts_[i].buffers.size(); ++k) {
        out.offsets[parts_[i].buffers[k]] = packers_[i].offsets()[k];
      }
    }
    HEADROOM_CHECK(!find_packing_fault(buffers_, out.offsets, out.height_bytes),
                   "pack made a packing that the validator refuses");
    out.seconds = seconds();
    return out;
  }

  std::span<const Buffer> buffers_;
  const PackOptions& options_;
  Clock::time_point started_ = Clock::now();
  std::vector<Part> parts_;
  std::deque<PartPacker> packers_{};
};

}  // namespace

PackResult pack(std::span<const Buffer> buffers, const PackOptions& options) {
  check_buffers(buffers);
  if (std::isnan(options.seconds) || options.seconds < 0) {
    throw InvalidArgument("pack: seconds must not be negative");
  }
  return Packer(buffers, options).run();
}

}  // namespace headroom::solve
