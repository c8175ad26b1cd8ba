#include "headroom/solve/internal/range_table.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "headroom/base/check.h"

namespace headroom::solve::internal {
namespace {

template <class Value>
constexpr Value kNever = std::numeric_limits<Value>::infinity();

// to[i] = min(to[i], extra + a[i] + b[i]); the compiler makes vectors of it.
template <class Value>
void take_sums(Value* to, const Value* a, const Value* b, Value extra, int count) {
  for (int i = 0; i < count; ++i) {
    const Value sum = a[i] + (b[i] + extra);
    to[i] = sum < to[i] ? sum : to[i];
  }
}

template <class Value>
void take_shifted(Value* to, const Value* a, Value extra, int count) {
  for (int i = 0; i < count; ++i) {
    const Value sum = a[i] + extra;
    to[i] = sum < to[i] ? sum : to[i];
  }
}

// The steps of a forward from `first` that keeps only its input: what they take, step by step.
class ForwardFloor {
 public:
  ForwardFloor(const SlotChain& chain, int first, int gradient)
      : chain_(chain), first_(first), gradient_(gradient) {}

  // Of the steps up to and with stage `next`, the input staying or, from the second on, away.
  void extend(int next) {
    const auto i = static_cast<std::size_t>(next);
    const int step = gradient_ + chain_.entering[i + 1] + chain_.stages[i].forward_extra +
                     (next > first_ ? chain_.entering[i] : 0);
    const int input = chain_.entering[static_cast<std::size_t>(first_)];
    staying_ = std::max(staying_, step);
    away_ = std::max(away_, next > first_ ? step - input : step);
    cost_ += chain_.stages[i].forward_cost;
  }
  [[nodiscard]] int staying() const noexcept { return staying_; }
  [[nodiscard]] int away() const noexcept { return away_; }
  [[nodiscard]] double cost() const noexcept { return cost_; }

