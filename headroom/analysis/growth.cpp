#include "headroom/analysis/growth.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <unordered_map>
#include <utility>

#include "headroom/analysis/sites.h"

namespace headroom::analysis {
namespace {

constexpr std::size_t kFewestGrowing = 4;
// Where nothing says what an iteration is, more is asked for.
constexpr std::size_t kEqualParts = 16;
constexpr std::size_t kFewestGrowingParts = 8;

using Bounds = std::vector<std::uint32_t>;

// So many parts with equally many events, without the first events, which set things up.
Bounds equal_parts(const TraceIndex& index) {
  Bounds out;
  const std::uint64_t end = index.end_position();
  if (end < kEqualParts * 8) return out;
  for (std::uint64_t i = 0; i <= kEqualParts; ++i) {
    out.push_back(static_cast<std::uint32_t>(end * i / kEqualParts));
  }
  return out;
}

// Which part an event lies in, or nothing outside of them.
std::optional<std::size_t> part_of(const Bounds& bounds, std::uint32_t event) {
  if (event == kNoEvent) return std::nullopt;
  const auto after = std::ranges::upper_bound(bounds, event);
  if (after == bounds.begin() || after == bounds.end()) return std::nullopt;
  return static_cast<std::size_t>(after - bounds.begin()) - 1;
}

// The blocks held at the end of the last part, by the part that allocated them.
struct Survivors {
  std::vector<std::vector<std::uint32_t>> blocks{};
  std::vector<std::uint64_t> bytes{};
};

Survivors survivors_of(const TraceIndex& index, const Bounds& bounds) {
  Survivors out;
  out.blocks.resize(bounds.size() - 1);
  out.bytes.resize(bounds.size() - 1);
  for (const std::uint32_t id : index.allocated_at(bounds.back())) {
    const Lifetime& block = index.lifetimes()[id];
    const auto part = part_of(bounds, block.alloc_event);
    if (!part) continue;
    out.blocks[*part].push_back(id);
    out.bytes[*part] += block.live_bytes();
  }
  return out;
}

// At each bound, the bytes held since before the bound before it: what is not in flight.
std::vector<std::int64_t> long_held(const TraceIndex& index, const Bounds& bounds) {
  std::vector<std::int64_t> change(bounds.size() + 1);
  for (const Lifetime& block : index.lifetimes()) {
    // The first bound at which it has stood for a part, and the first at which it is gone.
    std::size_t from = 0;
    if (!block.is_initial()) {
      from = static_cast<std::size_t>(std::ranges::upper_bound(bounds, block.alloc_event) -
                                      bounds.begin()) +
             1;
    }
    std::size_t to = bounds.size();
    const std::uint32_t freed = block.free_event != kNoEvent ? block.free_event : block.end_event;
    if (freed != kNoEvent) {
      to = static_cast<std::size_t>(std::ranges::upper_bound(bounds, freed) - bounds.begin());
    }
    if (from >= to) continue;
    change[from] += static_cast<std::int64_t>(block.live_bytes());
    change[to] -= static_cast<std::int64_t>(block.live_bytes());
  }
  change.pop_back();
  std::partial_sum(change.begin(), change.end(), change.begin());
  return change;
}

// The parts from `first` to before `last`, `width` of them together, all of which grow.
struct Run {
  std::size_t first = 0;
  std::size_t last = 0;
  std::size_t width = 1;
  [[nodiscard]] std::size_t size() const noexcept { return last - first; }
};

// The longest run that ends with the last part but one: what the last holds may be in flight.
Run growing_run(std::span<const std::uint64_t> bytes, std::size_t width) {
  const std::size_t last = bytes.size() - 1;
  std::size_t first = last;
  while (first >= width) {
    const auto part = bytes.subspan(first - width, width);
    if (std::ranges::all_of(part, [](std::uint64_t b) { return b == 0; })) break;
    first -= width;
  }
  return {.first = first, .last = last, .width = width};
}

bool is_long(const Run& run, std::size_t parts, std::size_t fewest) {
  const std::size_t groups = run.size() / run.width;
  return groups >= fewest && groups * 4 >= parts / run.width;
}

std::uint64_t sum(std::span<const std::uint64_t> bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
}

// The bytes held for long must rise by the survivors, or as much goes as comes.
bool is_net_growth(const Run& run,
                   std::span<const std::int64_t> held,
                   std::span<const std::uint64_t> bytes) {
  const std::int64_t rise = held[run.last + 1] - held[run.first + 1];
  const std::uint64_t added = sum(bytes.subspan(run.first, run.size()));
  return rise > 0 && static_cast<std::uint64_t>(rise) >= added / 2;
}

// The value that at least half of them have.
std::optional<std::uint64_t> most_common(std::span<const std::uint64_t> bytes) {
  std::map<std::uint64_t, std::size_t> counts;
  for (const std::uint64_t value : bytes) ++counts[value];
  for (const auto& [value, count] : counts) {
    if (2 * count >= bytes.size() && value > 0) return value;
  }
  return std::nullopt;
}

std::uint64_t rate(std::span<const std::uint64_t> bytes) {
  return most_common(bytes).value_or(sum(bytes) / bytes.size());
}

// --- Who -----------------------------------------------------------------------------------------

class Sources {
 public:
  Sources(const TraceIndex& index, const Run& run)
      : index_(index), run_(run), sites_(index.trace()) {}

