// Sequences of operations: random ones, and their text.
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <random>
#include <sstream>
#include <utility>

#include "headroom/base/bytes.h"
#include "headroom/device/types.h"

#include "tests/memory/duel.h"

namespace headroom::memory::testing {
namespace {

// --- Random sequences ----------------------------------------------------------------------------

class Generator {
 public:
  Generator(std::uint64_t seed, std::size_t length) : random_(seed), length_(length) {}

  Sequence run() {
    Sequence sequence{.minor = static_cast<int>(9 + below(7)),
                      .capacity_bytes = (64_MiB << below(5)) + (one_in(4) ? below(4096) * 512 : 0)};
    capacity_ = sequence.capacity_bytes;
    spread_ = pick<std::uint64_t>({512, 1_MiB, 24_MiB, capacity_ / 2});
    live_target_ = pick<std::size_t>({4, 12, 40});
    if (one_in(20)) live_target_ = 300;  // more free blocks than one chunk of an index holds
    if (!one_in(4)) add(OpKind::kConfigure, {random_() % 1'000'000});
    if (one_in(3)) add(OpKind::kLimit, {any_limit()});
    while (ops_.size() < length_) step();
    sequence.ops = std::move(ops_);
    return sequence;
  }

 private:
  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
  bool one_in(unsigned n) { return random_() % n == 0; }
  template <class T>
  T pick(std::initializer_list<T> from) {
    return from.begin()[below(from.size())];
  }
  void add(OpKind kind, std::array<std::uint64_t, 4> args = {}) {
    ops_.push_back({.kind = kind, .args = args});
  }
  std::uint64_t any_limit() { return below(capacity_ / 512) * 512 + 2_MiB; }
  std::uint64_t any_stream() { return one_in(2) ? 0 : below(kStreams); }

