#include "tests/memory/duel.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>
#include <sstream>
#include <unordered_map>
#include <utility>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/caching/caching_allocator.h"

#include "tests/memory/naive_model.h"

namespace headroom::memory::testing {
namespace {

using device::EventCompletion;
using device::MetaDevice;

constexpr std::uint64_t kStreams = 4;
constexpr std::uint64_t kPools = 3;

StreamId stream_of(std::uint64_t number) {
  return number % kStreams == 0 ? StreamId::kDefault : StreamId{100 + number % kStreams};
}

PoolId pool_of(std::uint64_t number) { return {.graph = 0, .user = 100 + number % kPools}; }

class Collector final : public EventSink {
 public:
  void record(const Event& event) noexcept override { events.push_back(event); }
  std::vector<Event> events;
};

std::string describe(const Event& event) {
  std::ostringstream out;
  out << to_string(event.action) << " 0x" << std::hex << event.address << std::dec << " "
      << event.size_bytes << " stream " << device::to_integer(event.stream) << " pool "
      << event.pool.user;
  return out.str();
}

bool is_same(const Event& a, const Event& b) {
  return a.action == b.action && a.address == b.address && a.size_bytes == b.size_bytes &&
         a.stream == b.stream && a.pool == b.pool;
}

bool is_same(const SegmentInfo& a, const SegmentInfo& b) {
  return a.address == b.address && a.size_bytes == b.size_bytes && a.stream == b.stream &&
         a.pool == b.pool && a.is_small == b.is_small && a.is_expandable == b.is_expandable &&
         std::ranges::equal(a.blocks, b.blocks, [](const BlockInfo& x, const BlockInfo& y) {
           return x.address == y.address && x.size_bytes == y.size_bytes &&
                  x.requested_bytes == y.requested_bytes && x.state == y.state;
         });
}

bool is_same(const Stat& real, const ModelStat& model) {
  return real.current == model.current && real.peak == model.peak && real.allocated == model.came &&
         real.freed == model.went;
}

// The name of the first statistic that differs, or nothing.
const char* first_difference(const Statistics& real, const ModelStats& model) {
  const auto differs = [](const StatArray& a, const ModelStats::Pair& b) {
    return !is_same(a.small_pool, b[1]) || !is_same(a.large_pool, b[0]) ||
           a.all.current != b[0].current + b[1].current;
  };
  if (differs(real.allocation, model.allocation)) return "allocation";
  if (differs(real.segment, model.segment)) return "segment";
  if (differs(real.active, model.active)) return "active";
  if (differs(real.inactive_split, model.inactive_split)) return "inactive_split";
  if (differs(real.allocated_bytes, model.allocated_bytes)) return "allocated_bytes";
  if (differs(real.reserved_bytes, model.reserved_bytes)) return "reserved_bytes";
  if (differs(real.active_bytes, model.active_bytes)) return "active_bytes";
  if (differs(real.inactive_split_bytes, model.inactive_split_bytes)) return "inactive_split_bytes";
  if (differs(real.requested_bytes, model.requested_bytes)) return "requested_bytes";
  if (!is_same(real.oversize_allocations, model.oversize_allocations))
    return "oversize_allocations";
  if (!is_same(real.oversize_segments, model.oversize_segments)) return "oversize_segments";
  if (real.num_alloc_retries != model.num_alloc_retries) return "num_alloc_retries";
  if (real.num_ooms != model.num_ooms) return "num_ooms";
  if (real.num_sync_all_streams != model.num_sync_all_streams) return "num_sync_all_streams";
  if (real.num_device_alloc != model.num_device_alloc) return "num_device_alloc";
  if (real.num_device_free != model.num_device_free) return "num_device_free";
  if (real.num_oom_rejections != model.num_oom_rejections) return "num_oom_rejections";
  return nullptr;
}

ModelOutcome outcome_of(FailureReason reason) {
  switch (reason) {
    case FailureReason::kOutOfMemory:
      return ModelOutcome::kOutOfMemory;
    case FailureReason::kRejected:
      return ModelOutcome::kRejected;
    case FailureReason::kTooLarge:
      return ModelOutcome::kTooLarge;
    case FailureReason::kDevice:
      break;
  }
  return ModelOutcome::kDone;  // which a failure never is
}

// --- The duel ------------------------------------------------------------------------------------

class Duel {
 public:
  Duel(const Sequence& sequence, const DuelOptions& options)
      : sequence_(sequence),
        model_(sequence.capacity_bytes, {2, options.model_minor.value_or(sequence.minor)}) {
    device_ = MetaDevice::create({.capacity_bytes = sequence.capacity_bytes,
                                  .profile = {.segment_alignment_bytes = 512},
                                  .events = EventCompletion::kByHand});
    for (std::uint64_t s = 1; s < kStreams; ++s) {
      (void)device_->adopt_stream(device::to_integer(stream_of(s))).value();
    }
    allocator_ = std::make_unique<CachingAllocator>(*device_,
                                                    CachingOptions{.version = {2, sequence.minor}});
    allocator_->set_sink(&sink_);
  }