 private:
  const SlotChain& chain_;
  int first_;
  int gradient_;
  int staying_ = 0;
  int away_ = 0;
  double cost_ = 0;
};

}  // namespace

template <class Value>
RangeTable<Value>::RangeTable(const SlotChain& chain)
    : chain_(chain), stages_(static_cast<int>(chain.stages.size())) {
  const std::size_t ranges =
      static_cast<std::size_t>(stages_ + 1) * static_cast<std::size_t>(stages_ + 2) / 2;
  rows_[0].resize(ranges);
  if (chain.has_trips) rows_[1].resize(ranges);
  line_.resize(static_cast<std::size_t>(chain.slots) + 1);
  for (int first = stages_; first >= 0; --first) {
    for (int last = first; last <= stages_; ++last) {
      fill(Input::kSaved, first, last);
      if (chain.has_trips) fill(Input::kAlone, first, last);
    }
  }
}

template <class Value>
int RangeTable<Value>::gradient_after(int last) const {
  return last == stages_ ? 0 : chain_.entering[static_cast<std::size_t>(last) + 1];
}

template <class Value>
auto RangeTable<Value>::row(Input input, int first, int last) -> Row& {
  // Triangular: the ranges of a first stage lie side by side.
  const auto i = static_cast<std::size_t>(first);
  const auto width = static_cast<std::size_t>(stages_) + 1;
  const std::size_t before = i * width - (i == 0 ? 0 : i * (i - 1) / 2);
  const bool is_second = chain_.has_trips && input == Input::kAlone;
  return rows_[is_second ? 1 : 0][before + static_cast<std::size_t>(last - first)];
}

template <class Value>
auto RangeTable<Value>::row(Input input, int first, int last) const -> const Row& {
  return const_cast<RangeTable*>(this)->row(input, first, last);
}

template <class Value>
Value RangeTable<Value>::value(const Row& row, int slots) const {
  if (row.count == 0 || slots < row.first) return kNever<Value>;
  const int place = std::min(slots - row.first, row.count - 1);
  return values_[row.at + static_cast<std::size_t>(place)];
}

// The slots that saving stage `first` takes in its own two steps.
template <class Value>
int RangeTable<Value>::saving_floor(int first, int last, const SlotOption& option) const {
  const auto i = static_cast<std::size_t>(first);
  const int forward = gradient_after(last) + option.saved + option.forward_extra;
  const int backward =
      chain_.entering[i + 1] + option.saved + chain_.entering[i] + option.backward_extra;
  return std::max(forward, backward);
}

template <class Value>
void RangeTable<Value>::fill(Input input, int first, int last) {
  std::fill(line_.begin(), line_.end(), kNever<Value>);
  if (first == stages_) {
    const int floor = chain_.entering.back() + chain_.loss_extra;
    for (int m = floor; m <= chain_.slots; ++m) {
      line_[static_cast<std::size_t>(m)] = static_cast<Value>(chain_.loss_cost);
    }
  } else {
    fill_saving(input, first, last);
    fill_splits(input, first, last);
  }
  store(input, first, last);
}

template <class Value>
bool RangeTable<Value>::can_send(Input input, int first) const {
  return input == Input::kAlone &&
         std::isfinite(chain_.stages[static_cast<std::size_t>(first)].trip_cost);
}

template <class Value>
void RangeTable<Value>::fill_saving(Input input, int first, int last) {
  const SlotStage& stage = chain_.stages[static_cast<std::size_t>(first)];
  for (const SlotOption& option : stage.options) {
    const int floor = saving_floor(first, last, option);
    const auto cost = static_cast<Value>(option.cost);
    if (first == last) {
      for (int m = floor; m <= chain_.slots; ++m) {
        Value& at = line_[static_cast<std::size_t>(m)];
        at = std::min(at, cost);
      }
      continue;
    }
    const Row& rest = row(Input::kSaved, first + 1, last);
    add_saving(rest, option.saved, cost, floor);
    if (!can_send(input, first)) continue;
    add_saving(rest,
               option.saved - chain_.entering[static_cast<std::size_t>(first)],
               static_cast<Value>(option.cost + stage.trip_cost),
               floor);
  }
}

// The line takes cost + rest(m - shift) where that is less, from `floor` on.
template <class Value>
void RangeTable<Value>::add_saving(const Row& rest, int shift, Value cost, int floor) {
  if (rest.count == 0) return;
  const int start = std::max({floor, rest.first + shift, 0});
  const int end = end_of_gain(start, cost + rest.least);
  const int level = std::min(rest.first + shift + rest.count - 1, end);
  if (start < level) {
    const Value* const values = values_.data() + rest.at;
    take_shifted(line_.data() + start, values + (start - shift - rest.first), cost, level - start);
  }
  for (int m = std::max(start, level); m < end; ++m) {
    Value& at = line_[static_cast<std::size_t>(m)];
    at = std::min(at, cost + rest.least);
  }
}

template <class Value>
void RangeTable<Value>::fill_splits(Input input, int first, int last) {
  ForwardFloor floor(chain_, first, gradient_after(last));
  const double trip = chain_.stages[static_cast<std::size_t>(first)].trip_cost;
  const int input_slots = chain_.entering[static_cast<std::size_t>(first)];
  for (int j = first + 1; j <= last; ++j) {
    floor.extend(j - 1);
    const Row& right = row(Input::kAlone, j, last);
    const Row& left = row(input, first, j - 1);
    if (right.count == 0 || left.count == 0) continue;
    const int kept = chain_.entering[static_cast<std::size_t>(j)];
    add_split(right, kept, left, static_cast<Value>(floor.cost()), floor.staying());
    if (can_send(input, first)) {
      add_split(
          right, kept - input_slots, left, static_cast<Value>(floor.cost() + trip), floor.away());
    }
  }
}

// The line falls: from where it is below all that a split can reach, the split has nothing to gain.
template <class Value>
int RangeTable<Value>::end_of_gain(int start, Value least) const {
  if (start > chain_.slots || line_[static_cast<std::size_t>(start)] <= least) return start;
  const auto end = std::partition_point(
      line_.begin() + start, line_.end(), [least](Value at) { return at > least; });
  return static_cast<int>(end - line_.begin());
}

// The line takes extra + right(m - shift) + left(m) where that is less, from `floor` on.
template <class Value>
void RangeTable<Value>::add_split(
    const Row& right, int shift, const Row& left, Value extra, int floor) {
  const int start = std::max({floor, right.first + shift, left.first, 0});
  const Value least = right.least + (left.least + extra);
  const int end = end_of_gain(start, least);
  if (end <= start) return;
  const Value* const a = values_.data() + right.at;
  const Value* const b = values_.data() + left.at;
  const int a_level = right.first + shift + right.count - 1;
  const int b_level = left.first + left.count - 1;
  int m = start;
  const int both = std::min({a_level, b_level, end});
  if (m < both) {
    take_sums(
        line_.data() + m, a + (m - shift - right.first), b + (m - left.first), extra, both - m);
    m = both;
  }
  const int one = std::min(std::max(a_level, b_level), end);
  if (m < one) {
    if (a_level > b_level) {
      take_shifted(line_.data() + m, a + (m - shift - right.first), left.least + extra, one - m);
    } else {
      take_shifted(line_.data() + m, b + (m - left.first), right.least + extra, one - m);
    }
    m = one;
  }
  for (; m < end; ++m) {
    Value& at = line_[static_cast<std::size_t>(m)];
    at = std::min(at, least);
  }
}

template <class Value>
void RangeTable<Value>::store(Input input, int first, int last) {
  const auto begin =
      std::find_if(line_.begin(), line_.end(), [](Value at) { return at != kNever<Value>; });
  Row& out = row(input, first, last);
  out = {.first = static_cast<int>(begin - line_.begin()), .at = values_.size()};
  if (begin == line_.end()) return;
  const auto end =
      std::partition_point(begin, line_.end(), [&](Value at) { return at > line_.back(); });
  out.count = static_cast<int>(end - begin) + 1;
  out.least = line_.back();
  values_.insert(values_.end(), begin, begin + out.count);
}

template <class Value>
double RangeTable<Value>::cost(int slots) const {
  return value(row(Input::kAlone, 0, stages_), slots - chain_.entering[0]);
}

template <class Value>
int RangeTable<Value>::start_of_level(int slots) const {
  const Row& whole = row(Input::kAlone, 0, stages_);
  const int input = chain_.entering[0];
  if (whole.count == 0 || slots - input < whole.first) return -1;
  int m = std::min(slots - input, whole.first + whole.count - 1);
  const Value level = value(whole, m);
  while (m > whole.first && value(whole, m - 1) <= level) --m;
  return m + input;
}

template <class Value>
Schedule RangeTable<Value>::schedule(int slots) const {
  Schedule out;
  write(Input::kAlone, 0, stages_, slots - chain_.entering[0], out);
  return out;
}

template <class Value>
auto RangeTable<Value>::best_saving(Input input, int first, int last, int slots) const -> Choice {
  Choice best{.cost = kNever<Value>};
  const SlotStage& stage = chain_.stages[static_cast<std::size_t>(first)];
  for (std::size_t k = 0; k < stage.options.size(); ++k) {
    const SlotOption& option = stage.options[k];
    if (slots < saving_floor(first, last, option)) continue;
    const auto consider = [&](double own_cost, int left, bool sends) {
      auto cost = static_cast<Value>(own_cost);
      if (first < last) cost += value(row(Input::kSaved, first + 1, last), left);
      if (cost >= best.cost) return;
      best = {.cost = cost, .option = static_cast<int>(k), .sends = sends};
    };
    const int left = slots - option.saved;
    consider(option.cost, left, false);
    if (first == last || !can_send(input, first)) continue;
    const int input_slots = chain_.entering[static_cast<std::size_t>(first)];
    consider(option.cost + stage.trip_cost, left + input_slots, true);
  }
  return best;
}

template <class Value>
void RangeTable<Value>::choose_split(
    Input input, int first, int last, int slots, Choice& best) const {
  ForwardFloor floor(chain_, first, gradient_after(last));
  const double trip = chain_.stages[static_cast<std::size_t>(first)].trip_cost;
  const int input_slots = chain_.entering[static_cast<std::size_t>(first)];
  for (int j = first + 1; j <= last; ++j) {
    floor.extend(j - 1);
    const int kept = chain_.entering[static_cast<std::size_t>(j)];
    const Value left = value(row(input, first, j - 1), slots);
    const Row& right = row(Input::kAlone, j, last);
    if (slots >= floor.staying()) {
      const Value cost = value(right, slots - kept) + (left + static_cast<Value>(floor.cost()));
      if (cost < best.cost) best = {.cost = cost, .split = j};
    }
    if (can_send(input, first) && slots >= floor.away()) {
      const Value cost = value(right, slots - kept + input_slots) +
                         (left + static_cast<Value>(floor.cost() + trip));
      if (cost < best.cost) best = {.cost = cost, .split = j, .sends = true};
    }
  }
}

template <class Value>
auto RangeTable<Value>::choose(Input input, int first, int last, int slots) const -> Choice {
  Choice best{.cost = kNever<Value>};
  choose_split(input, first, last, slots, best);
  const Choice saving = best_saving(input, first, last, slots);
  // Of equals, the split: it holds fewer bytes.
  return saving.cost < best.cost ? saving : best;
}

template <class Value>
void RangeTable<Value>::write(Input input, int first, int last, int slots, Schedule& out) const {
  const auto stage = static_cast<std::uint32_t>(first);
  if (first == stages_) {
    out.push_back({StepKind::kLoss, stage, 0});
    return;
  }
  const Choice best = choose(input, first, last, slots);
  HEADROOM_CHECK(best.option >= 0 || best.split >= 0, "a range of the table without a choice");
  if (best.split < 0) return write_saving(best, first, last, slots, out);
  out.push_back({StepKind::kForwardKeep, stage, 0});
  if (best.sends) out.push_back({StepKind::kSendInput, stage, 0});
  for (int i = first + 1; i < best.split; ++i) {
    out.push_back({StepKind::kForward, static_cast<std::uint32_t>(i), 0});
  }
  const int kept = chain_.entering[static_cast<std::size_t>(best.split)];
  const int back = best.sends ? chain_.entering[stage] : 0;
  write(Input::kAlone, best.split, last, slots - kept + back, out);
  if (best.sends) out.push_back({StepKind::kFetchInput, stage, 0});
  write(input, first, best.split - 1, slots, out);
}

template <class Value>
void RangeTable<Value>::write_saving(
    const Choice& choice, int first, int last, int slots, Schedule& out) const {
  const auto stage = static_cast<std::uint32_t>(first);
  const auto option = static_cast<std::uint32_t>(choice.option);
  out.push_back({StepKind::kForwardSave, stage, option});
  if (choice.sends) out.push_back({StepKind::kSendInput, stage, 0});
  if (first < last) {
    const int back = choice.sends ? chain_.entering[stage] : 0;
    const int saved = chain_.stages[stage].options[option].saved;
    write(Input::kSaved, first + 1, last, slots - saved + back, out);
  }
  if (choice.sends) out.push_back({StepKind::kFetchInput, stage, 0});
  out.push_back({StepKind::kBackward, stage, 0});
}

template class RangeTable<float>;
template class RangeTable<double>;

}  // namespace headroom::solve::internal
