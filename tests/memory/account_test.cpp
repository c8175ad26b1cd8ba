#include "headroom/memory/account.h"

#include <random>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headroom::memory {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::uint64_t& live(Account& account, Category category) {
  return account.live_bytes[static_cast<std::size_t>(category)];
}

// A card of 16 GiB on which `free` is left; what is not given is live without a category.
Account card(std::uint64_t free_bytes, Account account = {}) {
  account.device = {device::DeviceKind::kCuda, 0};
  account.total_bytes = 16_GiB;
  account.free_bytes = free_bytes;
  live(account, Category::kUnknown) = account.total_bytes - account.sum();
  return account;
}

Account asking(std::uint64_t size_bytes, Account account) {
  account.asked_bytes = size_bytes;
  account.segment_asked_bytes = size_bytes;
  return account;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

auto remedy(const char* part, std::uint64_t gain_bytes, bool is_enough) {
  return AllOf(Field(&Remedy::action, HasSubstr(part)),
               Field(&Remedy::gain_bytes, gain_bytes),
               Field(&Remedy::is_enough, is_enough));
}

// --- Sums ----------------------------------------------------------------------------------------

TEST(Account, SumsItsLines) {
  Account account{.rounding_bytes = 10,
                  .pending_bytes = 20,
                  .cached_stream_bytes = 30,
                  .cached_hard_bytes = 40,
                  .cached_soft_bytes = 50,
                  .outside_bytes = 1000,
                  .other_processes_bytes = 2000,
                  .free_bytes = 4000};
  account.live_bytes = {1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(account.live(), 28U);
  EXPECT_EQ(account.cached(), 120U);
  EXPECT_EQ(account.reserved(), 178U);
  EXPECT_EQ(account.sum(), 7178U);
}

TEST(Account, SumsThatDoNotFitStayAtTheTop) {
  Account account{.free_bytes = UINT64_MAX};
  account.live_bytes.fill(UINT64_MAX);
  EXPECT_EQ(account.live(), UINT64_MAX);
  EXPECT_EQ(account.sum(), UINT64_MAX);
}

TEST(Account, WithoutAnAllocatorIsWhatTheDeviceSays) {
  const std::vector<device::ProcessMemory> processes{
      {.pid = 1, .used_bytes = 9_GiB, .name = "a"},
      {.pid = 2, .used_bytes = 1_GiB, .name = "b"},
      {.pid = 3, .used_bytes = 1_GiB, .name = "c", .is_self = true}};
  Account account = with_device_lines({}, {.free_bytes = 4_GiB, .total_bytes = 16_GiB}, processes);
  EXPECT_EQ(account.other_processes_bytes, 10_GiB);
  EXPECT_EQ(account.outside_bytes, 2_GiB);  // with what the driver itself takes
  EXPECT_EQ(account.used(), 12_GiB);
  EXPECT_EQ(account.sum(), account.total_bytes);
  // Asked a moment later, others may seem to hold more than there is left.
  account = with_device_lines({}, {.free_bytes = 15_GiB, .total_bytes = 16_GiB}, processes);
  EXPECT_EQ(account.other_processes_bytes, 1_GiB);
  EXPECT_EQ(account.outside_bytes, 0U);
  EXPECT_EQ(account.sum(), account.total_bytes);
}

TEST(Account, ListsItsLines) {
  const Account account = card(4_GiB, {.cached_soft_bytes = 1_GiB});
  std::uint64_t sum = 0;
  std::vector<std::string> labels;
  for (const AccountLine& line : lines(account)) {
    labels.push_back(line.label);
    sum += line.size_bytes;
  }
  EXPECT_THAT(labels,
              ElementsAre("live: purpose unknown", "cached, can be given back (soft)", "free"));
  EXPECT_EQ(sum, account.total_bytes);
  EXPECT_EQ(lines(Account{}).size(), 1U);
}

// --- Verdicts ------------------------------------------------------------------------------------

TEST(Explain, NothingAskedFits) {
  const Explanation explanation = explain(card(4_GiB));
  EXPECT_EQ(explanation.verdict, Verdict::kFits);
  EXPECT_EQ(explanation.summary, "12GiB live, 0B cached, 4GiB free of 16GiB");
  EXPECT_THAT(explanation.remedies, IsEmpty());
}

TEST(Explain, ShortageSaysHowMuchIsMissing) {
  const Account account = asking(2_GiB, card(512_MiB, {.cached_hard_bytes = 1_GiB}));
  const Explanation explanation = explain(account);
  EXPECT_EQ(explanation.verdict, Verdict::kShortage);
  EXPECT_EQ(explanation.missing_bytes, 512_MiB);
  EXPECT_EQ(explanation.summary,
            "shortage: the request needs 2GiB; the device has 512MiB free and 1GiB is cached, "
            "together 512MiB too little");
  EXPECT_THAT(explanation.remedies, ElementsAre(remedy("expandable_segments:True", 1_GiB, false)));
}

TEST(Explain, FragmentationSaysWhatANewSegmentLacked) {
  Account account = asking(1_GiB, card(512_MiB, {.cached_hard_bytes = 1_GiB}));
  account.largest_cached_bytes = 300_MiB;
  const Explanation explanation = explain(account);
  EXPECT_EQ(explanation.verdict, Verdict::kFragmentation);
  EXPECT_EQ(explanation.missing_bytes, 512_MiB);
  EXPECT_EQ(explanation.summary,
            "fragmentation: the request needs 1GiB; the device has 512MiB free and 1GiB is cached, "
            "together enough, but not in one usable piece (the largest cached block is 300MiB)");
  EXPECT_THAT(explanation.remedies, ElementsAre(remedy("expandable_segments:True", 1_GiB, true)));
}

TEST(Explain, TheBoundaryIsExact) {
  const Account account =
      card(512_MiB, {.cached_hard_bytes = 256_MiB, .cached_soft_bytes = 256_MiB});
  EXPECT_EQ(explain(asking(1_GiB, account)).verdict, Verdict::kFragmentation);
  const Explanation one_more = explain(asking(1_GiB + 1, account));
  EXPECT_EQ(one_more.verdict, Verdict::kShortage);
  EXPECT_EQ(one_more.missing_bytes, 1U);
}

TEST(Explain, TheSegmentCountsNotTheRequest) {
  Account account = card(19_MiB);
  account.asked_bytes = 3_MiB;
  account.segment_asked_bytes = 20_MiB;
  EXPECT_EQ(explain(account).verdict, Verdict::kShortage);
  EXPECT_EQ(explain(account).missing_bytes, 1_MiB);
}

TEST(Explain, ARefusalDespiteRoomIsSaidToBeOne) {
  const Explanation explanation = explain(asking(1_GiB, card(2_GiB)));
  EXPECT_EQ(explanation.missing_bytes, 0U);
  EXPECT_THAT(explanation.summary, HasSubstr("the device refused 1GiB although"));
  EXPECT_THAT(explanation.remedies, IsEmpty());
}

TEST(Explain, ALimitBoundsWhatTheDeviceGives) {
  Account account = asking(2_GiB, card(8_GiB));  // 8 GiB live
  account.limit_bytes = 9_GiB;
  Explanation explanation = explain(account);
  EXPECT_EQ(explanation.verdict, Verdict::kShortage);
  EXPECT_EQ(explanation.missing_bytes, 1_GiB);
  EXPECT_THAT(explanation.summary, HasSubstr("the limit leaves 1GiB (the device has 8GiB free)"));
  EXPECT_THAT(
      explanation.remedies,
      ElementsAre(
          remedy("raise the limit of 9GiB to at least 10GiB (10,737,418,240 bytes)", 7_GiB, true)));
  account.limit_bytes = 4_GiB;  // already passed
  explanation = explain(account);
  EXPECT_EQ(explanation.missing_bytes, 2_GiB);
  account.limit_bytes = 16_GiB;  // does not bind
  EXPECT_THAT(explain(asking(9_GiB, account)).remedies, IsEmpty());
}

TEST(Explain, ALimitAboveAFullDeviceIsNotTheCause) {
  Account account = asking(10_GiB, card(8_GiB));
  account.limit_bytes = 9_GiB;
  EXPECT_THAT(explain(account).remedies,
              ElementsAre(remedy(
                  "raise the limit of 9GiB, as far as the device has free memory", 7_GiB, false)));
}

// --- Remedies ------------------------------------------------------------------------------------

TEST(Explain, EachKindOfCachedMemoryHasItsRemedy) {
  const Account account = asking(1_GiB,
                                 card(0,
                                      {.pending_bytes = 200_MiB,
                                       .cached_stream_bytes = 2_GiB,
                                       .cached_hard_bytes = 300_MiB,
                                       .cached_soft_bytes = 1_GiB}));
  EXPECT_THAT(explain(account).remedies,
              ElementsAre(remedy("call empty_cache", 1_GiB, true),
                          remedy("allocate on one stream", 2_GiB, true),
                          remedy("expandable_segments:True", 300_MiB, false),
                          remedy("synchronize", 200_MiB, false)));
}

TEST(Explain, ExpandableSegmentsAreNotAdvisedTwice) {
  Account account = asking(1_GiB, card(0, {.cached_hard_bytes = 2_GiB}));
  account.is_expandable = true;
  EXPECT_THAT(explain(account).remedies, IsEmpty());
  EXPECT_THAT(to_text(account), Not(HasSubstr("expandable_segments:True")));
}

TEST(Explain, OtherProcessesAreNamed) {
  Account account = asking(2_GiB, card(1_GiB, {.other_processes_bytes = 3_GiB}));
  account.processes = {{.pid = 10, .used_bytes = 9_GiB, .name = "me", .is_self = true},
                       {.pid = 11, .used_bytes = 1_GiB, .name = "small", .is_self = false},
                       {.pid = 12, .used_bytes = 2_GiB, .name = "jupyter", .is_self = false}};
  EXPECT_THAT(explain(account).remedies, ElementsAre(remedy("12 (jupyter) has 2GiB", 3_GiB, true)));
  account.limit_bytes = account.reserved() + 1_GiB + 512_MiB;  // only so much of it would help
  EXPECT_THAT(explain(account).remedies,
              ElementsAre(remedy("end other processes", 512_MiB, false)));
}

TEST(Explain, ABatchFactorIsGivenWhereOneSuffices) {
  Account account = card(0);
  live(account, Category::kActivation) = 6_GiB;
  live(account, Category::kUnknown) -= 6_GiB;
  // 1 GiB of 6 must go: 5/6 = 0.8333.
  EXPECT_THAT(explain(asking(1_GiB, account)).remedies,
              ElementsAre(AllOf(Field(&Remedy::action, HasSubstr("use 0.83 of the batch")),
                                Field(&Remedy::is_enough, true),
                                Field(&Remedy::gain_bytes, ::testing::Ge(1_GiB)))));
  // All of it is not enough, or just enough, which leaves nothing.
  for (const std::uint64_t size : {6_GiB, 7_GiB}) {
    EXPECT_THAT(explain(asking(size, account)).remedies,
                ElementsAre(remedy("checkpoint them, or use a smaller batch", 6_GiB, false)));
  }
}

TEST(Explain, WhatHoldsTheMostIsNamed) {
  struct Row {
    Category category;
    const char* words;
    std::uint64_t gain_bytes;
  };
  for (const Row& row : {Row{Category::kParameter, "shard parameters (8GiB)", 4_GiB},
                         Row{Category::kGradient, "release gradients (8GiB)", 8_GiB},
                         Row{Category::kOptimizerState, "move optimizer state (8GiB)", 8_GiB},
                         Row{Category::kWorkspace, "workspaces (8GiB)", 8_GiB},
                         Row{Category::kData, "data (8GiB)", 8_GiB}}) {
    Account account;
    live(account, row.category) = 8_GiB;
    account.total_bytes = 8_GiB;
    EXPECT_THAT(explain(asking(1_GiB, account)).remedies,
                ElementsAre(remedy(row.words, row.gain_bytes, true)));
  }
  Account account = asking(1_GiB, card(0));
  account.sites = {{"step/layer3", 9_GiB, 4}, {"(no annotation)", 7_GiB, 1}};
  EXPECT_THAT(explain(account).remedies, ElementsAre(remedy("step/layer3", 9_GiB, true)));
}

// Below a hundredth of what is missing, unless there is nothing else.
TEST(Explain, RemediesThatGainNextToNothingAreLeftOut) {
  Account account = card(0);
  live(account, Category::kOptimizerState) = 24;
  live(account, Category::kUnknown) -= 24;
  EXPECT_THAT(explain(asking(1_GiB, account)).remedies,
              ElementsAre(remedy("move optimizer state (24B)", 24, false)));
  account.pending_bytes = 10_MiB;
  account.total_bytes += 10_MiB;
  EXPECT_THAT(explain(asking(1_GiB, account)).remedies,
              ElementsAre(remedy("synchronize", 10_MiB, false)));
  account.cached_soft_bytes = 11_MiB;
  account.total_bytes += 11_MiB;
  EXPECT_THAT(explain(asking(1_GiB, account)).remedies,
              ElementsAre(remedy("call empty_cache", 11_MiB, false)));
}

// 8 MiB that hold 232 MiB of cached memory in place: freeing them may be enough, and may not.
TEST(Explain, LiveBlocksMayHoldCachedMemoryInPlace) {
  Account account = asking(128_MiB, card(0, {.cached_hard_bytes = 232_MiB}));
  account.sites = {{"history", 8_MiB, 2}};
  const auto is_open = [](const Explanation& explanation) {
    const Remedy& last = explanation.remedies.back();
    return last.action.starts_with("look first at history") && !last.is_enough &&
           last.may_gain_more;
  };
  EXPECT_TRUE(is_open(explain(account)));
  EXPECT_THAT(to_text(account), HasSubstr("empties a whole segment"));
  account.cached_hard_bytes = 119_MiB;
  EXPECT_FALSE(is_open(explain(account)));
  EXPECT_THAT(to_text(account), Not(HasSubstr("empties a whole segment")));
}

TEST(Explain, HugeNumbersDoNotWrap) {
  Account account{.total_bytes = UINT64_MAX, .cached_hard_bytes = UINT64_MAX};
  account.live_bytes.fill(UINT64_MAX);
  account.free_bytes = 5;
  account.limit_bytes = UINT64_MAX;
  account = asking(UINT64_MAX, account);
  const Explanation explanation = explain(account);
  EXPECT_EQ(explanation.verdict, Verdict::kFragmentation);
  for (const std::string& line : lines_of(to_text(account))) EXPECT_LE(line.size(), 80U) << line;
}

// --- Text ----------------------------------------------------------------------------------------

Account example() {
  Account account{.pending_bytes = 20_MiB,
                  .cached_stream_bytes = 128_MiB,
                  .cached_hard_bytes = 1_GiB,
                  .outside_bytes = 512_MiB,
                  .other_processes_bytes = 1_GiB};
  live(account, Category::kParameter) = 4_GiB;
  live(account, Category::kActivation) = 6_GiB + 1;
  account.rounding_bytes = 511;
  account = card(2_GiB, account);
  account.asked_bytes = 3_GiB - 1_MiB;
  account.segment_asked_bytes = 3_GiB;
  account.largest_cached_bytes = 300_MiB;
  account.sites = {{"step/forward/layer3/attention/softmax", 5_GiB, 12},
                   {"step/forward", 4_GiB, 1},
                   {"a", 512_MiB, 1},
                   {"b", 256_MiB, 2},
                   {"c", 128_MiB, 3},
                   {"d", 64_MiB, 1},
                   {"e", 64_MiB + 1, 1}};
  account.processes = {{.pid = 4711, .used_bytes = 1_GiB, .name = "python", .is_self = false}};
  return account;
}

TEST(AccountText, MatchesTheGoldenText) {
  EXPECT_EQ(to_text(example()),
            R"(out of memory: asked for 3GiB (3,220,176,896 bytes) on stream 0, which needs
3GiB from the device

memory of cuda:0
  live: purpose unknown                       1.36GiB              1,455,422,976
  live: parameters                               4GiB              4,294,967,296
  live: activations                              6GiB              6,442,450,945
  unused ends of live blocks (rounding)          511B                        511
  freed, a stream still uses it (pending)       20MiB                 20,971,520
  cached, for other streams only (stream)      128MiB                134,217,728
  cached, stuck beside live blocks (hard)        1GiB              1,073,741,824
  context and libraries                        512MiB                536,870,912
  other processes                                1GiB              1,073,741,824
  free                                           2GiB              2,147,483,648
  ------------------------------------------------------------------------------
  total                                         16GiB             17,179,869,184
  reserved 12.5GiB, largest cached block 300MiB

live, by place in the program (site)
  ...d/layer3/attention/softmax, 12 blocks       5GiB              5,368,709,120
  step/forward, 1 block                          4GiB              4,294,967,296
  a, 1 block                                   512MiB                536,870,912
  b, 2 blocks                                  256MiB                268,435,456
  c, 3 blocks                                  128MiB                134,217,728
  2 other sites                                128MiB                134,217,729

fragmentation: the request needs 3GiB; the device has 2GiB free and 1.12GiB is
cached, together enough, but not in one usable piece (the largest cached block
is 300MiB)
  1. set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: cached memory beside
     live blocks becomes usable; gains up to 1GiB, enough for this request
  2. end other processes on the device: process 4711 (python) has 1GiB; gains up
     to 1GiB, enough for this request
  3. shrink activations (6GiB): checkpoint some of them, or use 0.83 of the
     batch if they grow with it; gains up to 1.02GiB, enough for this request
  4. look first at step/forward/layer3/attention/softmax, which holds the most;
     gains up to 5GiB, enough for this request
  5. synchronize before allocating: freed blocks wait for other streams to
     finish with them; gains up to 20MiB, not enough by itself
  6. allocate on one stream, and call record_stream where another reads: a
     cached block serves only its own stream; gains up to 128MiB, not enough by
     itself

Words: docs/guide/glossary.md
)");
}

TEST(AccountText, StaysWithinEightyColumns) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 300; ++i) {
    Account account;
    const auto size = [&] { return random() >> (random() % 64); };
    for (std::uint64_t& bytes : account.live_bytes) bytes = size();
    account.rounding_bytes = size();
    account.pending_bytes = size();
    account.cached_stream_bytes = size();
    account.cached_hard_bytes = size();
    account.cached_soft_bytes = size();
    account.outside_bytes = size();
    account.other_processes_bytes = size();
    account.free_bytes = size();
    account.total_bytes = random() % 2 == 0 ? account.sum() : size();
    if (random() % 2 == 0) account.limit_bytes = size();
    account.asked_bytes = size();
    account.segment_asked_bytes = size();
    account.sites = {{std::string(random() % 200, 'x'), size(), size()}, {"b\nc", size(), 1}};
    account.processes = {{.pid = 1, .used_bytes = size(), .name = std::string(120, 'p')}};
    for (const std::string& line : lines_of(to_text(account))) {
      ASSERT_LE(line.size(), 80U) << line;
    }
    for (const Remedy& remedy : explain(account).remedies) ASSERT_GT(remedy.gain_bytes, 0U);
  }
}

