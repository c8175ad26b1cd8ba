#include "headroom/analysis/internal/lifetime_roles.h"

#include <algorithm>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>

#include "headroom/analysis/internal/passes.h"
#include "headroom/analysis/internal/recomputed.h"
#include "headroom/base/bytes.h"

namespace headroom::analysis::internal {
namespace {

using memory::Category;
using SizeCounts = std::unordered_map<std::uint64_t, std::uint32_t>;

// Counters of steps, scales and other numbers on the side.
constexpr std::uint64_t kTinyBytes = 512;

// The workspaces of a cuBLAS handle, on GPUs since Hopper and before.
bool is_library_size(std::uint64_t size_bytes) {
  return size_bytes == 32_MiB || size_bytes == 8_MiB + 128_KiB;
}

// Twice a size may be another size of the same model; of many sizes it is not for all of them.
constexpr std::size_t kFewestSizes = 4;

// A program that does the same so often has loaded what was there before.
constexpr std::size_t kFewestRequests = 3;

class Roles {
 public:
  explicit Roles(const TraceIndex& index)
      : index_(index),
        blocks_(index.lifetimes()),
        passes_(find_passes(index)),
        answers_(blocks_.size()) {}

  std::vector<CategoryAnswer> run() {
    if (says_nothing()) return std::move(answers_);
    find_load_end();
    count_parameters();
    find_gradients();
    is_training_ = looks_like_training();
    if (!is_training_) drop_gradients();
    name_stayers();
    name_transients();
    if (is_training_) {
      split_copies();
    } else if (initial_ != 0 && has_backward()) {
      split_kept_gradients();
    }
    return std::move(answers_);
  }

 private:
  static std::uint32_t free_of(const Lifetime& block) {
    return std::min(block.free_event, block.end_event);
  }
  [[nodiscard]] bool is_stayer(std::size_t id) const { return passes_.is_stayer[id] != 0; }
  void set(std::size_t id, Category category, Certainty certainty) {
    answers_[id] = {.category = category, .certainty = certainty};
  }
  [[nodiscard]] const std::vector<Pass>& passes() const { return passes_.all; }

  // The first lifetime that begins at or behind an event.
  [[nodiscard]] std::size_t first_from(std::uint32_t event) const {
    const auto at = std::ranges::partition_point(blocks_, [&](const Lifetime& block) {
      return block.is_initial() || block.alloc_event < event;
    });
    return static_cast<std::size_t>(at - blocks_.begin());
  }

  // A final state, or a load and no more: parameters, or anything else that was there.
  [[nodiscard]] bool says_nothing() const {
    return passes().empty() && std::ranges::count(passes_.is_stayer, 0) < 2;
  }

  // --- Parameters --------------------------------------------------------------------------------

  // A model is there before the first pass. Without passes it ends where blocks begin to come and
  // go more often than they stay.
  void find_load_end() {
    initial_ = first_from(0);
    if (!passes().empty()) {
      load_end_ = first_from(passes().front().begin);
      return;
    }
    std::int64_t sum = 0;
    std::int64_t most = 0;
    load_end_ = initial_;
    for (std::size_t id = initial_; id < blocks_.size(); ++id) {
      sum += is_stayer(id) ? 1 : -1;
      if (sum < most) continue;
      most = sum;
      load_end_ = id + 1;
    }
  }

  void count_parameters() {
    for (std::size_t id = 0; id < load_end_; ++id) {
      if (!is_stayer(id) || is_library_size(blocks_[id].requested_bytes)) continue;
      ++parameters_[blocks_[id].requested_bytes];
      parameter_bytes_ += blocks_[id].requested_bytes;
    }
  }

  // --- Gradients ---------------------------------------------------------------------------------

