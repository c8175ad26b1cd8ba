// The loader: its order, its threads, its copies beside the work, and its bytes.
#include <atomic>
#include <functional>
#include <memory>
#include <pthread.h>
#include <set>
#include <system_error>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/nn.h"
#include "headroom/nn/internal/batch_workers.h"
#include "headroom/tensor/cpu/internal/thread_pool.h"
#include "headroom/trace/record/history.h"

#include "tests/autograd/world.h"
#include "tests/support/forked.h"
#include "tests/support/sanitized.h"
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

// A device copies when it comes to it, which may be after the epoch has gone.
TEST(DataLoader, ABatchOutlivesItsEpoch) {
  World world;
  const Numbers data(600);
  for (const bool pin : {false, true}) {
    for (const int prefetch : {0, 2}) {
      const nn::DataLoader loader(
          data, {.batch = 300, .prefetch = prefetch, .pin = pin, .place = world.allocator()});
      auto epoch = std::make_unique<nn::DataLoader::Epoch>(loader, 0);
      const nn::Batch batch = epoch->next().value();
      epoch.reset();
      const std::vector<std::byte> over(1 << 14, std::byte{0xAB});  // where the buffers were
      const auto numbers = batch.target.to_integers();
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        ASSERT_EQ(numbers[i], static_cast<std::int64_t>(i)) << over.size();
      }
    }
  }
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
    for (const auto kind : {World::Kind::kReal, World::Kind::kMeta}) {
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

// --- Threads that cannot be started (#21: those that had been waited for ever)

std::atomic<int> threads_left = 0;

std::jthread start_while_some_are_left(std::function<void()> work) {
  if (threads_left-- <= 0) {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  }
  return std::jthread(std::move(work));
}

TEST(DataLoader, SaysHowManyWorkersCouldBeStartedAndEndsThem) {
  const Numbers data(1000);
  const World world;
  for (const int possible : {0, 1, 5}) {
    nn::internal::BatchPlan plan{.order = std::vector<std::int64_t>(1000), .batch = 10};
    plan.batches = 100;
    std::vector<std::unique_ptr<nn::internal::HostBuffer>> buffers;
    buffers.push_back(std::make_unique<nn::internal::HostBuffer>(
        world.allocator().device(), data.spec(), 10, false));
    threads_left = possible;
    EXPECT_THAT(
        message_of([&] {
          nn::internal::BatchWorkers(data, plan, std::move(buffers), 8, start_while_some_are_left);
        }),
        ::testing::AllOf(HasSubstr(std::to_string(possible) + " of 8 workers could be started"),
                         HasSubstr("ask for fewer workers")));
  }
}

constexpr bool kCanRefuseThreads = !testing::kIsSanitized;
constexpr bool kStartsThreadsInAChild = !testing::kHasThreadSanitizer;

// Stacks that no address space has room for: no thread can be started at all.
class NoThreads {
 public:
  NoThreads() {
    EXPECT_EQ(pthread_getattr_default_np(&before_), 0);
    pthread_attr_t huge;
    EXPECT_EQ(pthread_getattr_default_np(&huge), 0);
    EXPECT_EQ(pthread_attr_setstacksize(&huge, std::size_t{1} << 47U), 0);
    EXPECT_EQ(pthread_setattr_default_np(&huge), 0);
    (void)pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    (void)pthread_setattr_default_np(&before_);
    (void)pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

TEST(DataLoader, ThrowsWhenTheSystemGivesNoThread) {
  if (!kCanRefuseThreads) GTEST_SKIP() << "a sanitizer starts threads its own way";
  const Numbers data(100);
  const World world;
  const nn::DataLoader loader(
      data, {.batch = 10, .workers = 3, .prefetch = 0, .place = world.allocator()});
  std::string said;
  {
    const NoThreads none;
    said = message_of([&] { (void)loader.epoch(0).next(); });
  }
  EXPECT_THAT(said, HasSubstr("0 of 3 workers could be started"));
  EXPECT_EQ(seen_by(loader, 0).size(), 100U) << "and works when there are threads again";
}

TEST(Loader, IsNothingInTheChildOfAFork) {
  World world;
  const Numbers numbers(64);
  const nn::DataLoader loader(
      numbers, {.batch = 4, .workers = 3, .prefetch = 2, .place = world.allocator()});
  auto epoch = std::make_unique<nn::DataLoader::Epoch>(loader, 0);
  ASSERT_TRUE(epoch->next());
  EXPECT_TRUE(testing::is_true_in_child([&] {
    bool is_refused = false;
    try {
      (void)epoch->next();
    } catch (const Forked&) {
      is_refused = true;
    }
    epoch.reset();
    return is_refused;
  }));
  int batches = 1;
  while (epoch->next()) ++batches;
  EXPECT_EQ(batches, 16);
}

// The parent's threads are not in the child, where kernels would wait for them.
TEST(ThreadPool, OfTheChildOfAForkIsItsOwn) {
  if (!kStartsThreadsInAChild) GTEST_SKIP() << "ThreadSanitizer ends a child that starts a thread";
  const auto sum = [] {
    std::atomic<std::int64_t> total = 0;
    tensor::cpu::parallel_for(
        1 << 16, 1, [&](std::int64_t begin, std::int64_t end) { total += end - begin; });
    return total.load();
  };
  ASSERT_EQ(sum(), 1 << 16);
  EXPECT_TRUE(testing::is_true_in_child([&] { return sum() == 1 << 16; }));
  EXPECT_EQ(sum(), 1 << 16);
}

TEST(ThreadPool, ComputesWithTheThreadsThereAre) {
  if (!kCanRefuseThreads) GTEST_SKIP() << "a sanitizer starts threads its own way";
  std::atomic<int> done = 0;
  const auto count = [](void* context, std::int64_t) {
    ++*static_cast<std::atomic<int>*>(context);
  };
  {
    const NoThreads none;
    tensor::cpu::ThreadPool alone(4);
    EXPECT_EQ(alone.size(), 1);
    alone.run(10, count, &done);
  }
  EXPECT_EQ(done, 10);
}

}  // namespace
}  // namespace headroom
