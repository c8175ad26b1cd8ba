// The memo of a pickle: values by number, for what is used again.
//
// Python numbers them without gaps, but a file may name any number up to 2^32 - 1. A number is a
// place in an array only while it is below the bytes read so far, which bounds the array by the
// file; larger ones go to a map.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "headroom/trace/internal/pickle_data.h"

namespace headroom::trace::internal {

class Memo {
 public:
  // Absent where nothing was put.
  [[nodiscard]] Ref get(std::uint32_t number) const {
    if (number < near_.size() && near_[number]) return near_[number];
    const auto found = far_.find(number);
    return found != far_.end() ? found->second : Ref{};
  }

  void put(std::uint32_t number, Ref value, std::uint64_t bytes_read) {
    if (!get(number)) ++count_;
    if (number < near_.size()) {
      near_[number] = value;
    } else if (number < bytes_read) {
      near_.resize(std::size_t{number} + 1);
      near_[number] = value;
    } else {
      far_.insert_or_assign(number, value);
    }
  }

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
  std::vector<Ref> near_;
  std::unordered_map<std::uint32_t, Ref> far_;
  std::uint64_t count_ = 0;
};

}  // namespace headroom::trace::internal
