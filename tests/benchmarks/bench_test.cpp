// `headroom bench`: who takes part, how much each does, what is printed.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "headroom/base/bytes.h"
#include "headroom/device/cpu/cpu_device.h"
#include "headroom/device/cuda/cuda_device.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/report/text.h"

#include "benchmarks/alloc/bench_alloc.h"
#include "benchmarks/bench_views.h"
#include "benchmarks/device/bench_device.h"
#include "benchmarks/replay/bench_replay.h"
#include "benchmarks/train/bench_train.h"
#include "tests/support/process.h"

namespace headroom::cli {
namespace {

using headroom::testing::ProcessResult;
using headroom::testing::run_process;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ProcessResult run_bench(std::vector<std::string> arguments,
                        std::map<std::string, std::string> environment = {}) {
  environment.emplace("HEADROOM_CALLED_AS", "headroom");
  return run_process({.program = HEADROOM_BINARY,
                      .arguments = std::move(arguments),
                      .environment = std::move(environment)});
}

// Hands out numbers; may take its time, or run out.
class Pretended final : public Contender {
 public:
  explicit Pretended(std::chrono::microseconds pause = {}, std::uint64_t last = UINT64_MAX)
      : pause_(pause), last_(last) {}
  [[nodiscard]] std::string name() const override { return "pretended"; }
  void enter_thread() override { ++threads; }
  std::uint64_t allocate(std::uint64_t size_bytes) override {
    if (pause_.count() > 0) std::this_thread::sleep_for(pause_);
    if (next_ >= last_) throw Error("pretended: nothing left");
    largest = std::max(largest.load(), size_bytes);
    ++held;
    return ++next_;
  }
  void free(std::uint64_t address) override {
    EXPECT_NE(address, 0U);
    --held;
  }

  std::atomic<std::int64_t> held{0};
  std::atomic<std::uint64_t> largest{0};
  std::atomic<int> threads{0};

 private:
  std::chrono::microseconds pause_;
  std::uint64_t last_;
  std::atomic<std::uint64_t> next_{0};
};

Contenders field_of(std::unique_ptr<Contender> subject) {
  Contenders contenders{.device = "pretended:0", .room_bytes = 4_TiB};
  contenders.all.push_back(std::move(subject));
  return contenders;
}

const Progress kSilent = [](std::string_view) {};

TEST(BenchAlloc, EveryBlockGoesBackAndEveryThreadEnters) {
  auto subject = std::make_unique<Pretended>();
  const Pretended& seen = *subject;
  const Contenders field = field_of(std::move(subject));
  const AllocBench bench =
      bench_alloc({.threads = {3}, .rounds = 2, .pairs = 50, .turn_ms = 5}, field, kSilent);
  EXPECT_EQ(seen.held.load(), 0);
  EXPECT_EQ(seen.threads.load() % 3, 0);
  EXPECT_GT(seen.threads.load(), 0);
  EXPECT_LE(seen.largest.load(), 64_MiB);
  ASSERT_EQ(bench.cases.size(), 7U);
  for (const AllocCase& entry : bench.cases) {
    EXPECT_EQ(entry.threads, 3);
    ASSERT_EQ(entry.results.size(), 1U);
    EXPECT_DOUBLE_EQ(entry.results[0].to_baseline.median, 1.0) << "alone it is the baseline";
    EXPECT_GT(entry.results[0].pair_ns.low, 0);
  }
  EXPECT_GE(bench.cases[0].results[0].pairs, 32U);
  EXPECT_LE(bench.cases[0].results[0].pairs, 50U);
}

TEST(BenchAlloc, SeveralThreadsAreComparedWithOne) {
  const Contenders field = field_of(std::make_unique<Pretended>());
  const AllocBench bench =
      bench_alloc({.threads = {1, 2}, .rounds = 1, .pairs = 50, .turn_ms = 5}, field, kSilent);
  ASSERT_EQ(bench.cases.size(), 14U);
  for (std::size_t i = 0; i < bench.cases.size(); i += 2) {
    EXPECT_EQ(bench.cases[i].name, bench.cases[i + 1].name);
    const AllocResult& one = bench.cases[i].results[0];
    const AllocResult& two = bench.cases[i + 1].results[0];
    EXPECT_FALSE(one.scaling);
    ASSERT_TRUE(two.scaling);
    EXPECT_DOUBLE_EQ(*two.scaling, one.pair_ns.median / two.pair_ns.median);
  }
}

// Which threads came, in their order: the caller, or one that was made for the turn.
class Witness final : public Contender {
 public:
  explicit Witness(std::chrono::milliseconds pause_of_others = {}) : pause_(pause_of_others) {}
  [[nodiscard]] std::string name() const override { return "witness"; }
  void enter_thread() override {
    const std::lock_guard lock(mutex_);
    order += is_caller() ? 'c' : 'o';
  }
  std::uint64_t allocate(std::uint64_t /*size_bytes*/) override {
    ++(is_caller() ? by_caller : by_others);
    if (!is_caller()) std::this_thread::sleep_for(pause_);
    return 1;
  }
  void free(std::uint64_t /*address*/) override {}

