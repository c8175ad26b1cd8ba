#include "headroom/solve/internal/part_packer.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <numeric>
#include <thread>
#include <utility>

#include "headroom/solve/internal/placed_index.h"
#include "headroom/solve/internal/skyline.h"

namespace headroom::solve::internal {
namespace {

// The search looks at every pair of neighbours in each node.
constexpr std::size_t kMostSearched = 2000;
// Up to here most of the rounds are searches, above it repairs.
constexpr std::size_t kMostSearchedFirst = 600;
// Ways to begin that are tried even where they take all the time there is.
constexpr int kFirstStarts = 4;

constexpr std::uint64_t kMostRepairMoves = 10'000;
constexpr std::uint64_t kRepairMovesPerItem = 20;

// Short searches try many orders, long ones get through where every order is nearly right.
constexpr std::uint64_t kShortSearch = 3'000;
constexpr std::uint64_t kLongSearch = 20'000;
constexpr std::uint64_t kItemsOfFullSearch = 250;
constexpr std::uint64_t kPlainSearches = 40;  // before chance enters
constexpr std::uint64_t kSearchesPerGrowth = 200;

struct Powers {
  double length;
  double size;
};

// Calls act(0) and act(1), at once.
template <class Act>
void do_both(const Act& act) {
  std::jthread second([&] { act(1); });
  act(0);
}

}  // namespace

PartPacker::PartPacker(const Part& part,
                       std::vector<double> lengths,
                       std::vector<std::optional<std::uint64_t>> hints,
                       std::uint64_t seed)
    : part_(part),
      lengths_(std::move(lengths)),
      hints_(std::move(hints)),
      random_(seed),
      seed_(seed),
      lower_bound_(part.peak_load) {
  unit_ = 0;
  for (const Item& item : part.items) {
    unit_ = std::gcd(unit_, item.size);
    if (item.alignment > 1) unit_ = std::gcd(unit_, item.alignment);
  }
}

void PartPacker::take(std::uint64_t height, const Offsets& offsets) {
  if (height >= height_) return;
  height_ = height;
  offsets_ = offsets;
}

void PartPacker::take(const Offsets& offsets) {
  std::uint64_t height = 0;
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    height = std::max(height, offsets[i] + part_.items[i].size);
  }
  take(height, offsets);
}

void PartPacker::start(const std::function<bool()>& is_late, const std::function<bool()>& is_over) {
  Offsets offsets;
  take(pack_by_sweep(part_, offsets), offsets);
  pack_by_hints();
  int tried = 0;
  for (const double gap_cost : {1.0, 4.0, 0.3}) {
    for (const double length_power : {1.0, 0.5, 2.0}) {
      for (const double size_power : {0.0, 0.5, 1.0, 0.25}) {
        if (height_ <= lower_bound_ || is_over()) return;
        if (++tried > kFirstStarts && is_late()) return;
        take(pack_by_skyline(part_, {length_power, size_power, gap_cost}, is_over, offsets),
             offsets);
      }
    }
  }
}

// From the lowest hint up, each at the lowest place that is left.
void PartPacker::pack_by_hints() {
  std::vector<std::uint32_t> order(part_.items.size());
  std::iota(order.begin(), order.end(), 0U);
  if (std::ranges::none_of(hints_, [](const auto& hint) { return hint.has_value(); })) return;
  std::ranges::stable_sort(
      order, {}, [&](std::uint32_t i) { return hints_[i].value_or(UINT64_MAX); });
  PlacedIndex index(part_);
  Offsets offsets(part_.items.size());
  std::uint64_t height = 0;
  for (const std::uint32_t i : order) {
    offsets[i] = index.lowest_offset(part_.items[i], UINT64_MAX);
    height = std::max(height, offsets[i] + part_.items[i].size);
    index.insert(i, offsets[i]);
  }
  take(height, offsets);
}

void PartPacker::improve(std::uint64_t goal, const std::function<bool()>& is_over) {
  const std::size_t count = part_.items.size();
  const bool is_turn = count <= kMostSearchedFirst ? rounds_ % 8 != 7 : rounds_ % 4 == 3;
  ++rounds_;
  if (count <= kMostSearched && is_turn) {
    search(goal, is_over);
  } else {
    repair(goal, is_over);
  }
}

// The goal at once; without one, now the bound itself and now something on the way.
std::uint64_t PartPacker::search_target(std::uint64_t goal) const {
  if (goal >= lower_bound_) return goal;
  const std::uint64_t room = height_ - lower_bound_;
  constexpr std::array<std::uint64_t, 4> kEighths{0, 6, 3, 7};
  const std::uint64_t up = room / 8 * kEighths[searches_ % kEighths.size()];
  return std::min(lower_bound_ + up - up % unit_, height_ - 1);
}

