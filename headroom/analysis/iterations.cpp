#include "headroom/analysis/iterations.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace headroom::analysis {
namespace {

// --- From annotations ----------------------------------------------------------------------------

// `ProfilerStep#12` and `ProfilerStep#13` are one scope.
std::string_view scope_name(std::string_view name) {
  const std::size_t last = name.find_last_not_of("0123456789");
  if (last == std::string_view::npos || last + 1 == name.size()) return name;
  const std::size_t end = name.find_last_not_of("#_ ", last);
  return end == std::string_view::npos ? name : name.substr(0, end + 1);
}

// The lower, the likelier it is once an iteration.
int rank_of(std::string_view name) {
  if (name.starts_with("Optimizer.step")) return 0;
  if (name.starts_with("ProfilerStep")) return 1;
  if (name == "step" || name == "train_step" || name == "iteration") return 2;
  return 3;
}

struct Scope {
  std::vector<std::uint32_t> starts{};
  std::vector<std::uint32_t> ends{};

  // The ends, where a step's own work is done; a scope that only starts has but those.
  [[nodiscard]] const std::vector<std::uint32_t>& marks() const {
    return ends.size() >= starts.size() ? ends : starts;
  }
};

std::map<std::string_view, Scope> scopes_of(const TraceIndex& index) {
  std::map<std::string_view, Scope> out;
  const std::int64_t first_us = index.time_us_at(0);
  for (const Annotation& annotation : index.trace().annotations) {
    if (annotation.rank != index.device().rank || annotation.time_us < first_us) continue;
    Scope& scope = out[scope_name(index.trace().strings[annotation.name])];
    const std::uint32_t position = index.position_at(annotation.time_us);
    (annotation.is_start ? scope.starts : scope.ends).push_back(position);
  }
  for (auto& [name, scope] : out) {
    for (auto* marks : {&scope.starts, &scope.ends}) {
      std::ranges::sort(*marks);
      marks->erase(std::unique(marks->begin(), marks->end()), marks->end());
    }
  }
  return out;
}

std::optional<Iterations> from_annotations(const TraceIndex& index) {
  const auto scopes = scopes_of(index);
  const std::pair<const std::string_view, Scope>* best = nullptr;
  for (const auto& entry : scopes) {
    const std::size_t count = entry.second.marks().size();
    if (count < kFewestIterations + 1) continue;
    // Of scopes that are equally likely, the outermost: it comes least often.
    const auto key = [](const auto& scope) {
      return std::pair(rank_of(scope.first), scope.second.marks().size());
    };
    if (best == nullptr || key(entry) < key(*best)) best = &entry;
  }
  if (best == nullptr) return std::nullopt;
  return Iterations{.source = IterationSource::kAnnotations,
                    .marker = std::string(best->first),
                    .bounds = best->second.marks()};
}

// --- From the traffic ----------------------------------------------------------------------------

class PeriodFinder {
 public:
  explicit PeriodFinder(const TraceIndex& index) {
    const Events& events = index.events();
    for (std::uint32_t event = 0; event < events.size(); ++event) {
      if (events.action(event) != Action::kAlloc) continue;
      sizes_.push_back(events.size_bytes(event));
      events_.push_back(event);
    }
  }

  [[nodiscard]] std::optional<Iterations> find() const {
    const std::optional<std::size_t> period = best_period();
    if (!period) return std::nullopt;
    Iterations out{.source = IterationSource::kTraffic, .period_allocs = *period};
    std::size_t end = last_end(*period);
    out.bounds.push_back(position_of(end));
    while (end >= 2 * *period && matches(end - *period, end, *period) >= kAlike) {
      end -= *period;
      out.bounds.push_back(position_of(end));
    }
    // The first of those that are alike has nothing before it to be compared with.
    if (end >= *period) out.bounds.push_back(position_of(end - *period));
    std::ranges::reverse(out.bounds);
    if (out.count() < kFewestIterations) return std::nullopt;
    return out;
  }

 private:
  static constexpr double kAlike = 0.5;  // of the sizes, for one iteration to follow another
  static constexpr double kCloseToBest = 0.02;
  static constexpr std::size_t kMostCandidates = 64;

