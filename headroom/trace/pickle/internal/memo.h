// The memo of a pickle: values by number, for what is used again.
//
// Python numbers them without gaps, but a file may name any number up to 2^32 - 1. A number is a
// place in an array only while it is below the bytes read so far, which bounds the array by the
// file; larger ones go to a map.
#pragma once

#include <cstdint>
#include <map>

#include "headroom/trace/internal/big_vector.h"
#include "headroom/trace/pickle/internal/pickle_data.h"

namespace headroom::trace::internal {

class Memo {
 public:
  Memo(std::uint64_t input_bytes, Budget& budget) : budget_(budget), near_(budget) {
    near_.reserve(input_bytes / 32);
  }

  // Absent where nothing was put.
  [[nodiscard]] Ref get(std::uint32_t number) const {
    if (const Ref near = get_near(number)) return near;
    const auto found = far_.find(number);
    return found != far_.end() ? found->second : Ref{};
  }

  // The same, but for numbers that are too large for the array.
  [[nodiscard]] Ref get_near(std::uint32_t number) const {
    return number < near_.size() ? near_[number] : Ref{};
  }

  void put(std::uint32_t number, Ref value, std::uint64_t bytes_read) {
    if (get(number)) {
      is_overwritten_ = true;
    } else {
      ++count_;
    }
    if (number < near_.size()) {
      near_[number] = value;
    } else if (number < bytes_read) {
      near_.resize(std::size_t{number} + 1);
      near_[number] = value;
    } else {
      constexpr std::uint64_t kNodeBytes = 64;
      if (far_.insert_or_assign(number, value).second) budget_.take(kNodeBytes);
    }
  }

  // Whether some number was put twice. No pickler does that.
  [[nodiscard]] bool is_overwritten() const noexcept { return is_overwritten_; }

  // Under the next number, which Python takes from how many there are.
  void add(Ref value, std::uint64_t bytes_read) {
    if (count_ == near_.size()) {
      near_.push_back(value);
      ++count_;
    } else {
      put(static_cast<std::uint32_t>(count_), value, bytes_read);
    }
  }

 private:
  Budget& budget_;
  BigVector<Ref> near_;
  std::map<std::uint32_t, Ref>
      far_;  // in order: whoever chooses the numbers could make a hash slow
  std::uint64_t count_ = 0;
  bool is_overwritten_ = false;
};

}  // namespace headroom::trace::internal