void PartPacker::search(std::uint64_t goal, const std::function<bool()>& is_over) {
  const std::uint64_t growth = 1 + searches_ / kSearchesPerGrowth;
  const std::uint64_t target = search_target(goal);
  const bool is_long = rounds_ % 2 == 0;
  // A node looks at every item: with more of them, fewer nodes.
  const std::uint64_t share = std::max<std::uint64_t>(part_.items.size() / kItemsOfFullSearch, 1);
  const SearchLimits limits{.most_nodes = (is_long ? kLongSearch : kShortSearch) * growth / share,
                            .is_over = is_over};
  std::array<std::vector<std::uint32_t>, 2> ranks;
  for (auto& one : ranks) one = next_ranks();
  std::array<Offsets, 2> offsets;
  std::array<SearchOutcome, 2> outcomes{};
  do_both([&](std::size_t i) {
    if (!searchers_[i]) searchers_[i] = std::make_unique<ExactSearch>(part_);
    outcomes[i] = searchers_[i]->search(target, ranks[i], limits, offsets[i]);
  });
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    if (outcomes[i] == SearchOutcome::kFound) take(offsets[i]);
    if (outcomes[i] == SearchOutcome::kImpossible) {
      lower_bound_ = std::min(height_, (target / unit_ + 1) * unit_);
    }
  }
}

// By products of powers of length, size and the highest load that an item sees: first the plain
// ones, then blurred by chance.
std::vector<std::uint32_t> PartPacker::next_ranks() {
  constexpr std::array<Powers, 5> kPowers{
      Powers{1, 1}, Powers{1, 0.5}, Powers{0.5, 1}, Powers{0.75, 0.75}, Powers{0.25, 1}};
  constexpr std::array<double, 4> kCrowdPowers{0, 100, 3, 10};
  constexpr std::array<double, 3> kBlurs{0.15, 0.3, 0.6};
  if (crowds_.empty()) {
    std::vector<double> loads(part_.moments + 1);
    for (const Item& item : part_.items) {
      for (std::uint32_t t = item.lower; t < item.upper; ++t) {
        loads[t] += static_cast<double>(item.size);
      }
    }
    for (const Item& item : part_.items) {
      crowds_.push_back(*std::max_element(loads.begin() + item.lower, loads.begin() + item.upper));
    }
  }
  const Powers powers = kPowers[searches_ % kPowers.size()];
  const bool counts_moments = searches_ / kPowers.size() % 2 == 0;
  const double crowd_power = kCrowdPowers[searches_ / (2 * kPowers.size()) % kCrowdPowers.size()];
  const double blur = searches_ < kPlainSearches ? 0 : kBlurs[searches_ % kBlurs.size()];
  ++searches_;
  std::normal_distribution<double> chance;
  std::vector<double> keys;
  for (std::size_t i = 0; i < part_.items.size(); ++i) {
    const Item& item = part_.items[i];
    const double length = counts_moments ? item.upper - item.lower : lengths_[i];
    keys.push_back(powers.length * std::log(length) +
                   powers.size * std::log(static_cast<double>(item.size)) +
                   crowd_power * std::log(crowds_[i]) + blur * chance(random_));
  }
  std::vector<std::uint32_t> order(keys.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, std::greater<>(), [&](std::uint32_t i) { return keys[i]; });
  std::vector<std::uint32_t> ranks(order.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) ranks[order[i]] = i;
  return ranks;
}

// A little lower each time: much lower at once is hard, and a little is worth having.
std::uint64_t PartPacker::repair_target(std::uint64_t goal) const {
  const bool is_small = part_.items.size() <= kMostSearchedFirst;
  if (goal >= lower_bound_ && (is_small || failed_repairs_ % 2 == 1)) {
    return std::min(goal, height_ - 1);
  }
  const std::uint64_t shift = std::min<std::uint64_t>(4 + failed_repairs_ / 2, 10);
  const std::uint64_t step = std::max<std::uint64_t>((height_ - lower_bound_) >> shift, 1);
  const std::uint64_t target = height_ - step;
  return std::max(target - target % unit_, lower_bound_);
}

void PartPacker::repair(std::uint64_t goal, const std::function<bool()>& is_over) {
  const std::uint64_t target = repair_target(goal);
  const std::uint64_t moves =
      std::min<std::uint64_t>(kMostRepairMoves, kRepairMovesPerItem * part_.items.size());
  std::array<Offsets, 2> offsets{offsets_, offsets_};
  std::array<bool, 2> is_lower{};
  std::atomic<bool> is_second_idle = false;
  do_both([&](std::size_t i) {
    if (!repairers_[i]) repairers_[i] = std::make_unique<Ejection>(part_);
    const auto is_enough = [&] { return is_over() || (i == 1 && is_second_idle); };
    is_lower[i] = repairers_[i]->lower(
        target, seed_ + 2 * rounds_ + i, {.most_moves = moves, .is_over = is_enough}, offsets[i]);
    if (i == 0) is_second_idle = is_lower[0];
  });
  failed_repairs_ = is_lower[0] || is_lower[1] ? 0 : failed_repairs_ + 1;
  if (is_lower[0]) {
    // The second was stopped somewhere: nothing of it may count.
    take(offsets[0]);
    repairers_[1]->take_prices_of(*repairers_[0]);
  } else if (is_lower[1]) {
    take(offsets[1]);
  }
}

}  // namespace headroom::solve::internal