  DuelResult run() {
    for (const Op& op : sequence_.ops) {
      step(op);
      if (result_.difference.empty()) compare();
      if (!result_.difference.empty()) {
        result_.difference = "operation " + std::to_string(result_.ops) + " (" +
                             to_string({.ops = {op}}) + "): " + result_.difference;
        return result_;
      }
      ++result_.ops;
    }
    compare_segments();
    allocator_.reset();
    const device::MetaState left = device_->state();
    if (!left.segments.empty() || !left.reservations.empty() || !left.unmapped_pages.empty()) {
      differ("the end of the allocator left something on the device");
    }
    return result_;
  }

 private:
  void differ(std::string text) {
    if (result_.difference.empty()) result_.difference = std::move(text);
  }
  void expect_same(std::uint64_t real, std::uint64_t model, const char* what) {
    if (real != model) {
      differ(std::string(what) + ": " + std::to_string(real) + ", the model says " +
             std::to_string(model));
    }
  }
  // Whether the call did not throw InvalidArgument.
  template <class Call>
  static bool is_possible(Call&& call) {
    try {
      call();
    } catch (const InvalidArgument&) {
      return false;
    }
    return true;
  }

  void step(const Op& op) {
    const std::uint64_t n = op.args[0];
    switch (op.kind) {
      case OpKind::kAllocate:
        return allocate(op);
      case OpKind::kFree:
        return free(n);
      case OpKind::kFreeAgain:
        return free_again(n);
      case OpKind::kRecord:
        return record(n, stream_of(op.args[1]));
      case OpKind::kComplete:
        (void)device_->complete_events(stream_of(n));
        return model_.complete_events(stream_of(n));
      case OpKind::kProcess:
        allocator_->process_events();
        return model_.process_events();
      case OpKind::kEmptyCache:
        return expect_same(allocator_->empty_cache(), model_.empty_cache(), "bytes given back");
      case OpKind::kTrim:
        return expect_same(allocator_->trim(n), model_.trim(n), "bytes given back");
      case OpKind::kLimit: {
        const auto limit = n == 0 ? std::nullopt : std::optional(n);
        allocator_->set_limit(limit);
        return model_.set_limit(limit);
      }
      case OpKind::kConfigure:
        allocator_->configure(config_of(n));
        return model_.configure(config_of(n));
      case OpKind::kBeginCapture:
        allocator_->begin_capture();
        return model_.begin_capture();
      case OpKind::kEndCapture:
        return expect_same(is_possible([&] { allocator_->end_capture(); }),
                           model_.end_capture(),
                           "a capture could be ended");
      case OpKind::kBeginPool:
      case OpKind::kEndPool:
      case OpKind::kReleasePool:
        return use_pool(op);
    }
  }

  void allocate(const Op& op) {
    const auto [number, size, stream_number, place] = op.args;
    if (addresses_.contains(number)) return;
    choose_places(place);
    const StreamId stream = stream_of(stream_number);
    const auto real = allocator_->try_allocate(size, stream);
    device_->forget_places();
    const ModelAnswer model = model_.allocate(size, stream);
    if (real) {
      if (model.outcome != ModelOutcome::kDone) return differ("served, the model failed");
      if (*real != model.address) return expect_same(*real, model.address, "address");
      if (*real != 0) addresses_[number] = *real;
      ++result_.allocated;
      return;
    }
    ++result_.failed;
    if (model.outcome == ModelOutcome::kDone) {
      return differ("failed (" + to_string(real.error().status) + "), the model served it");
    }
    if (outcome_of(real.error().reason) != model.outcome) {
      return differ("failed for another reason than the model");
    }
    if (real.error().report == nullptr) differ("failed without a report");
  }

  // Where the driver is to put what this operation takes: mostly anywhere, sometimes right behind
  // what exists already, because neighbours in address may belong to different segments.
  void choose_places(std::uint64_t place) {
    const auto ranges = model_.ranges();
    const std::uint64_t bound = 2 * sequence_.capacity_bytes + 64_MiB;  // more than anything takes
    const auto is_free = [&](DeviceAddress address) {
      return std::ranges::none_of(ranges, [&](const auto& range) {
        return address < range.second && range.first < address + bound;
      });
    };
    const auto choose = [&](DeviceAddress base, std::uint64_t random) {
      if (random % 3 == 0 && !ranges.empty()) {
        const DeviceAddress behind = ranges[random / 3 % ranges.size()].second;
        if (behind % 2_MiB == 0 && is_free(behind)) return behind;
      }
      std::uint64_t slot = random % 1000;
      while (!is_free(base + slot * 8_GiB)) slot = (slot + 1) % 1000;
      return base + slot * 8_GiB;
    };
    const DeviceAddress segment = choose(64_TiB, place);
    const DeviceAddress reservation = choose(32_TiB, place / 7);
    device_->place_next_segment(segment);
    device_->place_next_reservation(reservation);
    model_.place(segment, reservation);
  }

