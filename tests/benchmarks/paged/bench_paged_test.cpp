// `headroom bench paged`: what is measured, what is promised, and what is printed.
#include "benchmarks/paged/bench_paged.h"

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "headroom/base/bytes.h"
#include "headroom/report/text.h"

#include "tests/support/browser.h"
#include "tests/support/process.h"

namespace headroom::bench {
namespace {

namespace fs = std::filesystem;
using headroom::testing::Browser;
using headroom::testing::ProcessResult;
using headroom::testing::run_process;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

ProcessResult run_bench(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"bench", "paged"});
  return run_process({.program = HEADROOM_BINARY,
                      .arguments = std::move(arguments),
                      .environment = {{"HEADROOM_CALLED_AS", "headroom"}}});
}

// --- What is measured, by a model of it ----------------------------------------------------------

void write_two_blocks(Traffic& traffic) {
  Block first = traffic.allocate(100_MiB);
  traffic.free(first);
  first = traffic.allocate(150_MiB);
  const Block second = traffic.allocate(10_MiB);
  traffic.free(first);
  traffic.free(second);
}

// PyTorch keeps the 100 MiB, which the 150 do not fit in, and cuts the 10 from them.
TEST(BenchPaged, RatiosAreThoseOfASimpleModel) {
  const TrafficRound round = measure({"test", "two", "two blocks", write_two_blocks}, {});
  EXPECT_EQ(round.requests, 3U);
  EXPECT_EQ(round.ops, 6U);
  EXPECT_EQ(round.peak_live, 160_MiB);
  EXPECT_EQ(round.floor, 160_MiB);
  EXPECT_EQ(round.outcome(Contender::kDefault).peak_reserved, 250_MiB);
  EXPECT_EQ(round.outcome(Contender::kExpandable).peak_reserved, 160_MiB);
  EXPECT_EQ(round.outcome(Contender::kAsync).peak_reserved, 160_MiB);
  EXPECT_DOUBLE_EQ(round.over_floor(Contender::kDefault), 250.0 / 160);
  EXPECT_DOUBLE_EQ(round.over_floor(Contender::kAsync), 1.0);
  EXPECT_DOUBLE_EQ(round.driver_share(Contender::kPaged),
                   round.outcome(Contender::kPaged).driver_us / 600);
  EXPECT_FALSE(round.is_of_small);
  EXPECT_TRUE(round.is_within_bound);
}

void write_small_blocks(Traffic& traffic) {
  const Block small = traffic.allocate(64_KiB);
  const Block large = traffic.allocate(64_KiB - 512);
  traffic.free(small);
  traffic.free(large);
}

void write_one_large(Traffic& traffic) {
  const Block small = traffic.allocate(64_KiB);
  const Block large = traffic.allocate(64_KiB + 1);
  traffic.free(small);
  traffic.free(large);
}

TEST(BenchPaged, SmallBlocksDominateWhereTheyAreMoreThanHalf) {
  const auto is_small = [](void (*write)(Traffic&)) {
    return is_of_small_blocks(generate({"test", "test", "test", write}).program);
  };
  EXPECT_TRUE(is_small(write_small_blocks));
  EXPECT_FALSE(is_small(write_one_large));
}

void write_pool(Traffic& traffic) {
  traffic.free(traffic.allocate(40_MiB, 0, 1));
  traffic.free(traffic.allocate(60_MiB));
}

TEST(BenchPaged, WithPoolsTheFloorCountsAndNotWhatIsLive) {
  const TrafficRound round = measure({"test", "pool", "a pool", write_pool}, {});
  EXPECT_EQ(round.pools, 1U);
  EXPECT_EQ(round.peak_live, 60_MiB);
  EXPECT_EQ(round.floor, 100_MiB);
  EXPECT_DOUBLE_EQ(round.over_floor(Contender::kDefault), 1.0);
}

TEST(BenchPaged, TheModelsSmallestLimitIsWhatItTakes) {
  const TrafficRound round = measure({"test", "two", "two blocks", write_two_blocks}, {}, true);
  for (const Outcome& outcome : round.outcomes) {
    ASSERT_TRUE(outcome.smallest_limit.has_value());
    EXPECT_GE(*outcome.smallest_limit, round.peak_live);
    EXPECT_LE(*outcome.smallest_limit, outcome.peak_reserved + 1_MiB);
  }
  EXPECT_EQ(round.outcome(Contender::kAsync).smallest_limit, 160_MiB);
}

// --- The promise ---------------------------------------------------------------------------------

TrafficRound round_of(std::uint64_t paged, std::uint64_t usual, std::uint64_t expandable) {
  TrafficRound round{.requests = 1000, .peak_live = 1_GiB, .floor = 1_GiB};
  round.outcomes[0].peak_reserved = paged;
  round.outcomes[1].peak_reserved = usual;
  round.outcomes[2].peak_reserved = expandable;
  return round;
}

