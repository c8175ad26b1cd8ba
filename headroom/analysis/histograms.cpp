#include "headroom/analysis/histograms.h"

#include <algorithm>
#include <bit>

namespace headroom::analysis {
namespace {

void count(HistogramBin& bin, const Lifetime& lifetime) {
  ++bin.blocks;
  bin.bytes += lifetime.requested_bytes;
}

// Without the empty bins before the first and behind the last.
std::vector<HistogramBin> trimmed(std::vector<HistogramBin> bins) {
  const auto is_used = [](const HistogramBin& bin) { return bin.blocks > 0; };
  const auto last = std::find_if(bins.rbegin(), bins.rend(), is_used).base();
  bins.erase(last, bins.end());
  bins.erase(bins.begin(), std::ranges::find_if(bins, is_used));
  return bins;
}

// 0 to 1, 1 to 10, 10 to 100 and on.
std::vector<HistogramBin> decades() {
  std::vector<HistogramBin> bins{{.low = 0, .high = 1}};
  for (std::uint64_t low = 1; low < UINT64_MAX / 10; low *= 10) {
    bins.push_back({.low = low, .high = low * 10});
  }
  bins.back().high = UINT64_MAX;
  return bins;
}

void count_in(std::vector<HistogramBin>& bins, std::uint64_t value, const Lifetime& lifetime) {
  const auto bin = std::ranges::upper_bound(bins, value, {}, &HistogramBin::low);
  count(*std::prev(bin), lifetime);
}

}  // namespace

std::vector<HistogramBin> size_histogram(const TraceIndex& index) {
  std::vector<HistogramBin> bins(65);
  bins[0] = {.low = 0, .high = 1};
  for (std::size_t i = 1; i < bins.size(); ++i) {
    bins[i].low = std::uint64_t{1} << (i - 1);
    bins[i].high = i == 64 ? UINT64_MAX : bins[i].low << 1U;
  }
  for (const Lifetime& lifetime : index.lifetimes()) {
    count(bins[static_cast<std::size_t>(std::bit_width(lifetime.requested_bytes))], lifetime);
  }
  return trimmed(std::move(bins));
}

LifetimeHistogram lifetime_histogram(const TraceIndex& index) {
  LifetimeHistogram out{.by_events = decades(), .by_time_us = decades()};
  for (const Lifetime& lifetime : index.lifetimes()) {
    if (lifetime.is_initial()) {
      count(out.initial, lifetime);
    } else if (lifetime.is_final()) {
      count(out.final, lifetime);
    } else {
      const std::int64_t from = index.events().time_us(lifetime.alloc_event);
      const std::int64_t to = index.events().time_us(lifetime.end_event);
      count_in(out.by_events, lifetime.end_event - lifetime.alloc_event, lifetime);
      const std::uint64_t taken = static_cast<std::uint64_t>(to) - static_cast<std::uint64_t>(from);
      count_in(out.by_time_us, to > from ? taken : 0, lifetime);
    }
  }
  out.by_events = trimmed(std::move(out.by_events));
  out.by_time_us = trimmed(std::move(out.by_time_us));
  return out;
}

}  // namespace headroom::analysis