  // Made in the backward of a pass, in the size of a parameter that has none yet, and there after.
  void find_gradients() {
    SizeCounts held;
    std::vector<std::pair<std::uint32_t, std::uint64_t>> ends;  // by size, as a heap
    const auto release = [&](std::uint32_t now) {
      while (!ends.empty() && ends.front().first < now) {
        --held[ends.front().second];
        std::ranges::pop_heap(ends, std::ranges::greater{});
        ends.pop_back();
      }
    };
    for (const Pass& pass : passes()) {
      const std::size_t stop = first_from(pass.end + 1);
      for (std::size_t id = first_from(pass.turn); id < stop; ++id) {
        const Lifetime& block = blocks_[id];
        if (free_of(block) <= pass.end) continue;
        const auto parameter = parameters_.find(block.requested_bytes);
        if (parameter == parameters_.end()) continue;
        release(block.alloc_event);
        std::uint32_t& count = held[block.requested_bytes];
        if (count >= parameter->second) continue;
        ++count;
        std::uint32_t& most = gradients_[block.requested_bytes];
        most = std::max(most, count);
        ends.emplace_back(free_of(block), block.requested_bytes);
        std::ranges::push_heap(ends, std::ranges::greater{});
        set(id, Category::kGradient, Certainty::kLifetime);
      }
    }
  }

  // Parameters and gradients have so many sizes and so many bytes in common that it is no accident.
  [[nodiscard]] bool looks_like_training() const {
    std::uint64_t bytes = 0;
    std::uint64_t count = 0;
    for (const auto& [size, n] : gradients_) {
      bytes += size * n;
      count += n;
    }
    const bool is_many = gradients_.size() >= 3 && (count >= 6 || passes().size() >= 3);
    return is_many || bytes > parameter_bytes_ * 3 / 10;
  }

  void drop_gradients() {
    gradients_.clear();
    std::ranges::fill(answers_, CategoryAnswer{});
  }

  // --- What stays --------------------------------------------------------------------------------

  void name_stayers() {
    const bool hides_gradients = initial_ != 0 && has_backward();
    for (std::size_t id = 0; id < load_end_; ++id) {
      if (!is_stayer(id)) continue;
      const std::uint64_t size = blocks_[id].requested_bytes;
      if (is_library_size(size)) {
        set(id, Category::kWorkspace, Certainty::kGuess);
        continue;
      }
      const bool is_sure = is_training_ ? gradients_.contains(size)
                                        : !hides_gradients && passes().size() >= kFewestRequests;
      set(id, Category::kParameter, is_sure ? Certainty::kLifetime : Certainty::kGuess);
    }
    for (const Pass& pass : passes()) {
      for_stayers(pass.begin, pass.end + 1, [&](std::size_t id) {
        ++made_in_passes_[blocks_[id].requested_bytes];
      });
    }
    for (std::size_t i = 0; i < passes().size(); ++i) {
      const Pass& pass = passes()[i];
      for_stayers(pass.begin, pass.end + 1, [&](std::size_t id) { name_made_in_pass(id, pass); });
      const bool is_last = i + 1 == passes().size();
      const std::uint32_t next = is_last ? index_.end_position() : passes()[i + 1].begin;
      const std::uint32_t batch = is_last ? next : batch_before(pass.end + 1, next);
      name_made_between(pass.end + 1, batch, is_last);
      for_stayers(
          batch, next, [&](std::size_t id) { set(id, Category::kData, Certainty::kGuess); });
    }
  }

  template <class F>
  void for_stayers(std::uint32_t from, std::uint32_t to, const F& use) {
    const std::size_t stop = first_from(to);
    for (std::size_t id = first_from(from); id < stop; ++id) {
      if (is_stayer(id) && answers_[id].certainty == Certainty::kNone) use(id);
    }
  }

  // Libraries take their workspaces once, when they are used first. What stays again and again was
  // kept from a pass; in the last one it may be no more than what the end of the recording caught.
  void name_made_in_pass(std::size_t id, const Pass& pass) {
    constexpr std::uint32_t kMostHandles = 2;
    const std::uint64_t size = blocks_[id].requested_bytes;
    const bool is_caught = &pass == &passes().back() && passes().size() > 1;
    const bool is_once = !is_caught && made_in_passes_[size] <= kMostHandles;
    set(id,
        is_once || is_library_size(size) ? Category::kWorkspace : Category::kActivation,
        Certainty::kGuess);
  }