  void free(std::uint64_t number) {
    const auto found = addresses_.find(number);
    if (found == addresses_.end()) return;
    const DeviceAddress address = found->second;
    addresses_.erase(found);
    freed_[number] = address;
    expect_same(allocator_->try_free(address).has_value(), model_.free(address), "could be freed");
  }

  void free_again(std::uint64_t number) {
    const auto found = freed_.find(number);
    if (found == freed_.end() || model_.is_held(found->second)) return;
    if (allocator_->try_free(found->second)) differ("freed twice");
    if (allocator_->record_stream(found->second, StreamId::kDefault)) differ("used after free");
  }

  void record(std::uint64_t number, StreamId stream) {
    const auto found = addresses_.find(number);
    if (found == addresses_.end()) return;
    expect_same(allocator_->record_stream(found->second, stream).has_value(),
                model_.record_stream(found->second, stream),
                "could be recorded");
  }

  void use_pool(const Op& op) {
    const PoolId id = pool_of(op.args[0]);
    if (op.kind == OpKind::kEndPool) {
      return expect_same(is_possible([&] { allocator_->end_allocate_to_pool(id); }),
                         model_.end_pool(id),
                         "a pool could be ended");
    }
    if (op.kind == OpKind::kReleasePool) {
      return expect_same(is_possible([&] { allocator_->release_pool(id); }),
                         model_.release_pool(id),
                         "a pool could be released");
    }
    if (model_.is_released(id)) return;
    std::vector<StreamId> streams;
    for (std::uint64_t s = 0; s < kStreams; ++s) {
      if ((op.args[1] >> s & 1U) != 0) streams.push_back(stream_of(s));
    }
    const auto filter = [streams](StreamId s) { return std::ranges::count(streams, s) > 0; };
    expect_same(is_possible([&] { allocator_->begin_allocate_to_pool(id, filter); }),
                model_.begin_pool(id, streams),
                "a pool could be begun");
  }

  void compare() {
    compare_events();
    const Statistics stats = allocator_->statistics();
    if (const char* name = first_difference(stats, model_.stats())) {
      differ(std::string("the statistic ") + name + " differs");
    }
    expect_same(device_->memory_info().value().free_bytes, model_.free_bytes(), "free bytes");
    if (const auto broken = allocator_->check_invariants()) differ(*broken);
    if (result_.ops % 16 == 0) compare_segments();
    if (random_() % 512 == 0) add_up(stats);
  }

  void compare_events() {
    const std::vector<Event> real = std::exchange(sink_.events, {});
    const std::vector<Event> model = model_.take_events();
    for (std::size_t i = 0; i < std::max(real.size(), model.size()); ++i) {
      if (i >= real.size()) return differ("the model also did " + describe(model[i]));
      if (i >= model.size()) return differ(describe(real[i]) + ", the model did not");
      if (!is_same(real[i], model[i])) {
        return differ(describe(real[i]) + ", the model did " + describe(model[i]));
      }
      if (real[i].sequence != next_sequence_++) return differ("a gap in the events' numbers");
    }
  }

  void compare_segments() {
    const bool is_equal = std::ranges::equal(
        allocator_->segments(), model_.segments(), [](const SegmentInfo& a, const SegmentInfo& b) {
          return is_same(a, b);
        });
    if (!is_equal) differ("the segments differ");
  }

  void add_up(const Statistics& stats) {
    const Account account = allocator_->account();
    ++result_.accounts;
    expect_same(account.sum(), sequence_.capacity_bytes, "the sum of the account");
    expect_same(account.reserved(),
                static_cast<std::uint64_t>(stats.reserved_bytes.all.current),
                "the account's reserved bytes");
  }

  const Sequence& sequence_;
  std::unique_ptr<MetaDevice> device_;
  Collector sink_;
  std::unique_ptr<CachingAllocator> allocator_;
  NaiveModel model_;
  std::unordered_map<std::uint64_t, DeviceAddress> addresses_;
  std::unordered_map<std::uint64_t, DeviceAddress> freed_;
  std::uint64_t next_sequence_ = 0;
  std::minstd_rand random_{std::random_device{}()};
  DuelResult result_;
};

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

DuelResult fight(const Sequence& sequence, const DuelOptions& options) {
  return Duel(sequence, options).run();
}

Sequence shrink(Sequence sequence, const DuelOptions& options) {
  for (std::size_t part = std::max<std::size_t>(sequence.ops.size() / 2, 1); part > 0;) {
    bool has_shrunk = false;
    for (std::size_t at = 0; at < sequence.ops.size();) {
      Sequence less = sequence;
      const auto first = less.ops.begin() + static_cast<std::ptrdiff_t>(at);
      const std::size_t count = std::min(part, less.ops.size() - at);
      less.ops.erase(first, first + static_cast<std::ptrdiff_t>(count));
      if (fight(less, options).difference.empty()) {
        at += part;
      } else {
        sequence = std::move(less);
        has_shrunk = true;
      }
    }
    if (!has_shrunk || part > 1) part /= 2;
  }
  return sequence;
}

}  // namespace headroom::memory::testing