  std::uint64_t any_size() {
    if (one_in(3) && !sizes_.empty()) return sizes_[below(sizes_.size())];
    std::uint64_t size = 0;
    if (one_in(5)) {
      size = pick<std::uint64_t>({1_MiB, 1_MiB, 2_MiB, 10_MiB, 20_MiB, 24_MiB, 40_MiB, capacity_});
      size += pick<std::uint64_t>({0, 0, 1, 512, 513}) - pick<std::uint64_t>({0, 0, 0, 1, 512});
    } else if (one_in(200)) {
      size = pick<std::uint64_t>({0,
                                  1,
                                  511,
                                  513,
                                  device::kAbsurdSize - 1,
                                  device::kAbsurdSize,
                                  UINT64_MAX,
                                  capacity_ + 1});
    } else {  // log-uniform
      const double most = std::log2(static_cast<double>(std::max<std::uint64_t>(spread_, 1024)));
      size = static_cast<std::uint64_t>(std::exp2(most * static_cast<double>(below(10'000)) / 1e4));
    }
    if (sizes_.size() < 6) {
      sizes_.push_back(size);
    } else {
      sizes_[below(6)] = size;
    }
    return size;
  }

  std::uint64_t take_live() {
    const std::size_t i = one_in(3) ? live_.size() - 1 : below(live_.size());
    const std::uint64_t number = live_[i];
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(i));
    return number;
  }

  void step() {
    const std::uint64_t dice = below(1000);
    if (dice < 880) {
      const bool allocates = live_.empty() || below(2 * live_target_) >= live_.size();
      if (allocates) {
        add(OpKind::kAllocate, {next_, any_size(), any_stream(), below(1'000'000)});
        live_.push_back(next_++);
        return;
      }
      const std::uint64_t number = take_live();
      if (one_in(6)) add(OpKind::kRecord, {number, below(kStreams)});
      if (one_in(20)) add(OpKind::kRecord, {number, below(kStreams)});
      add(OpKind::kFree, {number});
    } else if (dice < 910) {
      add(OpKind::kComplete, {below(kStreams)});
    } else if (dice < 920) {
      add(OpKind::kProcess);
    } else if (dice < 928) {
      add(OpKind::kEmptyCache);
    } else if (dice < 936) {
      add(OpKind::kTrim, {one_in(8) ? 0 : below(capacity_)});
    } else if (dice < 948) {
      add(OpKind::kLimit, {one_in(2) ? 0 : any_limit()});
    } else if (dice < 956) {
      add(OpKind::kConfigure, {random_() % 1'000'000});
    } else if (dice < 964) {
      add(OpKind::kBeginPool, {below(kPools), 1 + below((1U << kStreams) - 1)});
    } else if (dice < 976) {
      add(OpKind::kEndPool, {below(kPools)});
    } else if (dice < 980) {
      add(OpKind::kReleasePool, {below(kPools)});
    } else if (dice < 984) {
      add(OpKind::kBeginCapture);
    } else if (dice < 992) {
      add(OpKind::kEndCapture);
    } else {
      add(OpKind::kFreeAgain, {below(next_ + 1)});
    }
  }

  std::mt19937_64 random_;
  std::size_t length_;
  std::uint64_t capacity_ = 0;
  std::uint64_t spread_ = 0;
  std::size_t live_target_ = 0;
  std::vector<Op> ops_;
  std::vector<std::uint64_t> live_;
  std::vector<std::uint64_t> sizes_;
  std::uint64_t next_ = 0;
};

// How many arguments an operation is written with.
std::size_t argument_count(OpKind kind) {
  switch (kind) {
    case OpKind::kAllocate:
      return 4;
    case OpKind::kRecord:
    case OpKind::kBeginPool:
      return 2;
    case OpKind::kProcess:
    case OpKind::kEmptyCache:
    case OpKind::kBeginCapture:
    case OpKind::kEndCapture:
      return 0;
    default:
      return 1;
  }
}

}  // namespace

AllocatorConfig config_of(std::uint64_t number) {
  const auto next = [&]<class T>(std::initializer_list<T> from) {
    const T value = from.begin()[number % from.size()];
    number /= from.size();
    return value;
  };
  using Bytes = std::uint64_t;
  constexpr Bytes kNone = AllocatorConfig::kUnlimited;
  AllocatorConfig config;
  config.expandable_segments = next({false, true, false});
  config.max_split_bytes = next({kNone, kNone, 20_MiB, kNone, 24_MiB, 20_MiB + 512, 40_MiB});
  config.garbage_collection_threshold = next({0.0, 0.5, 0.0, 0.1, 0.9});
  config.large_segment_bytes = next({20_MiB, 20_MiB, 20_MiB, 12_MiB, 32_MiB});
  switch (next({0, 0, 1, 2, 3})) {
    case 1:
      config.roundup_power2_divisions.fill(4);
      break;
    case 2:
      config.roundup_power2_divisions = {8, 8, 0, 2, 1, 4, 4, 0, 2};
      break;
    case 3:
      config.roundup_power2_divisions.fill(1);
      break;
    default:
      break;
  }
  if (const Bytes bytes = next({kNone, kNone, kNone, 20_MiB, 4_MiB}); bytes != kNone) {
    config.max_non_split_rounding_bytes = bytes;
  }
  if (const Bytes bytes = next({kNone, kNone, kNone, 64_MiB, 200_MiB}); bytes != kNone) {
    config.expandable_reserve_bytes = bytes;
  }
  config.throw_on_device_out_of_memory = next({false, false, false, false, false, true});
  config.memory_fraction = next({1.0, 0.5});
  config.release_lock_on_device_alloc = next({false, true});
  return config;
}

std::string to_string(const Sequence& sequence) {
  std::ostringstream out;
  out << "v" << sequence.minor << " m" << sequence.capacity_bytes;
  for (const Op& op : sequence.ops) {
    out << " " << static_cast<char>(op.kind);
    for (std::size_t i = 0; i < argument_count(op.kind); ++i) {
      out << (i == 0 ? "" : ",") << op.args.at(i);
    }
  }
  return out.str();
}

Sequence parse_sequence(std::string_view text) {
  Sequence sequence;
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    std::array<std::uint64_t, 4> args{};
    std::istringstream numbers(word.substr(1));
    for (std::uint64_t& arg : args) {
      if (!(numbers >> arg)) break;
      numbers.ignore();
    }
    if (word[0] == 'v') {
      sequence.minor = static_cast<int>(args[0]);
    } else if (word[0] == 'm') {
      sequence.capacity_bytes = args[0];
    } else {
      sequence.ops.push_back({.kind = static_cast<OpKind>(word[0]), .args = args});
    }
  }
  return sequence;
}

Sequence random_sequence(std::uint64_t seed, std::size_t length) {
  return Generator(seed, length).run();
}

}  // namespace headroom::memory::testing
