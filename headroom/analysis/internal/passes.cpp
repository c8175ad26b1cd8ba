#include "headroom/analysis/internal/passes.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace headroom::analysis::internal {
namespace {

// A pass is over when this part of what it kept at its turn is left, ...
constexpr double kDrained = 0.3;
// ... and one that keeps less than this part of what the largest keeps is none.
constexpr double kSmallestPass = 0.2;
constexpr std::int64_t kFewestKept = 3;

class PassFinder {
 public:
  explicit PassFinder(const TraceIndex& index)
      : index_(index), blocks_(index.lifetimes()), end_(index.end_position()) {
    for (std::size_t i = blocks_.size(); i-- > 0;) {
      if (blocks_[i].is_initial()) break;
      last_alloc_ = blocks_[i].alloc_event;
      break;
    }
    find_stayers();
  }

  Passes run() {
    mark_freed_together();
    count_depth();
    find_turns();
    let_last_pass_go();
    for (std::size_t i = 0; i < out_.all.size(); ++i) fit(i);
    join_recomputed();
    return std::move(out_);
  }

 private:
  // A program that ends frees everything behind its last allocation. One that was recorded while
  // it ran, or that failed, frees there what it happens to hold.
  void find_stayers() {
    const auto old = blocks_.first((blocks_.size() + 1) / 2);
    const bool is_running = std::ranges::any_of(old, &Lifetime::is_final);
    out_.is_stayer.assign(blocks_.size(), 0);
    for (std::size_t id = 0; id < blocks_.size(); ++id) {
      const bool stays = is_running ? blocks_[id].is_final() : free_of(blocks_[id]) >= last_alloc_;
      if (!stays) continue;
      out_.is_stayer[id] = 1;
      // The later half may have what the end of the recording caught in the middle of a pass.
      if (id * 2 < blocks_.size()) old_sizes_.insert(blocks_[id].requested_bytes);
    }
  }

  // The last pass may end behind the last allocation. What it made goes before what was there.
  void let_last_pass_go() {
    if (out_.all.size() < 2) return;
    const std::uint32_t begin = out_.all.back().begin;
    std::uint32_t older_goes = kNoEvent;
    for (std::size_t id = 0; id < blocks_.size() && birth_of(blocks_[id]) < begin; ++id) {
      if (out_.is_stayer[id] != 0) older_goes = std::min(older_goes, free_of(blocks_[id]));
    }
    for (std::size_t id = blocks_.size(); id-- > 0 && birth_of(blocks_[id]) >= begin;) {
      if (out_.is_stayer[id] == 0 || free_of(blocks_[id]) >= older_goes) continue;
      out_.is_stayer[id] = 0;
      out_.is_freed_together[id] = has_old_size(blocks_[id]) ? 1 : 0;
    }
  }

  static std::uint32_t free_of(const Lifetime& block) {
    return std::min(block.free_event, block.end_event);
  }
  static std::uint32_t birth_of(const Lifetime& block) {
    return block.is_initial() ? 0 : block.alloc_event;
  }
  [[nodiscard]] bool has_old_size(const Lifetime& block) const {
    return old_sizes_.contains(block.requested_bytes);
  }

  // Gradients go together, with no allocation between, and have the sizes of parameters. They
  // would hide the fall behind a turn.
  void mark_freed_together() {
    std::vector<std::uint32_t> run;
    std::vector<std::vector<std::uint32_t>> runs;
    std::size_t longest = 0;
    const auto close = [&] {
      longest = std::max(longest, run.size());
      if (run.size() > 1) runs.push_back(run);
      run.clear();
    };
    const Events& events = index_.events();
    for (std::uint32_t event = 0; event < end_; ++event) {
      const Action action = events.action(event);
      if (action == Action::kAlloc) close();
      const std::uint32_t id = index_.lifetime_of(event);
      if (action != Action::kFreeRequested || id == kNoEvent) continue;
      const Lifetime& block = blocks_[id];
      const bool goes = block.free_event == event && out_.is_stayer[id] == 0;
      if (goes && has_old_size(block)) run.push_back(id);
    }
    close();
    out_.is_freed_together.assign(blocks_.size(), 0);
    for (const auto& ids : runs) {
      if (ids.size() * 4 < longest) continue;
      for (const std::uint32_t id : ids) out_.is_freed_together[id] = 1;
    }
  }