  void add(std::size_t part, std::span<const std::uint32_t> blocks) {
    for (const std::uint32_t id : blocks) {
      const Lifetime& block = index_.lifetimes()[id];
      Entry& entry = by_site_[sites_.site_of(block.stack)];
      entry.bytes.resize(run_.size());
      entry.bytes[part - run_.first] += block.live_bytes();
      ++entry.blocks;
      if (entry.stack == 0) entry.stack = block.stack;
    }
  }

  [[nodiscard]] std::vector<GrowingSite> all() const {
    std::vector<GrowingSite> out;
    for (const auto& [site, entry] : by_site_) {
      out.push_back({.site = sites_.name(site),
                     .bytes_per_iteration = rate(entry.bytes),
                     .blocks = entry.blocks,
                     .stack = entry.stack});
    }
    // A block that came once is no growth.
    std::erase_if(out, [](const GrowingSite& site) { return site.bytes_per_iteration == 0; });
    std::ranges::sort(out, [](const GrowingSite& a, const GrowingSite& b) {
      return a.bytes_per_iteration != b.bytes_per_iteration
                 ? a.bytes_per_iteration > b.bytes_per_iteration
                 : a.site < b.site;
    });
    return out;
  }

 private:
  struct Entry {
    std::vector<std::uint64_t> bytes{};
    std::uint64_t blocks = 0;
    StackId stack = 0;
  };
  const TraceIndex& index_;
  const Run& run_;
  Sites sites_;
  std::unordered_map<SiteId, Entry> by_site_;
};

// --- The running sum -----------------------------------------------------------------------------

// Looks for stacks that allocate one small block an iteration, which goes when its successor has
// come. The loss itself does that too; the sum is asked for later, after the backward pass.
class SumFinder {
 public:
  SumFinder(const TraceIndex& index, const Bounds& bounds, const Run& run)
      : index_(index), run_(run), from_(bounds[run.first]), to_(bounds[run.last]) {}

  std::optional<std::string> find(std::span<const std::vector<std::uint32_t>> leaked) {
    for (const auto& blocks : leaked) {
      for (const std::uint32_t id : blocks) leaks_.push_back(index_.lifetimes()[id].alloc_event);
    }
    std::ranges::sort(leaks_);
    std::optional<StackId> best;
    std::uint64_t farthest = 0;
    for (const auto& [stack, blocks] : small_blocks()) {
      if (!is_replaced_each_time(blocks)) continue;
      const std::uint64_t distance = behind_leaks(blocks);
      if (best && distance <= farthest) continue;
      best = stack;
      farthest = distance;
    }
    if (!best) return std::nullopt;
    Sites sites(index_.trace());
    return sites.name(sites.site_of(*best));
  }