  std::string order;
  std::atomic<int> by_caller{0};
  std::atomic<int> by_others{0};

 private:
  [[nodiscard]] bool is_caller() const { return std::this_thread::get_id() == caller_; }

  std::thread::id caller_ = std::this_thread::get_id();
  std::chrono::milliseconds pause_;
  std::mutex mutex_;
};

TEST(BenchAlloc, HotRoundsOfOneThreadAndOfTwoAlternate) {
  auto subject = std::make_unique<Witness>();
  const Witness& seen = *subject;
  const Contenders field = field_of(std::move(subject));
  (void)bench_alloc(
      {.threads = {1, 2}, .rounds = 2, .pairs = 50, .turn_ms = 1, .filter = "hot 4KiB"},
      field,
      kSilent);
  // Three turns of one thread and three of two, twice.
  ASSERT_GE(seen.order.size(), 18U);
  std::string rounds = seen.order.substr(seen.order.size() - 18);
  for (const std::size_t of_two : {3U, 12U}) {
    std::sort(rounds.begin() + of_two, rounds.begin() + of_two + 6);
  }
  EXPECT_EQ(rounds,
            "ccccccooo"
            "ccccccooo");
}

// A thread that the machine keeps from running would else be waited for.
TEST(BenchAlloc, AllThreadsStopWhenTheFirstHasDoneItsPart) {
  auto subject = std::make_unique<Witness>(std::chrono::milliseconds(5));
  const Witness& seen = *subject;
  const Contenders field = field_of(std::move(subject));
  (void)bench_alloc({.threads = {2}, .rounds = 1, .pairs = 32, .turn_ms = 1, .filter = "hot 512B"},
                    field,
                    kSilent);
  EXPECT_LT(seen.by_others * 4, seen.by_caller) << "both had 32 to do";
}

TEST(BenchAlloc, AFilterLeavesTheCasesWithItsTextInTheirNames) {
  const Contenders field = field_of(std::make_unique<Pretended>());
  const auto names = [&](const std::string& filter) {
    std::vector<std::string> out;
    for (const AllocCase& entry :
         bench_alloc({.threads = {1}, .rounds = 1, .pairs = 10, .turn_ms = 1, .filter = filter},
                     field,
                     kSilent)
             .cases) {
      out.push_back(entry.name);
    }
    return out;
  };
  EXPECT_THAT(names("64"),
              ::testing::ElementsAre("hot 64KiB", "hot 64MiB", "churn large (1 to 64MiB)"));
  EXPECT_THAT(names("nothing of the kind"), ::testing::IsEmpty());
}

TEST(BenchAlloc, ASlowAllocatorDoesFewerPairs) {
  const Contenders field = field_of(std::make_unique<Pretended>(std::chrono::microseconds(50)));
  const AllocBench bench =
      bench_alloc({.threads = {1}, .rounds = 1, .pairs = 100'000, .turn_ms = 4}, field, kSilent);
  for (const AllocCase& entry : bench.cases) {
    EXPECT_GE(entry.results[0].pairs, 32U) << entry.name;
    EXPECT_LE(entry.results[0].pairs, 80U) << entry.name << ": 4 ms, 50 us and more each";
  }
}

TEST(BenchAlloc, WhatFailsInAThreadIsTheAnswer) {
  const Contenders field = field_of(std::make_unique<Pretended>(std::chrono::microseconds(0), 40));
  try {
    (void)bench_alloc({.threads = {4}, .rounds = 1, .pairs = 100}, field, kSilent);
    FAIL() << "there were 40 blocks";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "pretended: nothing left");
  }
}

TEST(BenchAlloc, TheWorkingSetLeavesRoomOnASmallDevice) {
  class Counting final : public Contender {
   public:
    [[nodiscard]] std::string name() const override { return "counting"; }
    std::uint64_t allocate(std::uint64_t) override {
      most = std::max(most, ++held);
      return 1;
    }
    void free(std::uint64_t) override { --held; }
    int held = 0;
    int most = 0;
  };
  auto subject = std::make_unique<Counting>();
  const Counting& seen = *subject;
  Contenders field = field_of(std::move(subject));
  field.room_bytes = 32 * 16_MiB;
  (void)bench_alloc({.threads = {1}, .rounds = 1, .pairs = 1000, .turn_ms = 5}, field, kSilent);
  EXPECT_LE(seen.most, 33) << "16 MiB of blocks of half a MiB";
}

AllocBench sample() {
  const AllocResult ours{.allocator = "headroom caching",
                         .pair_ns = {.median = 50, .low = 48, .high = 61},
                         .to_baseline = {.median = 0.11, .low = 0.1, .high = 0.12},
                         .pairs = 100'000};
  return {.device = "cuda:0",
          .baseline = "PyTorch 2.11.0",
          .notes = {"something is left out"},
          .cases = {{.name = "hot 512B", .threads = 1, .results = {ours}},
                    {.name = "churn mixed", .threads = 16, .results = {ours}}}};
}

TEST(BenchAlloc, ASmallRatioKeepsItsDigits) {
  AllocBench bench = sample();
  bench.cases[1].results[0].to_baseline.median = 0.00123;
  const std::string text = draw_alloc_bench(bench, Context{});
  EXPECT_THAT(text, HasSubstr("  0.11"));
  EXPECT_THAT(text, HasSubstr("  0.0012"));
}

TEST(BenchAlloc, JsonHasTheDeviceAndEachSpread) {
  const auto json = nlohmann::json::parse(alloc_bench_json(sample()));
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["command"], "bench");
  EXPECT_EQ(json["what"], "alloc");
  EXPECT_EQ(json["device"], "cuda:0");
  EXPECT_EQ(json["baseline"], "PyTorch 2.11.0");
  EXPECT_EQ(json["notes"].size(), 1U);
  const auto& result = json["cases"].at(1)["results"].at(0);
  EXPECT_EQ(json["cases"].at(1)["threads"], 16);
  EXPECT_EQ(result["allocator"], "headroom caching");
  EXPECT_EQ(result["pair_ns"]["median"], 50);
  EXPECT_EQ(result["ratio"]["high"], 0.12);
  EXPECT_EQ(result["pairs"], 100'000);
}

TEST(BenchAlloc, TextNamesTheDeviceTheBaselineAndWhoIsMissing) {
  const std::string text = draw_alloc_bench(sample(), Context{});
  EXPECT_THAT(text, HasSubstr("on cuda:0"));
  EXPECT_THAT(text, HasSubstr("divided by that of PyTorch 2.11.0"));
  EXPECT_THAT(text, HasSubstr("churn mixed, 16 threads"));
  EXPECT_THAT(text, HasSubstr("48 to 61"));
  EXPECT_THAT(text, HasSubstr("something is left out"));
}

TEST(BenchAlloc, AMissingPluginIsANoteThatSaysHowToGetIt) {
  setenv("HEADROOM_BENCH_TORCH", "/nowhere/plugin.so", 1);
  Contenders field = field_of(std::make_unique<Pretended>());
  add_cuda_contenders(field, 0);
  unsetenv("HEADROOM_BENCH_TORCH");
  ASSERT_FALSE(field.notes.empty());
  EXPECT_THAT(field.notes.back(), HasSubstr("PyTorch's allocator is left out: /nowhere/plugin.so"));
  EXPECT_THAT(field.notes.back(), HasSubstr("-DHEADROOM_TORCH=ON"));
  EXPECT_THAT(field.notes.back(), HasSubstr("ratios are to "));
  EXPECT_EQ(field.notes.back().find('\n'), std::string::npos);
}

// --- bench device ----------------------------------------------------------------------------

std::set<std::string> calls_of(const DeviceBench& bench) {
  std::set<std::string> names;
  for (const CallCost& cost : bench.calls) names.insert(cost.call);
  return names;
}

TEST(BenchDevice, TimesEveryCallOnMetaAndGivesAllBack) {
  const auto device = device::MetaDevice::create({.capacity_bytes = 64_GiB});
  const DeviceBench bench = bench_device(*device, {.rounds = 2}, kSilent);
  EXPECT_EQ(bench.device, "meta:0");
  EXPECT_EQ(bench.load_ms, 0) << "it cannot be busy";
  EXPECT_THAT(calls_of(bench),
              ::testing::IsSupersetOf({"allocate_segment",
                                       "free_segment",
                                       "reserve_addresses",
                                       "release_addresses",
                                       "create_pages",
                                       "map_pages",
                                       "map_pages, again",
                                       "unmap_pages",
                                       "release_pages",
                                       "record_event",
                                       "query_event",
                                       "synchronize_event",
                                       "memory_info",
                                       "fill",
                                       "allocate_pinned"}));
  for (const CallCost& cost : bench.calls) {
    EXPECT_GT(cost.idle_us.median, 0) << cost.call;
    EXPECT_LE(cost.idle_us.low, cost.idle_us.median) << cost.call;
    EXPECT_LE(cost.idle_us.median, cost.idle_us.high) << cost.call;
    EXPECT_FALSE(cost.loaded_us.has_value()) << cost.call;
    EXPECT_FALSE(cost.waits) << cost.call;
  }
  EXPECT_EQ(device->memory_info().value().free_bytes, 64_GiB);
  EXPECT_TRUE(device->state().reservations.empty());
  EXPECT_TRUE(device->state().streams.empty());
}

TEST(BenchDevice, TheSameBytesComeInHandlesOfEverySize) {
  const auto device = device::MetaDevice::create({.capacity_bytes = 64_GiB});
  const DeviceBench bench = bench_device(*device, {.rounds = 1}, kSilent);
  std::vector<std::uint64_t> handles;
  for (const CallCost& cost : bench.calls) {
    if (cost.call == "create_pages") handles.push_back(cost.handles);
  }
  EXPECT_THAT(handles, ElementsAre(512, 128, 51, 16, 4, 1));
}

TEST(BenchDevice, IsBusyWhereStreamsHaveThreads) {
  const auto device = device::CpuDevice::create({.capacity_bytes = 1_GiB});
  const DeviceBench bench = bench_device(*device, {.rounds = 1, .load_ms = 2}, kSilent);
  EXPECT_GT(bench.load_ms, 0);
  for (const CallCost& cost : bench.calls) EXPECT_TRUE(cost.loaded_us.has_value()) << cost.call;
  EXPECT_EQ(device->memory_info().value().free_bytes, 1_GiB);
}

TEST(BenchDevice, TooSmallADeviceIsAnError) {
  const auto device = device::MetaDevice::create({.capacity_bytes = 512_MiB});
  EXPECT_THROW((void)bench_device(*device, {.rounds = 1}, kSilent), Error);
}

TEST(BenchDevice, ShowsHandlesAndWhatWaits) {
  const DeviceBench bench{
      .device = "cuda:0",
      .name = "NVIDIA H200",
      .load_ms = 50.2,
      .calls = {{.call = "map_pages",
                 .size_bytes = 1_GiB,
                 .handles = 512,
                 .idle_us = {.median = 16347, .low = 16000, .high = 17000},
                 .loaded_us = Spread{.median = 16400, .low = 16400, .high = 16400}},
                {.call = "free_segment",
                 .size_bytes = 512,
                 .idle_us = {.median = 53.25, .low = 50, .high = 60},
                 .loaded_us = Spread{.median = 50000, .low = 49000, .high = 51000},
                 .waits = true}}};
  const std::string text = draw_device_bench(bench, Context{});
  EXPECT_THAT(text, HasSubstr("cuda:0, NVIDIA H200"));
  EXPECT_THAT(text, HasSubstr("during 50.2 ms of fills"));
  DeviceBench quick = bench;
  quick.load_ms = 0.4;
  EXPECT_THAT(draw_device_bench(quick, Context{}), HasSubstr("during 400 us of fills"));
  EXPECT_THAT(text, HasSubstr("512 x 2MiB"));
  EXPECT_THAT(text, HasSubstr("16347"));
  EXPECT_THAT(text, HasSubstr("53.25"));
  EXPECT_THAT(text, HasSubstr("waits\n"));
  EXPECT_THAT(text, HasSubstr("Next: headroom bench alloc --device cuda:0"));
  const auto json = nlohmann::json::parse(device_bench_json(bench));
  EXPECT_EQ(json["what"], "device");
  EXPECT_EQ(json["device"], "cuda:0");
  EXPECT_EQ(json["calls"].at(0)["handles"], 512);
  EXPECT_EQ(json["calls"].at(1)["waits"], true);
  EXPECT_EQ(json["calls"].at(1)["loaded_us"]["high"], 51000);
}

// 80 columns, with names as long as they are and large numbers beside them.
TEST(BenchViews, NamesStayWholeWithinTheTerminal) {
  const TrainBench train{.device = "cpu:0",
                         .costs = {{.name = "gpt2-tiny, 2 blocks of 256, 4 x 128 tokens",
                                    .step_ms = {.median = 1234.5},
                                    .pytorch_ms = {.median = 1234.5},
                                    .plain_ms = {.median = 1000.5},
                                    .overhead = {.median = 0.23, .low = 0.2, .high = 0.26}}}};
  const std::vector<ReplayBenchCase> replays{
      {.recording = "run",
       .rows = {{.policy = "pytorch:roundup_power2_divisions:4",
                 .peak_reserved = 1023 * 1_MiB + 512_KiB,
                 .over_live = 1.628,
                 .driver_us = 16'400,
                 .retries = 1'000}}}};
  for (const std::string& text : {draw_train_bench(train, Context{}), draw(replays, Context{})}) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(report::display_width(line), 80) << line;
    }
  }
  EXPECT_THAT(draw_train_bench(train, Context{}), HasSubstr(train.costs[0].name));
  EXPECT_THAT(draw(replays, Context{}), HasSubstr(replays[0].rows[0].policy));
  EXPECT_THAT(draw(replays, Context{}), HasSubstr("1,000"));
}

// --- From outside ----------------------------------------------------------------------------

TEST(CliBench, MeasuresADevicesCalls) {
  const ProcessResult done =
      run_bench({"bench", "device", "--device", "meta", "--rounds", "1", "--json"});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  const auto json = nlohmann::json::parse(done.out);
  EXPECT_EQ(json["what"], "device");
  EXPECT_EQ(json["device"], "meta:0");
  EXPECT_TRUE(json["calls"].at(0)["loaded_us"].is_null());
  EXPECT_EQ(run_bench({"bench", "device", "--device", "cuda:99"}).exit_code, 1);
}

TEST(CliBench, MeasuresOnMetaByDefault) {
  const ProcessResult done =
      run_bench({"bench", "--threads", "1", "--rounds", "1", "--turn-ms", "5", "--json"});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  const auto json = nlohmann::json::parse(done.out);
  EXPECT_EQ(json["device"], "meta:0");
  std::vector<std::string> cases;
  for (const auto& entry : json["cases"]) cases.push_back(entry["case"]);
  EXPECT_THAT(cases,
              ElementsAre("hot 512B",
                          "hot 4KiB",
                          "hot 64KiB",
                          "hot 64MiB",
                          "churn small (to 1MiB)",
                          "churn large (1 to 64MiB)",
                          "churn mixed"));
}

TEST(CliBench, MeasuresOnTheCpuWithItsSegments) {
  const ProcessResult done = run_bench(
      {"bench", "alloc", "--device", "cpu", "--threads", "2", "--rounds", "1", "--turn-ms", "5"});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("on cpu:0"));
  EXPECT_THAT(done.out, HasSubstr("segments, uncached"));
}

TEST(CliBench, SaysInOneLineWhyThereIsNoGpu) {
  const ProcessResult done = run_bench({"bench", "alloc", "--device", "cuda:99"});
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_EQ(done.out, "");
  EXPECT_THAT(done.err, HasSubstr("headroom: cuda:99 does not exist: "));
  EXPECT_EQ(done.err.find('\n'), done.err.size() - 1) << done.err;
  if (device::CudaDevice::count() == 0) {
    EXPECT_THAT(run_bench({"bench", "--device", "cuda"}).err,
                HasSubstr(device::CudaDevice::why_none()));
  }
  EXPECT_EQ(run_bench({"bench", "--device", "tpu"}).exit_code, 2);
}

TEST(CliBench, AFilterThatNoCaseHasSaysWhichThereAre) {
  const ProcessResult done = run_bench({"bench", "alloc", "--filter", "chrun"});
  EXPECT_EQ(done.exit_code, 2);
  EXPECT_EQ(done.out, "");
  EXPECT_THAT(done.err, HasSubstr("no case has 'chrun' in its name; there are hot "));
}

// #23: a log has a line for each case while it is measured; a terminal has one that is drawn again.
TEST(CliBench, TellsALogWhatItMeasures) {
  const ProcessResult done = run_bench(
      {"bench", "alloc", "--threads", "1,2", "--rounds", "1", "--turn-ms", "5", "--filter", "512"});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(done.err,
            "headroom: measuring hot 512B, 1 thread\n"
            "headroom: measuring hot 512B, 2 threads\n");
  const ProcessResult replay =
      run_bench({"bench", "replay", HEADROOM_SAMPLES "/leak_loss.pickle.zst", "--rounds", "1"});
  ASSERT_EQ(replay.exit_code, 0) << replay.err;
  EXPECT_THAT(replay.err, HasSubstr("headroom: measuring leak_loss: cudaMallocAsync\n"));
}

TEST(CliBench, DrawsItsProgressOnATerminal) {
  if (!headroom::testing::has_terminals()) GTEST_SKIP() << "no terminal to be had here";
  const ProcessResult done = run_process(
      {.program = HEADROOM_BINARY,
       .arguments = {"bench", "alloc", "--threads=1", "--rounds=1", "--turn-ms=5", "--filter=512"},
       .err_is_terminal = true});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(done.err, "\rmeasuring hot 512B, 1 thread\x1b[K\r\x1b[K");
}

// What is measured of `kind` when `filter` is asked for.
nlohmann::json measured_ops(const std::string& filter, const char* kind) {
  const ProcessResult done =
      run_bench({"bench", "ops", "--rounds", "1", "--size", "1MiB", "--filter", filter, "--json"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  const auto json = nlohmann::json::parse(done.out);
  EXPECT_EQ(json.at("schema"), 1);
  EXPECT_EQ(json.at("what"), "ops");
  EXPECT_EQ(json.at("size_bytes"), 1_MiB);
  for (const char* other : {"matrices", "convolutions", "attention", "elements", "dispatch"}) {
    EXPECT_TRUE(other == std::string_view(kind) || json.at(other).empty()) << other;
  }
  return json.at(kind);
}

TEST(CliBench, SaysWhatItCannotMeasure) {
  for (const char* what : {"ops", "train"}) {
    const ProcessResult done = run_bench({"bench", what, "--device", "cuda"});
    EXPECT_EQ(done.exit_code, 2);
    EXPECT_THAT(done.err, HasSubstr("runs on cpu, not on cuda"));
  }
  const ProcessResult none =
      run_bench({"bench", "ops", "--filter", "nosuch", "--size", "16KiB", "--rounds", "1"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("no op has 'nosuch'"));
}

TEST(CliBench, AnOptionOfAnotherMeasurementIsRefused) {
  const auto refusal = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "bench");
    const ProcessResult done = run_bench(std::move(arguments));
    EXPECT_EQ(done.exit_code, 2);
    EXPECT_EQ(done.out, "");
    return done.err;
  };
  EXPECT_EQ(refusal({"ops", "--seed", "4"}),
            "headroom: bench ops takes no --seed; bench paged does\n");
  EXPECT_THAT(refusal({"ops", "--list"}), HasSubstr("takes no --list; bench paged does"));
  EXPECT_THAT(refusal({"alloc", "-o", "x"}), HasSubstr("no --output; bench claims, paged do"));
  EXPECT_THAT(refusal({"device", "--size", "64MiB"}), HasSubstr("no --size; bench ops does"));
  EXPECT_THAT(refusal({"claims", "--rounds", "2"}), HasSubstr("bench claims takes no --rounds"));
  EXPECT_THAT(refusal({"paged", "--list", "-o", "x"}), HasSubstr("there is no page for -o"));
}

TEST(CliBench, MeasuresOpsBesideWhatTheyAreMadeOf) {
  const std::vector<nlohmann::json> groups{
      measured_ops("matrices", "matrices"),
      measured_ops("elements", "elements"),
      measured_ops("attention of 256 tokens, causal", "attention"),
      measured_ops("1 x 1 of 1024 x 14 x 14 to 256", "convolutions")};
  const std::size_t counts[] = {9, 8, 2, 2};
  for (std::size_t i = 0; i < groups.size(); ++i) {
    ASSERT_EQ(groups[i].size(), counts[i]);
    for (const auto& cost : groups[i]) {
      EXPECT_GT(cost.at("speed").at("median"), 0.0) << cost;
      EXPECT_GT(cost.at("per_second"), 0.0) << cost;
    }
  }
  const nlohmann::json dispatch = measured_ops("dispatch", "dispatch");
  EXPECT_EQ(dispatch.size(), 7U);
  for (const auto& cost : dispatch) EXPECT_GT(cost.at("ns").at("median"), 0.0) << cost;
}

TEST(CliBench, OpsRunOnTheCpuAndTakeASize) {
  EXPECT_EQ(run_bench({"bench", "ops", "--device", "meta"}).exit_code, 2);
  EXPECT_EQ(run_bench({"bench", "ops", "--size", "much"}).exit_code, 2);
}

}  // namespace
}  // namespace headroom::cli