  // How many blocks that come and go there are behind each event.
  void count_depth() {
    std::vector<std::int32_t> change(std::size_t{end_} + 1, 0);
    for (std::size_t id = 0; id < blocks_.size(); ++id) {
      if (!is_transient(id)) continue;
      ++change[birth_of(blocks_[id])];
      --change[free_of(blocks_[id])];
    }
    depth_.reserve(change.size());
    std::int64_t sum = 0;
    for (const std::int32_t by : change) {
      sum += by;
      depth_.push_back(sum);
    }
  }

  [[nodiscard]] bool is_transient(std::size_t id) const {
    return out_.is_stayer[id] == 0 && out_.is_freed_together[id] == 0;
  }

  // Rises above a threshold and falls to a part of the highest point between.
  void find_turns() {
    const std::int64_t most = *std::ranges::max_element(depth_);
    const auto smallest =
        std::max(kFewestKept, static_cast<std::int64_t>(kSmallestPass * static_cast<double>(most)));
    std::int64_t low = 0;
    std::uint32_t low_at = 0;
    std::int64_t high = 0;
    std::uint32_t high_at = 0;
    bool is_rising = false;
    for (std::uint32_t event = 0; event < end_; ++event) {
      const std::int64_t now = depth_[event];
      if (!is_rising) {
        if (now <= low) low = now, low_at = event;
        if (now - low < smallest) continue;
        is_rising = true;
        high = now;
        high_at = event;
      } else if (now > high) {
        high = now;
        high_at = event;
      } else if (is_drained(now - low, high - low, most)) {
        out_.all.push_back({.begin = low_at, .turn = high_at, .end = event});
        is_rising = false;
        low = now;
        low_at = event;
      }
    }
  }

  // Where even the largest pass keeps little, a batch and a loss that outlive it count.
  static bool is_drained(std::int64_t left, std::int64_t kept, std::int64_t most) {
    constexpr std::int64_t kLittle = 9;
    constexpr std::int64_t kHeld = 4;
    if (most <= kLittle && left <= kHeld && left * 2 <= kept) return true;
    return static_cast<double>(left) <= kDrained * static_cast<double>(kept);
  }

  // The lifetimes that begin in [from, to), as numbers.
  [[nodiscard]] std::pair<std::size_t, std::size_t> born_in(std::uint32_t from,
                                                            std::uint32_t to) const {
    const auto at = [&](std::uint32_t event) {
      return static_cast<std::size_t>(
          std::ranges::partition_point(blocks_,
                                       [&](const Lifetime& block) {
                                         return block.is_initial() || block.alloc_event < event;
                                       }) -
          blocks_.begin());
    };
    return {at(from), at(to)};
  }

  void fit(std::size_t number) {
    Pass& pass = out_.all[number];
    const std::uint32_t earliest = number == 0 ? 0 : out_.all[number - 1].end;
    const std::uint32_t latest = number + 1 < out_.all.size() ? out_.all[number + 1].begin : end_;
    const auto [first, last] = born_in(earliest, pass.turn + 1);
    for (std::size_t id = first; id < last; ++id) {
      if (!is_transient(id) || free_of(blocks_[id]) <= pass.turn) continue;
      pass.begin = blocks_[id].alloc_event;
      break;
    }
    turn_at_loss(pass);
    pass.end = backward_end(pass, latest);
  }

  // While something lives that the backward made and gives up again, it goes on; and where it soon
  // gives up more of what the forward kept.
  [[nodiscard]] std::uint32_t backward_end(const Pass& pass, std::uint32_t latest) const {
    constexpr std::uint32_t kSoonEvents = 16;
    std::vector<std::uint32_t> kept_ends;
    const auto [first, turn] = born_in(pass.begin, pass.turn + 1);
    for (std::size_t id = first; id < turn; ++id) {
      const std::uint32_t end = free_of(blocks_[id]);
      if (is_transient(id) && end > pass.end && end < latest) kept_ends.push_back(end);
    }
    std::ranges::sort(kept_ends);
    std::uint32_t end = pass.end;
    auto kept = kept_ends.begin();
    auto [next, stop] = born_in(pass.turn + 1, latest);
    while (true) {
      for (; next < stop && blocks_[next].alloc_event <= end; ++next) {
        const Lifetime& block = blocks_[next];
        if (is_transient(next) && free_of(block) < latest) end = std::max(end, free_of(block));
      }
      while (kept != kept_ends.end() && *kept <= end) ++kept;
      if (kept == kept_ends.end() || *kept > end + kSoonEvents) return end;
      // Not over gradients or the optimiser's state, for a batch that is given up behind them.
      if (goes_together_in(end, *kept)) return end;
      for (std::size_t id = next; id < stop && blocks_[id].alloc_event < *kept; ++id) {
        if (out_.is_stayer[id] != 0) return end;
      }
      end = *kept;
    }
  }

