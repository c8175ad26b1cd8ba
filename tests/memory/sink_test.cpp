// Sinks: who is told of what, in which order; and that nobody who listens changes what happens.
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/allocator_choice.h"

#include "tests/support/seed.h"

namespace headroom::memory {
namespace {

using headroom::testing::seed_text;
using headroom::testing::test_seed;

class HeardEvents final : public EventSink {
 public:
  void record(const Event& event) noexcept override { events.push_back(event); }
  std::vector<Event> events;
};

// --- A recording changes no decision -------------------------------------------------------------

// One program, one allocator over its own device. Everything that a program of one thread can see
// in a turn goes into `seen`.
class SinkWitness {
 public:
  SinkWitness(const std::string& settings, unsigned seed)
      : device_(device::MetaDevice::create(
            {.capacity_bytes = 2_GiB, .events = device::EventCompletion::kByHand})),
        allocator_(make_allocator(*device_, *parse_choice(settings))),
        random_(seed) {
    // By number, so that fingerprints can be compared.
    for (const std::uintptr_t native : {1U, 2U}) {
      streams_.push_back(device_->adopt_stream(native).value());
    }
  }

  Allocator& allocator() { return *allocator_; }
  [[nodiscard]] const std::vector<std::uint64_t>& seen() const { return seen_; }

  void turn() {
    seen_.clear();
    const std::uint64_t dice = random_() % 100;
    if (held_.empty() || (dice < 50 && held_.size() < 400)) {
      allocate();
    } else if (dice < 88) {
      free_one();
    } else {
      do_something_rare();
    }
    look();
  }

 private:
  StreamId stream() { return streams_[random_() % streams_.size()]; }

  // Mostly small: these are the blocks that threads keep.
  std::uint64_t size() {
    const std::uint64_t most = random_() % 4 != 0 ? 16U : 26U;
    return 1 + (random_() % (std::uint64_t{1} << (6 + random_() % (most - 5))));
  }

  void allocate() {
    const CategoryScope category(static_cast<Category>(random_() % kCategoryCount));
    const std::uint64_t wanted = size();
    const auto block = allocator_->try_allocate(wanted, stream());
    seen_.push_back(block ? *block : 0);
    if (block) held_.push_back(*block);
  }

  void free_one() {
    const std::size_t at = random_() % held_.size();
    allocator_->free(held_[at]);
    held_[at] = held_.back();
    held_.pop_back();
  }

  void do_something_rare() {
    const std::uint64_t dice = random_() % 12;
    const DeviceAddress block = held_[random_() % held_.size()];
    if (dice < 4) (void)allocator_->record_stream(block, stream());
    if (dice == 4) (void)device_->complete_events(stream());
    if (dice == 5) allocator_->process_events();
    if (dice == 6) seen_.push_back(allocator_->empty_cache());
    if (dice == 7) seen_.push_back(allocator_->trim(random_() % 64_MiB));
    if (dice == 8) allocator_->mark_step();
    if (dice == 9) seen_.push_back(allocator_->reserve(random_() % 32_MiB).value_or(0));
    if (dice == 10) change_pool();
    if (dice == 11) allocator_->set_limit(random_() % 2 == 0 ? std::nullopt : std::optional(1_GiB));
  }

  void change_pool() {
    if (pool_) {
      allocator_->end_allocate_to_pool(*pool_);
      allocator_->release_pool(*pool_);
      pool_.reset();
    } else {
      pool_ = allocator_->new_pool_id();
      allocator_->begin_allocate_to_pool(*pool_,
                                         [only = stream()](StreamId s) { return s == only; });
    }
  }

  void look() {
    const Statistics stats = allocator_->statistics();
    for (const StatArray* array : {&stats.allocated_bytes,
                                   &stats.active_bytes,
                                   &stats.reserved_bytes,
                                   &stats.requested_bytes,
                                   &stats.allocation}) {
      seen_.push_back(static_cast<std::uint64_t>(array->all.current));
      seen_.push_back(static_cast<std::uint64_t>(array->all.peak));
    }
    seen_.push_back(static_cast<std::uint64_t>(stats.live_bytes.peak));
    for (const Stat& stat : stats.category_bytes) {
      seen_.push_back(static_cast<std::uint64_t>(stat.peak));
    }
  }

