// The loader: its order, its threads, its copies beside the work, and its bytes.
#include <atomic>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/nn.h"
#include "headroom/trace/history.h"

#include "tests/autograd/world.h"
#include "tests/support/stream_gate.h"

namespace headroom {
namespace {

using memory::Category;
using ::testing::ElementsAre;
using testing::EventLog;
using ::testing::HasSubstr;
using testing::message_of;
using testing::World;

// Example i is (i, i + 1/2) and i; number `fails_at` throws.
class Numbers : public nn::Dataset {
 public:
  explicit Numbers(std::int64_t size, std::int64_t fails_at = -1)
      : size_(size), fails_at_(fails_at) {}
  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] nn::ExampleSpec spec() const override {
    return {.input = {.dtype = kF32, .shape = {2}}, .target = {.dtype = kI64}};
  }
  void write(std::int64_t i, void* input, void* target) const override {
    if (i == fails_at_) throw Error("example " + std::to_string(i) + " is broken");
    ++written;
    static_cast<float*>(input)[0] = static_cast<float>(i);
    static_cast<float*>(input)[1] = static_cast<float>(i) + 0.5F;
    *static_cast<std::int64_t*>(target) = i;
  }

  mutable std::atomic<std::int64_t> written = 0;

 private:
  std::int64_t size_;
  std::int64_t fails_at_;
};

std::vector<std::int64_t> seen_by(const nn::DataLoader& loader, std::int64_t epoch) {
  std::vector<std::int64_t> out;
  for (const nn::Batch& batch : loader.epoch(epoch)) {
    const auto numbers = batch.target.to_integers();
    const auto values = batch.input.to_doubles();
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      EXPECT_EQ(values[2 * i], static_cast<double>(numbers[i]));
      EXPECT_EQ(values[2 * i + 1], static_cast<double>(numbers[i]) + 0.5);
    }
    out.insert(out.end(), numbers.begin(), numbers.end());
  }
  return out;
}

TEST(DataLoader, OneSeedIsOneOrderWhateverTheWorkers) {
  const World world;
  const Numbers data(103);
  std::set<std::vector<std::int64_t>> orders;
  for (const std::int64_t epoch : {0, 1}) {
    for (const std::uint64_t seed : {0U, 1U}) {
      std::set<std::vector<std::int64_t>> same;
      for (const int workers : {0, 1, 2, 5}) {
        for (const int prefetch : {0, 1, 3}) {
          const nn::DataLoader loader(data,
                                      {.batch = 10,
                                       .shuffle = true,
                                       .seed = seed,
                                       .workers = workers,
                                       .prefetch = prefetch,
                                       .pin = prefetch != 3,
                                       .place = world.allocator()});
          same.insert(seen_by(loader, epoch));
        }
      }
      EXPECT_EQ(same.size(), 1U);
      EXPECT_EQ(std::set<std::int64_t>(same.begin()->begin(), same.begin()->end()).size(), 103U);
      orders.insert(*same.begin());
    }
  }
  EXPECT_EQ(orders.size(), 4U);
}