  // A batch that the end of the recording caught: the last blocks before its pass, like no
  // parameter.
  [[nodiscard]] std::uint32_t batch_before(std::uint32_t from, std::uint32_t pass_begin) const {
    constexpr std::size_t kMostTensors = 4;
    constexpr std::size_t kMostPassing = 8;
    const std::size_t first = first_from(from);
    const std::size_t last = first_from(pass_begin);
    std::size_t id = last;
    const auto is_batch = [&](std::size_t i) {
      const std::uint64_t size = blocks_[i].requested_bytes;
      return is_stayer(i) && !fits_gradient(size) && size > kTinyBytes / 8;
    };
    // The first layers may have asked for something that the pass does not keep.
    while (id > first && last - id < kMostPassing && !is_stayer(id - 1)) --id;
    const std::size_t end = id;
    while (id > first && is_batch(id - 1)) --id;
    if (id == end || end - id > kMostTensors) return pass_begin;
    return blocks_[id].alloc_event;
  }

  // The optimiser's state, made in its first step. Behind the last pass it ends where a block comes
  // that is like no parameter: the next pass has begun.
  void name_made_between(std::uint32_t from, std::uint32_t to, bool is_last) {
    bool is_next_pass = is_last && (has_state_ || passes().size() > 1);
    for_stayers(from, to, [&](std::size_t id) {
      const std::uint64_t size = blocks_[id].requested_bytes;
      if (is_library_size(size)) return set(id, Category::kWorkspace, Certainty::kGuess);
      const bool fits = fits_gradient(size) || size <= kTinyBytes;
      is_next_pass = is_next_pass || (is_last && !fits);
      if (!is_training_ || is_next_pass) {
        return set(id, Category::kActivation, Certainty::kGuess);
      }
      has_state_ = has_state_ || fits_gradient(size);
      set(id, Category::kOptimizerState, fits ? Certainty::kLifetime : Certainty::kGuess);
    });
  }

  // State is kept in full precision where parameters are not.
  [[nodiscard]] bool fits_gradient(std::uint64_t size) const {
    return gradients_.contains(size) || (size % 2 == 0 && gradients_.contains(size / 2));
  }

  // --- What comes and goes -----------------------------------------------------------------------

  void name_transients() {
    for (std::size_t id = 0; id < blocks_.size(); ++id) {
      if (answers_[id].certainty != Certainty::kNone) continue;
      set(id, Category::kActivation, Certainty::kGuess);
    }
    if (!is_training_) return;
    name_first_gradients();
    for (const Pass& pass : passes()) {
      name_data(pass);
      name_backward(pass);
    }
  }

  // Those of a step that began before the recording.
  void name_first_gradients() {
    SizeCounts left = gradients_;
    for (std::size_t id = 0; id < initial_; ++id) {
      if (is_stayer(id) || passes_.is_freed_together[id] == 0) continue;
      const auto count = left.find(blocks_[id].requested_bytes);
      if (count == left.end() || count->second == 0) continue;
      --count->second;
      set(id, Category::kGradient, Certainty::kLifetime);
    }
  }

  // A batch is the first that a pass takes, and there to its end.
  void name_data(const Pass& pass) {
    for (std::size_t id = first_from(pass.begin); id < blocks_.size(); ++id) {
      const Lifetime& block = blocks_[id];
      if (block.alloc_event >= pass.turn || free_of(block) <= pass.end) return;
      if (answers_[id].category != Category::kActivation) continue;
      set(id, Category::kData, Certainty::kGuess);
    }
  }

  // Gradients of activations, but for what is computed a second time.
  void name_backward(const Pass& pass) {
    const std::size_t first = first_from(pass.begin);
    const std::size_t turn = first_from(pass.turn);
    const std::size_t stop = first_from(pass.end + 1);
    const std::vector<char> is_recomputed =
        find_recomputed(blocks_.subspan(first, turn - first),
                        blocks_.subspan(turn, stop - turn),
                        std::span(answers_).subspan(turn, stop - turn));
    for (std::size_t id = turn; id < stop; ++id) {
      if (answers_[id].category != Category::kActivation || is_recomputed[id - turn] != 0) continue;
      set(id, Category::kGradient, Certainty::kGuess);
    }
  }

  // --- Copies of the parameters ------------------------------------------------------------------

  // State that was made before the first pass: by an optimiser's constructor, as copies in full
  // precision of parameters in half, or before the recording began. Each size is there once for
  // its parameters and once more for each copy.
  void split_copies() {
    const bool is_whole = initial_ == 0;
    const std::uint32_t full = gradients_.size() < kFewestSizes ? 0 : copies_of(2);
    if (full > 0) take_copies(2, full, Certainty::kLifetime);
    const std::uint32_t same = copies_of(1);
    // In a whole history of an optimiser with state of its own, a copy is a second model.
    if (same < 2 || (is_whole && has_state_)) return;
    take_copies(1, same - 1, is_whole ? Certainty::kGuess : Certainty::kLifetime);
  }