TEST(Promise, IsTheBetterOfTwoAndOnePercentAnd8MiB) {
  const std::uint64_t best = 2000_MiB;
  EXPECT_EQ(round_of(0, 3000_MiB, best).allowed_bytes(), 2028_MiB);
  EXPECT_TRUE(round_of(2028_MiB, 3000_MiB, best).keeps_memory());
  EXPECT_FALSE(round_of(2028_MiB + 1, 3000_MiB, best).keeps_memory());
  EXPECT_TRUE(round_of(2028_MiB, best, 3000_MiB).keeps_memory());
}

TEST(Promise, WhereSmallBlocksDominateTheBoundAloneCounts) {
  TrafficRound round = round_of(9_GiB, 1_GiB, 1_GiB);
  round.is_of_small = true;
  EXPECT_TRUE(round.keeps_memory());
  round.is_within_bound = false;
  EXPECT_FALSE(round.keeps_memory());
}

TEST(Promise, WhatCouldNotBeServedIsNoComparison) {
  TrafficRound round = round_of(3_GiB, 1_GiB, 3_GiB);
  EXPECT_FALSE(round.keeps_memory());
  round.outcomes[1].failures = 1;
  EXPECT_TRUE(round.keeps_memory());
  round.outcomes[0].failures = 1;
  EXPECT_FALSE(round.keeps_memory());
}

TEST(Promise, DriverTimeIsAShareOfTheWorkOfItsRequests) {
  TrafficRound round = round_of(1_GiB, 1_GiB, 1_GiB);
  round.outcomes[0].driver_us = 12'000;  // of 1,000 requests of 200 us
  EXPECT_TRUE(round.keeps_time());
  round.outcomes[0].driver_us = 12'001;
  EXPECT_FALSE(round.keeps_time());
}

TEST(Promise, IsKeptInEveryRoundOrNotAtAll) {
  TrafficRow row;
  row.rounds.push_back(round_of(1_GiB, 1_GiB, 1_GiB));
  EXPECT_TRUE(row.keeps_promise());
  row.rounds.push_back(round_of(2_GiB, 1_GiB, 1_GiB));
  EXPECT_FALSE(row.keeps_promise());
}

// The rows of short programs that hold today; `bench paged` shows the others.
TEST(Promise, HoldsForMemoryWhereItHasBeenReached) {
  for (const char* group : {"random: ", "serving: ", "phases: ", "streams: ", "pools: "}) {
    for (const Generator& generator : generators_like(group)) {
      if (generator.name == "beam_search") continue;
      const TrafficRound round = measure(generator, {.seed = 1, .percent = 10});
      EXPECT_TRUE(round.keeps_memory())
          << group << generator.name << ": "
          << format_bytes(round.outcome(Contender::kPaged).peak_reserved) << " of "
          << format_bytes(round.allowed_bytes().value_or(0));
    }
  }
}

// --- The command ---------------------------------------------------------------------------------

TEST(BenchPaged, ListsEveryGenerator) {
  const ProcessResult result = run_bench({"--list"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const Generator& generator : generators()) {
    EXPECT_THAT(result.out, HasSubstr(std::string(generator.name)));
  }
}

TEST(BenchPaged, AnUnknownFilterIsWrongUsage) {
  const ProcessResult result = run_bench({"--filter", "no such traffic"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--list"));
}

TEST(BenchPaged, TheTableFitsAndEndsWithTheCount) {
  const ProcessResult result = run_bench({"--filter", "small: "});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("keep the promise"));
  EXPECT_THAT(result.err, HasSubstr("measuring traffic: 8 of 8"));
  std::size_t begin = 0;
  while (begin < result.out.size()) {
    const std::size_t end = result.out.find('\n', begin);
    EXPECT_LE(report::display_width(result.out.substr(begin, end - begin)), 80);
    begin = end + 1;
  }
}

TEST(BenchPaged, TwoRunsOfASeedAgreeToTheByte) {
  const std::vector<std::string> arguments{"--filter", "kv_rows", "--seed", "9", "--json"};
  const ProcessResult one = run_bench(arguments);
  const ProcessResult two = run_bench(arguments);
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(one.out, two.out);
  const auto json = nlohmann::json::parse(one.out);
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["rows"].size(), 1U);
  const auto& round = json["rows"][0]["rounds"][0];
  EXPECT_EQ(round["seed"], 9);
  EXPECT_EQ(round["results"].size(), 4U);
  EXPECT_EQ(round["results"][0]["policy"], "paged");
  EXPECT_TRUE(round["is_within_bound"]);
}

TEST(BenchPaged, RoundsAreSeedsAndShowTheirSpread) {
  const ProcessResult result = run_bench({"--filter", "around_4", "--rounds", "3", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto row = nlohmann::json::parse(result.out)["rows"][0];
  ASSERT_EQ(row["rounds"].size(), 3U);
  EXPECT_EQ(row["rounds"][2]["seed"], 3);
  EXPECT_LE(row["paged_over_floor"]["low"], row["paged_over_floor"]["median"]);
  EXPECT_LE(row["paged_over_floor"]["median"], row["paged_over_floor"]["high"]);
}

// --- The page ------------------------------------------------------------------------------------

class PagedBenchPage : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = fs::path(::testing::TempDir()) / "headroom-bench-paged-test.html";
    fs::remove(path_);
    const ProcessResult made = run_bench({"--filter", "small: ", "-o", path_.string()});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    EXPECT_THAT(made.err, HasSubstr("keep the promise"));
    EXPECT_THAT(made.err, HasSubstr("wrote " + path_.string() + "; open it in a browser\n"));
  }
  void TearDown() override { fs::remove(path_); }

  [[nodiscard]] std::string text() const {
    std::stringstream out;
    out << std::ifstream(path_).rdbuf();
    return out.str();
  }

  fs::path path_{};
};

TEST_F(PagedBenchPage, AsksNobodyForAnythingAndIsNotOverwritten) {
  const std::string page = text();
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  EXPECT_THAT(page, Not(HasSubstr("@DATA@")));
  EXPECT_THAT(page, Not(HasSubstr("src=")));
  EXPECT_THAT(page, Not(HasSubstr("https://")));
  const ProcessResult again = run_bench({"--filter", "kv_rows", "-o", path_.string()});
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.err, HasSubstr("exists; --force overwrites it"));
}