  std::unique_ptr<device::MetaDevice> device_;
  std::unique_ptr<Allocator> allocator_;
  std::mt19937_64 random_;
  std::vector<StreamId> streams_{StreamId::kDefault};
  std::vector<DeviceAddress> held_{};
  std::optional<PoolId> pool_{};
  std::vector<std::uint64_t> seen_{};
};

constexpr const char* kSinkSettings[] = {"backend:paged",
                                         "page_mb:2,cushion:0",
                                         "magazines:0",
                                         "backend:native",
                                         "expandable_segments:True",
                                         "max_split_size_mb:32,garbage_collection_threshold:0.6",
                                         "roundup_power2_divisions:4"};

TEST(Sinks, ARecordingChangesNoDecision) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed_text(seed));
  constexpr int kTurns = 1500;
  for (const char* settings : kSinkSettings) {
    for (unsigned program = 0; program < 4; ++program) {
      SCOPED_TRACE(std::string(settings) + ", program " + std::to_string(program));
      SinkWitness alone(settings, seed + program);
      SinkWitness with_one(settings, seed + program);
      SinkWitness with_two(settings, seed + program);
      SinkWitness with_guests(settings, seed + program);  // they come and go
      HeardEvents one;
      HeardEvents first;
      HeardEvents second;
      HeardEvents guest;
      HeardEvents other_guest;
      with_one.allocator().add_sink(one);
      with_two.allocator().add_sink(first);
      with_two.allocator().add_sink(second, kSegmentActions);
      for (int i = 0; i < kTurns; ++i) {
        if (i == kTurns / 4) with_guests.allocator().add_sink(guest);
        if (i == kTurns / 2) with_guests.allocator().add_sink(other_guest, kBlockActions);
        if (i == kTurns / 2 + 100) with_guests.allocator().remove_sink(guest);
        if (i == kTurns * 3 / 4) with_guests.allocator().remove_sink(other_guest);
        for (SinkWitness* witness : {&alone, &with_one, &with_two, &with_guests}) witness->turn();
        ASSERT_EQ(alone.seen(), with_one.seen()) << "one sink, turn " << i;
        ASSERT_EQ(alone.seen(), with_two.seen()) << "two sinks, turn " << i;
        ASSERT_EQ(alone.seen(), with_guests.seen()) << "a sink in the middle, turn " << i;
      }
      const std::uint64_t print = alone.allocator().fingerprint();
      EXPECT_EQ(print, with_one.allocator().fingerprint());
      EXPECT_EQ(print, with_guests.allocator().fingerprint());
      EXPECT_EQ(with_one.allocator().check_invariants(), std::nullopt);
      EXPECT_FALSE(guest.events.empty());
      EXPECT_FALSE(other_guest.events.empty());
      for (std::size_t i = 0; i < one.events.size(); ++i) {
        ASSERT_EQ(one.events[i].sequence, one.events[0].sequence + i);
      }
    }
  }
}

// --- Who is told ---------------------------------------------------------------------------------

class SinksOfEachCore : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<device::MetaDevice> device_ = device::MetaDevice::create();
  std::unique_ptr<Allocator> allocator_ = make_allocator(*device_, *parse_choice(GetParam()));
};

INSTANTIATE_TEST_SUITE_P(Cores,
                         SinksOfEachCore,
                         ::testing::Values("backend:paged", "backend:native"),
                         [](const auto& core) {
                           return std::string(core.param).substr(std::string("backend:").size());
                         });

TEST_P(SinksOfEachCore, EverySinkHearsWhatItWants) {
  HeardEvents all;
  HeardEvents blocks;
  HeardEvents segments;
  allocator_->add_sink(all);
  allocator_->add_sink(blocks, kBlockActions);
  allocator_->add_sink(segments, kSegmentActions);
  for (const std::uint64_t size : {1_KiB, 30_MiB}) allocator_->free(allocator_->allocate(size));
  allocator_->empty_cache();
  std::vector<std::uint64_t> of_blocks;
  std::vector<std::uint64_t> of_segments;
  for (const Event& event : all.events) {
    (kBlockActions.has(event.action) ? of_blocks : of_segments).push_back(event.sequence);
  }
  const auto sequences = [](const HeardEvents& listener) {
    std::vector<std::uint64_t> out;
    for (const Event& event : listener.events) out.push_back(event.sequence);
    return out;
  };
  EXPECT_EQ(of_blocks.size(), 6U);
  EXPECT_GE(of_segments.size(), 2U);
  EXPECT_EQ(sequences(blocks), of_blocks);
  EXPECT_EQ(sequences(segments), of_segments);
}

// Writes its name down.
class NamedSink final : public EventSink {
 public:
  NamedSink(std::string& out, char name) : out_(out), name_(name) {}
  void record(const Event& /*event*/) noexcept override { out_ += name_; }

 private:
  std::string& out_;
  char name_;
};

TEST_P(SinksOfEachCore, SinksAreToldInTheOrderOfAdding) {
  std::string told;
  NamedSink a(told, 'a');
  NamedSink b(told, 'b');
  NamedSink c(told, 'c');
  for (NamedSink* sink : {&b, &c, &a}) allocator_->add_sink(*sink, {Action::kAlloc});
  const DeviceAddress block = allocator_->allocate(1_KiB);
  EXPECT_EQ(told, "bca");
  allocator_->remove_sink(c);
  allocator_->add_sink(b, {Action::kFreeRequested});  // its wishes change, its place does not
  allocator_->free(block);
  (void)allocator_->allocate(1_KiB);
  EXPECT_EQ(told, "bcaba");
  allocator_->remove_sink(c);  // gone already
  allocator_->remove_sink(a);
  (void)allocator_->allocate(1_KiB);
  EXPECT_EQ(told, "bcaba");
}

TEST_P(SinksOfEachCore, AnAllocatorThatEndsTellsNobody) {
  HeardEvents sink;
  allocator_->add_sink(sink);
  (void)allocator_->allocate(3_MiB);
  const std::size_t before = sink.events.size();
  allocator_.reset();
  EXPECT_EQ(sink.events.size(), before);
}

}  // namespace
}  // namespace headroom::memory