 private:
  static constexpr std::uint32_t kHandover = 64;  // events until the old one goes

  using Blocks = std::vector<const Lifetime*>;

  [[nodiscard]] std::map<StackId, Blocks> small_blocks() const {
    std::map<StackId, Blocks> out;
    for (const Lifetime& block : index_.lifetimes()) {
      if (block.is_initial() || block.stack == 0 || block.alloc_event < from_ ||
          block.alloc_event >= to_ || block.live_bytes() > memory::kMinBlockBytes) {
        continue;
      }
      if (index_.trace().stacks.frame_ids(block.stack).empty()) continue;
      out[block.stack].push_back(&block);
    }
    return out;
  }

  [[nodiscard]] bool is_replaced_each_time(const Blocks& blocks) const {
    if (blocks.size() + 1 < run_.size() || blocks.size() > run_.size() + 1) return false;
    for (std::size_t i = 0; i + 1 < blocks.size(); ++i) {
      const std::uint32_t next = blocks[i + 1]->alloc_event;
      const std::uint32_t gone = blocks[i]->end_event;
      if (gone == kNoEvent || gone < next || gone - next > kHandover) return false;
    }
    return true;
  }

  // Events since the last block that leaks, summed up.
  [[nodiscard]] std::uint64_t behind_leaks(const Blocks& blocks) const {
    std::uint64_t distance = 0;
    for (const Lifetime* block : blocks) {
      const auto after = std::ranges::upper_bound(leaks_, block->alloc_event);
      if (after != leaks_.begin()) distance += block->alloc_event - *std::prev(after);
    }
    return distance;
  }

  const TraceIndex& index_;
  const Run& run_;
  std::uint32_t from_;
  std::uint32_t to_;
  std::vector<std::uint32_t> leaks_;
};

// --- All of it -----------------------------------------------------------------------------------

Growth describe(const TraceIndex& index,
                const Bounds& bounds,
                const Run& run,
                const Survivors& survivors) {
  const auto bytes = std::span(survivors.bytes).subspan(run.first, run.size());
  const auto blocks = std::span(survivors.blocks).subspan(run.first, run.size());
  Growth out{.growing = run.size(),
             .bytes_per_iteration = rate(bytes),
             .is_same_each_time = most_common(bytes).has_value(),
             .total_bytes = sum(bytes)};
  Sources sources(index, run);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    out.blocks += blocks[i].size();
    sources.add(run.first + i, blocks[i]);
  }
  out.sites = sources.all();
  out.sum_site = SumFinder(index, bounds, run).find(blocks);
  return out;
}

std::optional<Run> steady_run(const TraceIndex& index,
                              const Bounds& bounds,
                              const Survivors& survivors,
                              bool has_iterations) {
  const std::size_t parts = bounds.size() - 1;
  if (parts < 2) return std::nullopt;
  const std::vector<std::int64_t> held = long_held(index, bounds);
  // A pattern that returns every second or fourth iteration is steady too.
  for (const std::size_t width : {1U, 2U, 4U, 8U}) {
    if (width > 1 && !has_iterations) break;
    const Run run = growing_run(survivors.bytes, width);
    const std::size_t fewest = has_iterations ? kFewestGrowing : kFewestGrowingParts;
    if (is_long(run, parts, fewest) && is_net_growth(run, held, survivors.bytes)) return run;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Growth> find_growth(const TraceIndex& index, const Iterations& iterations) {
  const bool has_iterations = iterations.count() > 0;
  const Bounds bounds = has_iterations ? iterations.bounds : equal_parts(index);
  if (bounds.size() < kFewestGrowing + 2) return std::nullopt;
  const Survivors survivors = survivors_of(index, bounds);
  const auto run = steady_run(index, bounds, survivors, has_iterations);
  if (!run) return std::nullopt;
  Growth growth = describe(index, bounds, *run, survivors);
  growth.source = iterations.source;
  growth.marker = iterations.marker;
  growth.iterations = bounds.size() - 1;
  return growth;
}

}  // namespace headroom::analysis
