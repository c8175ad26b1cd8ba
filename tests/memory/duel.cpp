#include "tests/memory/duel.h"

#include <algorithm>
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
    allocator_->add_sink(sink_);
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

}  // namespace

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