TEST_F(PagedBenchPage, ShowsEveryRowAndFollowsItsControls) {
  if (Browser::find().empty()) GTEST_SKIP() << "no Chromium";
  Browser browser;
  const std::vector<Generator> shown = generators_like("small: ");
  const auto count = "document.querySelectorAll('#rows tr:not(.group)').length";
  for (const bool is_dark : {false, true}) {
    for (const bool is_phone : {false, true}) {
      browser.set_screen(
          {.width = is_phone ? 375 : 1100, .is_phone = is_phone, .is_dark = is_dark});
      browser.open("file://" + path_.string());
      EXPECT_EQ(browser.evaluate(count), shown.size());
      EXPECT_EQ(browser.evaluate("document.documentElement.scrollWidth <= innerWidth"), true);
      EXPECT_EQ(browser.evaluate("$('table-box').scrollWidth <= $('table-box').clientWidth"), true);
      if (const char* folder = std::getenv("HEADROOM_SCREENSHOTS")) {
        browser.screenshot(std::string(folder) + "/bench-paged" + (is_dark ? "-dark" : "-light") +
                           (is_phone ? "-phone.png" : ".png"));
      }
    }
  }
  // On the phone: names break at their parts, and what takes too much time says how much.
  const auto texts = [&](const std::string& selector) {
    return browser
        .evaluate("[...document.querySelectorAll('" + selector + "')].map(one => one.textContent)")
        .get<std::vector<std::string>>();
  };
  EXPECT_EQ(browser.evaluate("[...document.querySelectorAll('#rows td:first-child')].every(cell => "
                             "cell.scrollWidth <= cell.clientWidth)"),
            true);
  for (const std::string& verdict : texts("#rows tr:not(.group) td:last-child")) {
    const bool is_of_time = verdict.starts_with("time") || verdict.starts_with("both");
    EXPECT_EQ(verdict.ends_with("%"), is_of_time) << verdict;
  }
  // The legend's names are those of the columns; every bar that ends early has its arrow.
  const std::vector<std::string> titles = texts("#head th");
  const std::vector<std::string> legend = texts("#key span");
  for (std::size_t i = 0; i < 4; ++i) {
    std::string title = titles.at(3 + i);
    const std::string hyphen = "\u00ad";  // a soft one, where a title may break
    if (const auto at = title.find(hyphen); at != title.npos) title.erase(at, hyphen.size());
    EXPECT_EQ(legend.at(i), title);
  }
  EXPECT_EQ(titles.at(2), "1.0");
  EXPECT_EQ(browser.evaluate("document.querySelectorAll('path.longer').length"),
            browser.evaluate("data.rows.flatMap(row => ratiosOf(row, 'reserved'))"
                             ".filter(ratio => ratio > 2.5).length"));
  browser.open("file://" + path_.string() + "#group=small");
  EXPECT_EQ(browser.evaluate(count), shown.size());
  browser.open("file://" + path_.string() + "?again#text=scalars");
  EXPECT_EQ(browser.evaluate(count), 1);
  EXPECT_THAT(browser.errors(), IsEmpty());
}

}  // namespace
}  // namespace headroom::bench