TEST(DataLoader, TheLastBatchIsSmallerOrLeftOut) {
  const World world;
  const Numbers data(7);
  const nn::DataLoader all(data, {.batch = 3, .place = world.allocator()});
  const nn::DataLoader whole(data, {.batch = 3, .drop_last = true, .place = world.allocator()});
  EXPECT_EQ(all.batches(), 3);
  EXPECT_THAT(seen_by(all, 0), ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_EQ(whole.batches(), 2);
  EXPECT_THAT(seen_by(whole, 0), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(DataLoader, WrongOptionsAreRefused) {
  const Numbers data(7);
  const std::vector<std::pair<const char*, nn::DataLoaderOptions>> cases = {
      {"a batch of at least 1 is wanted, not 0", {.batch = 0}},
      {"workers of at least 0 is wanted, not -1", {.workers = -1}},
      {"a prefetch of at least 0 is wanted, not -2", {.prefetch = -2}},
      {"a dataset of at least 8 is wanted, not 7", {.batch = 8, .drop_last = true}},
  };
  for (const auto& [message, options] : cases) {
    EXPECT_THAT(message_of([&, o = options] { nn::DataLoader(data, o); }), HasSubstr(message));
  }
}

TEST(DataLoader, AWorkersErrorReachesWhoTakesItsBatch) {
  const World world;
  const Numbers data(100, /*fails_at=*/57);
  for (const int workers : {0, 1, 3}) {
    for (const int prefetch : {0, 2}) {
      const nn::DataLoader loader(
          data,
          {.batch = 10, .workers = workers, .prefetch = prefetch, .place = world.allocator()});
      auto epoch = loader.epoch(0);
      for (int i = 0; i < 5; ++i) ASSERT_TRUE(epoch.next()) << i;
      EXPECT_EQ(message_of([&] { (void)epoch.next(); }), "example 57 is broken");
      EXPECT_FALSE(epoch.next());
    }
  }
}

TEST(DataLoader, AnEpochMayEndEarly) {
  const World world;
  const Numbers data(1000);
  for (int taken = 0; taken < 4; ++taken) {
    const nn::DataLoader loader(
        data, {.batch = 10, .workers = 3, .prefetch = 4, .place = world.allocator()});
    auto epoch = loader.epoch(0);
    for (int i = 0; i < taken; ++i) ASSERT_TRUE(epoch.next());
  }
  EXPECT_EQ(world.allocated_bytes(), 0);
  EXPECT_LT(data.written, 4 * 200);  // no further ahead than there are buffers
}

// The copy of the next batch is on its way, and cannot end, while this one is computed with.
TEST(DataLoader, CopiesRunBesideTheWork) {
  const World world;
  const Numbers data(40);
  const nn::DataLoader loader(
      data, {.batch = 4, .workers = 1, .prefetch = 1, .place = world.allocator()});
  auto epoch = loader.epoch(0);
  ASSERT_TRUE(epoch.next());
  ASSERT_TRUE(epoch.copy_stream());
  testing::StreamGate gate(world.allocator().device(), epoch.copy_stream()->id());
  const auto second = epoch.next();  // queues the third behind the gate
  ASSERT_TRUE(second);
  const Event third_copied = epoch.copy_stream()->record();
  EXPECT_EQ((second->input * 2).sum().item<double>(), 2 * (4 + 5 + 6 + 7 + 22 + 2));
  EXPECT_FALSE(third_copied.is_done());
  gate.open();
  EXPECT_THAT(epoch.next()->target.to_integers(), ElementsAre(8, 9, 10, 11));
}

// The same in a recording: the marks of a copy lie inside the span of the work.
TEST(DataLoader, ARecordingShowsTheCopyInsideTheForward) {
  const World world;
  const Numbers data(40);
  std::vector<std::string> marks;
  class Marks final : public memory::ScopeObserver {
   public:
    explicit Marks(std::vector<std::string>& to) : to_(to) { memory::add_scope_observer(*this); }
    ~Marks() override { memory::remove_scope_observer(*this); }
    void scope_changed(std::string_view name, bool is_start) noexcept override {
      to_.push_back((is_start ? "+" : "-") + std::string(name));
    }

   private:
    std::vector<std::string>& to_;
  };
  const nn::DataLoader loader(data, {.batch = 4, .prefetch = 1, .place = world.allocator()});
  auto epoch = loader.epoch(0);
  ASSERT_TRUE(epoch.next());
  epoch.copy_stream()->synchronize();
  {
    const Marks observer(marks);
    testing::StreamGate gate(world.allocator().device(), epoch.copy_stream()->id());
    const auto batch = epoch.next();
    const memory::PhaseScope forward(memory::Phase::kForward);
    gate.open();
    epoch.copy_stream()->synchronize();
    (void)tanh(batch->input);
  }
  EXPECT_THAT(marks,
              ElementsAre("+data_loading",
                          "-data_loading",
                          "+forward",
                          "+copy to device",
                          "-copy to device",
                          "+copy to device",
                          "-copy to device",
                          "-forward"));
}

// Batches are data; with prefetch two are there, else one; and meta does the same.
TEST(DataLoader, WhatItAllocatesIsTheSameOnMetaAndWhateverTheWorkers) {
  for (const int prefetch : {0, 2}) {
    std::set<std::vector<std::string>> logs;
    for (const auto kind : {World::Kind::kCpu, World::Kind::kMeta}) {
      for (const int workers : {0, 2}) {
        const World world(kind);
        const Numbers data(1000);
        const nn::DataLoader loader(
            data,
            {.batch = 300, .workers = workers, .prefetch = prefetch, .place = world.allocator()});
        const EventLog log(world.allocator());
        for (const nn::Batch& batch : loader.epoch(0)) {
          const Tensor y = tanh(batch.input);
          EXPECT_LE(world.category_bytes(Category::kData), (prefetch > 0 ? 2 : 1) * (2560 + 2560));
        }
        EXPECT_EQ(world.category_bytes(Category::kData), 0);
        logs.insert(log.lines());
      }
    }
    EXPECT_EQ(logs.size(), 1U) << prefetch;
  }
}

}  // namespace
}  // namespace headroom
