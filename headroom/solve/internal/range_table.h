// RangeTable: the optimal persistent programme over a chain in slots.
//
// T(i, l, m) is the least cost to run forward from stage i to l and backward down to i, with m
// slots besides what enters i; the gradient that enters at l+1 is in m. (Beaumont et al., arXiv
// 1911.13214, with several ways to save a stage, and inputs that may wait on the host.) Stage n is
// the loss. T is the least of:
//
//   save by option k   cost(k) + T(i+1, l, m - saved(k))
//   keep the input,    forward(i..j-1) + T(j, l, m - entering(j)) + T(i, j-1, m), for i < j <= l
//
// and of the same with the input on the host meanwhile: + trip(i), and entering(i) more slots for
// the stages after it. Each where the steps themselves fit. T falls in m, in steps: a row begins
// where it is finite and ends where it falls no further.
#pragma once

#include <cstddef>
#include <vector>

#include "headroom/solve/internal/slot_chain.h"
#include "headroom/solve/schedule.h"

namespace headroom::solve::internal {

// float where a table of double would be too large: half the bytes, and twice as fast.
template <class Value>
class RangeTable {
 public:
  explicit RangeTable(const SlotChain& chain);

  // With so many slots in all, the chain's input among them; infinite where nothing fits.
  [[nodiscard]] double cost(int slots) const;
  // The slots from which on the cost is less than with one fewer, down from `slots`: where a scan
  // over all budgets has to look next. -1 where nothing fits.
  [[nodiscard]] int start_of_level(int slots) const;
  [[nodiscard]] Schedule schedule(int slots) const;

 private:
  // What enters the range is by itself, or inside of what the stage before has saved. Only the
  // first can go to the host.
  enum class Input { kAlone, kSaved };

  struct Row {
    int first = 0;
    int count = 0;    // 0: nothing fits
    Value least = 0;  // the last of its values, at hand without a look at them
    std::size_t at = 0;
  };

  struct Choice {
    Value cost = 0;
    int option = -1;  // of saving
    int split = -1;
    bool sends = false;
  };

  void fill(Input input, int first, int last);
  void fill_saving(Input input, int first, int last);
  void add_saving(const Row& rest, int shift, Value cost, int floor);
  void fill_splits(Input input, int first, int last);
  void add_split(const Row& right, int shift, const Row& left, Value extra, int floor);
  [[nodiscard]] int end_of_gain(int start, Value least) const;
  void store(Input input, int first, int last);

  [[nodiscard]] int saving_floor(int first, int last, const SlotOption& option) const;
  [[nodiscard]] Value value(const Row& row, int slots) const;
  [[nodiscard]] const Row& row(Input input, int first, int last) const;
  [[nodiscard]] Row& row(Input input, int first, int last);
  [[nodiscard]] Choice choose(Input input, int first, int last, int slots) const;
  [[nodiscard]] Choice best_saving(Input input, int first, int last, int slots) const;
  void choose_split(Input input, int first, int last, int slots, Choice& best) const;
  void write(Input input, int first, int last, int slots, Schedule& out) const;
  void write_saving(const Choice& choice, int first, int last, int slots, Schedule& out) const;
  [[nodiscard]] bool can_send(Input input, int first) const;
  [[nodiscard]] int gradient_after(int last) const;

  const SlotChain& chain_;
  int stages_;
  std::vector<Row> rows_[2];
  std::vector<Value> values_{};
  std::vector<Value> line_{};  // the row that is being filled, from slot 0
};

extern template class RangeTable<float>;
extern template class RangeTable<double>;

}  // namespace headroom::solve::internal