  // How much of [from, to) is what was asked for a period earlier.
  [[nodiscard]] double matches(std::size_t from, std::size_t to, std::size_t period) const {
    from = std::max(from, period);
    if (to <= from) return 0;
    std::size_t same = 0;
    for (std::size_t i = from; i < to; ++i) same += sizes_[i] == sizes_[i - period] ? 1 : 0;
    return static_cast<double>(same) / static_cast<double>(to - from);
  }

  // Distances between equal runs of `length` sizes, those that occur most often first.
  void add_candidates(std::size_t length, std::vector<std::size_t>& out) const {
    std::unordered_map<std::uint64_t, std::size_t> last_seen;
    std::unordered_map<std::size_t, std::size_t> counts;
    for (std::size_t i = sizes_.size() / 4; i + length <= sizes_.size(); ++i) {
      std::uint64_t hash = 0;
      for (std::size_t k = 0; k < length; ++k) {
        hash = (hash ^ sizes_[i + k]) * 0x9E3779B97F4A7C15U;
        hash ^= hash >> 29U;
      }
      const auto [seen, is_new] = last_seen.try_emplace(hash, i);
      if (!is_new) ++counts[i - std::exchange(seen->second, i)];
    }
    std::vector<std::pair<std::size_t, std::size_t>> by_count;
    by_count.reserve(counts.size());
    for (const auto& [distance, count] : counts) by_count.emplace_back(count, distance);
    std::ranges::sort(by_count, [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    for (std::size_t i = 0; i < std::min(by_count.size(), kMostCandidates); ++i) {
      out.push_back(by_count[i].second);
    }
  }

  // The shortest of those that repeat about as well as the best; its multiples do too.
  [[nodiscard]] std::optional<std::size_t> best_period() const {
    const std::size_t longest = sizes_.size() / (kFewestIterations + 1);
    std::vector<std::size_t> candidates;
    for (const std::size_t length : {1U, 4U, 16U}) add_candidates(length, candidates);
    std::erase_if(candidates, [&](std::size_t period) { return period > longest; });
    std::ranges::sort(candidates);
    candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
    std::vector<double> scores;
    scores.reserve(candidates.size());
    for (const std::size_t period : candidates) {
      scores.push_back(matches(sizes_.size() / 2, sizes_.size(), period));
    }
    if (scores.empty()) return std::nullopt;
    const double best = *std::ranges::max_element(scores);
    if (best < kAlike) return std::nullopt;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      if (scores[i] >= best - kCloseToBest) return candidates[i];
    }
    return std::nullopt;
  }

  // Where the last iteration ends: a program may do something else at its end.
  [[nodiscard]] std::size_t last_end(std::size_t period) const {
    std::size_t end = sizes_.size();
    const std::size_t step = std::max<std::size_t>(1, period / 4);
    while (end > sizes_.size() / 2 && end >= 2 * period &&
           matches(end - period, end, period) < kAlike) {
      end -= step;
    }
    return end;
  }

  // Before the allocation of that number.
  [[nodiscard]] std::uint32_t position_of(std::size_t alloc) const {
    return alloc < events_.size() ? events_[alloc] : events_.back() + 1;
  }

  std::vector<std::uint64_t> sizes_;
  std::vector<std::uint32_t> events_;
};

}  // namespace

Iterations find_iterations(const TraceIndex& index) {
  Iterations annotated = from_annotations(index).value_or(Iterations{});
  // A few marked steps before a long stretch of something else say nothing about that.
  const auto covered = [](const Iterations& found) {
    return found.count() == 0 ? 0 : found.bounds.back() - found.bounds.front();
  };
  if (covered(annotated) >= index.end_position() / 2 && annotated.count() > 0) return annotated;
  Iterations periodic = PeriodFinder(index).find().value_or(Iterations{});
  // A short stretch that repeats is a loop inside something else.
  if (covered(periodic) < index.end_position() / 3) periodic = {};
  return covered(periodic) > covered(annotated) ? periodic : annotated;
}

}  // namespace headroom::analysis