  // Where a backward computes parts of the forward again, each part rises and falls in it. What the
  // forward kept for a part goes with it.
  void join_recomputed() {
    std::vector<Pass> joined;
    std::vector<std::uint32_t> kept_ends;  // of what the last one's forward made
    for (const Pass& pass : out_.all) {
      if (!joined.empty() && is_part(pass, joined.back(), kept_ends)) {
        joined.back().end = pass.end;
        continue;
      }
      joined.push_back(pass);
      kept_ends.clear();
      const auto [first, last] = born_in(pass.begin, pass.turn);
      for (std::size_t id = first; id < last; ++id) {
        if (is_transient(id)) kept_ends.push_back(free_of(blocks_[id]));
      }
      std::ranges::sort(kept_ends);
    }
    out_.all = std::move(joined);
  }

  [[nodiscard]] bool is_part(const Pass& part,
                             const Pass& whole,
                             const std::vector<std::uint32_t>& kept_ends) const {
    const auto [first, last] = born_in(whole.begin, whole.turn);
    const auto [part_first, part_last] = born_in(part.begin, part.turn);
    const bool is_small = (part_last - part_first) * 4 < (last - first) * 3;
    if (is_small && !goes_together_in(whole.end, part.begin)) return true;
    const auto end = std::ranges::upper_bound(kept_ends, part.turn);
    return end != kept_ends.end() && *end <= part.end;
  }

  [[nodiscard]] bool goes_together_in(std::uint32_t from, std::uint32_t to) const {
    for (std::uint32_t event = from; event < to; ++event) {
      const std::uint32_t id = index_.lifetime_of(event);
      if (id == kNoEvent || blocks_[id].free_event != event) continue;
      if (out_.is_freed_together[id] != 0) return true;
    }
    return false;
  }

  // The backward starts with the gradient of the loss, a number next to the loss itself. Most was
  // kept there, some steps later, or a few earlier.
  void turn_at_loss(Pass& pass) const {
    constexpr std::size_t kSoon = 12;
    constexpr std::size_t kNear = 4;
    const auto [first, last] = born_in(pass.begin, pass.turn + 1);
    const auto [after, stop] = born_in(pass.turn + 1, pass.end);
    const std::size_t soon = std::min(stop, after + kSoon);
    std::size_t before = after;
    for (std::size_t id = after; id < soon; ++id) {
      if (!is_number(id)) continue;
      if (before != after && id - before <= kNear) {
        pass.turn = blocks_[before].alloc_event;
        return;
      }
      before = id;
    }
    std::size_t found = last;
    std::size_t numbers = 0;
    for (std::size_t id = last; id-- > first;) {
      if (numbers > 1 && found - id > kNear) break;
      if (!is_number(id)) continue;
      numbers = numbers > 0 && found - id <= kNear ? numbers + 1 : 1;
      found = id;
    }
    if (numbers > 1) pass.turn = blocks_[found].alloc_event;
  }

  [[nodiscard]] bool is_number(std::size_t id) const {
    constexpr std::uint64_t kNumberBytes = 8;
    return blocks_[id].requested_bytes <= kNumberBytes;
  }

  const TraceIndex& index_;
  std::span<const Lifetime> blocks_;
  std::uint32_t end_;
  std::uint32_t last_alloc_ = 0;
  std::unordered_set<std::uint64_t> old_sizes_;  // of stayers
  std::vector<std::int64_t> depth_;
  Passes out_;
};

}  // namespace

Passes find_passes(const TraceIndex& index) { return PassFinder(index).run(); }

}  // namespace headroom::analysis::internal