TEST(AccountText, NeverHidesAMismatch) {
  Account account = card(1_GiB);
  EXPECT_THAT(to_text(account), Not(HasSubstr("DOES NOT ADD UP")));
  account.free_bytes += 5;
  EXPECT_THAT(to_text(account),
              HasSubstr("  DOES NOT ADD UP: the lines sum to 17,179,869,189, 5 more than the "
                        "total\n"));
  account.free_bytes -= 6;
  EXPECT_THAT(to_text(account), HasSubstr("1 less than the"));
}

TEST(AccountText, LeavesOutWhatIsNothing) {
  const std::string text = to_text(card(16_GiB));
  EXPECT_THAT(text, HasSubstr("  free "));
  EXPECT_THAT(text, Not(HasSubstr("cached:")));
  EXPECT_THAT(text, Not(HasSubstr("out of memory")));
  EXPECT_THAT(text, Not(HasSubstr("by site")));
}

TEST(AccountText, CutsLongNamesAtTheFront) {
  Account account = card(1_GiB);
  account.sites = {{"a/very/long/path/of/\xC3\xA9/with/an/end", 15_GiB, 1}};
  EXPECT_THAT(to_text(account), HasSubstr("..."));
  EXPECT_THAT(to_text(account), HasSubstr("with/an/end, 1 block"));
}

TEST(Verdict, HasNames) {
  EXPECT_EQ(to_string(Verdict::kFits), "fits");
  EXPECT_EQ(to_string(Verdict::kFragmentation), "fragmentation");
  EXPECT_EQ(to_string(Verdict::kShortage), "shortage");
}

}  // namespace
}  // namespace headroom::memory
