// A program in two halves that do not meet: blocks up to 1 MiB, and larger ones.
//
// PyTorch keeps them in pools of their own, and most settings concern the larger ones alone. Where
// nothing is given back and nothing is refused, what is reserved at the peak is the sum of the
// halves; so the half that most settings leave alone is replayed once, not hundreds of times.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "headroom/replay/internal/live_floor.h"
#include "headroom/replay/player.h"
#include "headroom/replay/program.h"

namespace headroom::replay::internal {

class Halves {
 public:
  // Nothing where the halves may meet: by a limit, by a cache that is emptied, by frees that wait
  // for other streams, or in a state before the first event.
  [[nodiscard]] static std::unique_ptr<Halves> split(const Program& program);

  // As replay() of the whole says, but for statistics and what is observed on the way; `ops` are
  // those of the larger half.
  [[nodiscard]] ReplayResult replay(const ReplayOptions& options);
  // The least that it reserves.
  [[nodiscard]] std::uint64_t least_reserved(const ReplayOptions& options);

 private:
  explicit Halves(const Program& program);

  // The bytes of the smaller half, and its calls of the driver.
  struct Small {
    std::uint64_t reserved = 0;
    double driver_us = 0;
  };
  // The settings that matter: divisions below 2 MiB, expandable segments, the order of addresses.
  using Key = std::pair<std::uint64_t, std::pair<bool, device::AddressOrder>>;

  [[nodiscard]] Small small_under(const ReplayOptions& options);

  const Program& whole_;
  Program small_{};
  Program large_{};
  std::optional<LiveFloor> large_floor_{};
  std::mutex mutex_{};
  std::map<Key, Small> known_{};  // under mutex_
};

}  // namespace headroom::replay::internal