  // How often the sizes of the gradients, times a factor, are there: for nine tenths of the bytes
  // at least so often.
  [[nodiscard]] std::uint32_t copies_of(std::uint64_t factor) const {
    std::uint64_t bytes = 0;
    std::map<std::uint32_t, std::uint64_t> bytes_with;
    for (const auto& [size, count] : gradients_) {
      const auto there = parameters_.find(size * factor);
      bytes += size * count;
      bytes_with[there == parameters_.end() ? 0 : there->second / count] += size * count;
    }
    std::uint64_t left_out = 0;
    for (const auto& [copies, with] : bytes_with) {
      left_out += with;
      if (left_out * 10 > bytes) return copies;
    }
    return 0;
  }

  // The last ones: parameters come first.
  void take_copies(std::uint64_t factor, std::uint32_t copies, Certainty certainty) {
    SizeCounts wanted;
    for (const auto& [size, count] : gradients_) {
      const std::uint32_t there = parameters_[size * factor];
      const std::uint32_t kept = factor == 1 ? std::min(there, count) : 0;
      wanted[size * factor] = std::min(count * copies, there - kept);
    }
    for (std::size_t id = load_end_; id-- > 0;) {
      if (answers_[id].category != Category::kParameter) continue;
      const auto left = wanted.find(blocks_[id].requested_bytes);
      if (left == wanted.end() || left->second == 0) continue;
      --left->second;
      --parameters_[blocks_[id].requested_bytes];
      set(id, Category::kOptimizerState, certainty);
    }
  }

  // Gradients that are kept from step to step, in a history that starts behind the first: nothing
  // tells them from parameters and state but that each size is there so many times.
  void split_kept_gradients() {
    const std::uint32_t copies = common_factor();
    if (copies < 2) return;
    SizeCounts seen;
    for (std::size_t id = 0; id < initial_; ++id) {
      if (answers_[id].category != Category::kParameter) continue;
      const std::uint64_t size = blocks_[id].requested_bytes;
      const std::uint32_t part = seen[size]++ * copies / parameters_[size];
      const Category category = part == 0   ? Category::kParameter
                                : part == 1 ? Category::kGradient
                                            : Category::kOptimizerState;
      set(id, category, Certainty::kGuess);
    }
  }

  // The largest that divides how often the sizes are there, but for a few.
  [[nodiscard]] std::uint32_t common_factor() const {
    for (const std::uint32_t factor : {5U, 4U, 3U, 2U}) {
      std::size_t sizes = 0;
      std::uint64_t bytes = 0;
      for (const auto& [size, count] : parameters_) {
        if (count % factor != 0) continue;
        ++sizes;
        bytes += size * count;
      }
      if (sizes * 10 >= parameters_.size() * 6 && bytes * 10 >= parameter_bytes_ * 9) return factor;
    }
    return 1;
  }

  // A backward asks for blocks while it gives up others; a request that ends only gives up.
  [[nodiscard]] bool has_backward() const {
    std::size_t forward = 0;
    std::size_t backward = 0;
    for (const Pass& pass : passes()) {
      forward += first_from(pass.turn) - first_from(pass.begin);
      backward += first_from(pass.end) - first_from(pass.turn);
    }
    return backward * 3 > forward;
  }

  const TraceIndex& index_;
  std::span<const Lifetime> blocks_;
  Passes passes_;
  std::vector<CategoryAnswer> answers_;
  std::size_t initial_ = 0;   // how many were there before the first event
  std::size_t load_end_ = 0;  // the first lifetime behind the load
  SizeCounts parameters_;
  std::uint64_t parameter_bytes_ = 0;
  SizeCounts gradients_;       // the most there were at once
  SizeCounts made_in_passes_;  // and stay
  bool is_training_ = false;
  bool has_state_ = false;
};

}  // namespace

std::vector<CategoryAnswer> roles_by_lifetime(const TraceIndex& index) {
  if (index.lifetimes().empty()) return {};
  return Roles(index).run();
}

}  // namespace headroom::analysis::internal
