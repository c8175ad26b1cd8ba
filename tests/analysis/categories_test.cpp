// What blocks are for, where the recording does not say it.
#include "headroom/analysis/categories.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/analysis/export_perfetto.h"
#include "headroom/analysis/groups.h"
#include "headroom/base/bytes.h"

#include "tests/analysis/scripted_program.h"
#include "tests/analysis/stripped.h"
#include "tests/analysis/synthetic_training.h"
#include "tests/trace/samples.h"

namespace headroom::analysis {
namespace {

using memory::Category;
using testing::Habits;
using testing::Score;
using testing::score_of;

using Sums = std::array<std::uint64_t, memory::kCategoryCount>;

std::uint64_t of(const Sums& sums, Category category) {
  return sums[static_cast<std::size_t>(category)];
}

Sums at_peak(const TraceIndex& index, const CategoryRules& rules = {}) {
  const Categories categories(index, rules);
  Sums sums{};
  for (const std::uint32_t id : index.allocated_at(index.peaks().allocated.position)) {
    sums[static_cast<std::size_t>(categories.category_of(id))] +=
        index.lifetimes()[id].requested_bytes;
  }
  return sums;
}

Sums recorded_at_peak(const char* name) {
  const Trace trace = trace::testing::trace_of(trace::testing::recording(name));
  return at_peak(TraceIndex(trace, trace.devices[0]));
}

void expect_near(std::uint64_t said, std::uint64_t is) {
  EXPECT_NEAR(static_cast<double>(said), static_cast<double>(is), 0.02 * static_cast<double>(is));
}

// --- Recordings of PyTorch, without stacks
// ---------------------------------------------------------

// 124,439,808 parameters of 4 bytes: 50,257 and 1,024 embeddings of 768, twelve blocks of
// 7,087,872, a last norm; the head is the table of the tokens. AdamW keeps two numbers for each.
constexpr std::uint64_t kGpt2Bytes = 497'759'232;

TEST(Categories, FindParametersAndAdamOfGpt2) {
  for (const char* name : {"gpt2_varlen", "gpt2_expandable_tight"}) {
    const Sums sums = recorded_at_peak(name);
    expect_near(of(sums, Category::kParameter), kGpt2Bytes);
    expect_near(of(sums, Category::kOptimizerState), 2 * kGpt2Bytes);
    EXPECT_EQ(of(sums, Category::kUnknown), 0U);
  }
}

TEST(Categories, FindThemInTheEndOfAHistory) {
  const Sums sums = recorded_at_peak("gpt2_partial");
  expect_near(of(sums, Category::kParameter), kGpt2Bytes);
  expect_near(of(sums, Category::kOptimizerState), 2 * kGpt2Bytes);
}

// 25,557,032 parameters, and of the norms 53,120 numbers and 53 counters that are no parameters but
// belong to the model. Momentum keeps one number for each parameter.
TEST(Categories, FindParametersAndMomentumOfResnet50) {
  for (const char* name : {"resnet50", "resnet50_gc_tight", "resnet50_stacks"}) {
    const Sums sums = recorded_at_peak(name);
    expect_near(of(sums, Category::kParameter), 102'228'128 + 212'904);
    expect_near(of(sums, Category::kOptimizerState), 102'228'128);
  }
}

// In bfloat16: two tables of 32,000 x 2,048 and sixteen layers of 45,092,864; a last norm.
TEST(Categories, FindTheParametersOfAServerAndInventNothing) {
  const Sums sums = recorded_at_peak("llama_serve");
  expect_near(of(sums, Category::kParameter), 1'705'119'744);
  EXPECT_EQ(of(sums, Category::kGradient), 0U);
  EXPECT_EQ(of(sums, Category::kOptimizerState), 0U);
}

TEST(Categories, FindGradientsOfTheSizesOfParameters) {
  const Trace trace = trace::testing::trace_of(trace::testing::recording("seed_deepnet"));
  const Sums sums = at_peak(TraceIndex(trace, trace.devices[0]));
  const std::uint64_t parameters = 20ULL * 2 * (512 * 512 + 512) * 4;
  expect_near(of(sums, Category::kParameter), parameters);
  expect_near(of(sums, Category::kOptimizerState), 2 * parameters);
  EXPECT_GE(of(sums, Category::kGradient), parameters);
  EXPECT_LE(of(sums, Category::kGradient), parameters + 2_MiB);
}

// --- Programs that were never written
// --------------------------------------------------------------

bool is_close(std::uint64_t a, std::uint64_t b, std::uint64_t whole) {
  const std::uint64_t apart = a > b ? a - b : b - a;
  return apart * 50 <= std::max(a, b) || apart * 200 <= whole;
}

struct Tally {
  int programs = 0;
  int right = 0;       // 95 % of the bytes at the peak
  int models = 0;      // parameters and state within 2 %
  int sure_wrong = 0;  // more than 5 % of the bytes wrong without being called a guess
};

template <class F>
Tally try_programs(unsigned count, const F& change) {
  Tally tally;
  for (unsigned seed = 0; seed < count; ++seed) {
    Habits habits = testing::random_habits(seed);
    change(habits);
    const Score score = score_of(habits);
    ++tally.programs;
    const bool has_model = is_close(score.parameters, score.said_parameters, score.bytes) &&
                           is_close(score.states, score.said_states, score.bytes);
    tally.models += has_model ? 1 : 0;
    tally.right += score.right * 20 >= score.bytes * 19 ? 1 : 0;
    tally.sure_wrong += score.sure_and_wrong * 20 > score.bytes ? 1 : 0;
  }
  return tally;
}

TEST(Categories, AreRightOverRandomTrainings) {
  const Tally tally = try_programs(300, [](Habits& habits) { habits.cut_front = 0; });
  EXPECT_GE(tally.right, 284);
  EXPECT_GE(tally.models, 293);
  EXPECT_LE(tally.sure_wrong, 2);
}

TEST(Categories, AreMostlyRightOverRandomEndsOfHistories) {
  const Tally tally = try_programs(300, [](Habits& habits) {
    if (habits.cut_front == 0) habits.cut_front = 0.5;
    habits.sets_to_none = true;
  });
  EXPECT_GE(tally.right, 240);
  EXPECT_GE(tally.models, 240);
  EXPECT_LE(tally.sure_wrong, 8);
}

struct Case {
  const char* name;
  Habits habits;
};

// What the search over random programs found, and what a user may do.
TEST(Categories, AreRightWhateverTheHabits) {
  const std::vector<Case> cases{
      {"plain", {}},
      {"sgd", {.optimizer = testing::Optimizer::kSgd}},
      {"momentum", {.optimizer = testing::Optimizer::kMomentum}},
      {"amsgrad with counters",
       {.optimizer = testing::Optimizer::kAmsgrad, .has_step_counters = true}},
      {"state from the constructor", {.optimizer = testing::Optimizer::kAdagrad}},
      {"factored state", {.optimizer = testing::Optimizer::kAdafactor}},
      {"gradients kept", {.sets_to_none = false}},
      {"gradients accumulated", {.accumulate = 4}},
      {"zero_grad first", {.zero_grad = testing::ZeroGrad::kBeforeForward}},
      {"zero_grad late", {.zero_grad = testing::ZeroGrad::kBeforeBackward}},
      {"autocast", {.precision = testing::Precision::kAutocast}},
      {"half parameters with full copies", {.precision = testing::Precision::kMasterCopies}},
      {"frozen layers", {.layers = 20, .frozen_layers = 12}},
      {"checkpointing", {.layers = 24, .recomputes = true}},
      {"clipped, evaluated", {.clips_gradients = true, .evaluates = true}},
      {"lengths vary", {.varies_batch = true, .keeps_batch = true}},
      {"torn down", {.end = testing::End::kTornDown}},
      {"cut in a forward", {.end = testing::End::kCutInForward}},
      {"failed in a forward", {.end = testing::End::kFailedInForward}},
      {"the end of a history", {.steps = 8, .cut_front = 0.5}},
      {"two steps", {.steps = 2}},
      {"one step", {.steps = 1}},
      {"without foreach", {.has_foreach = false}},
      {"a large table", {.has_embedding = true}},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.name);
    const Score score = score_of(each.habits);
    EXPECT_GE(score.right * 100, score.bytes * 95);
    EXPECT_TRUE(is_close(score.parameters, score.said_parameters, score.bytes))
        << score.said_parameters << " for " << score.parameters;
    EXPECT_TRUE(is_close(score.states, score.said_states, score.bytes))
        << score.said_states << " for " << score.states;
  }
}

// --- Stacks, annotations, rules
// --------------------------------------------------------------------

// Blocks by hand, each with frames from the innermost on: `file function`.
class Blocks {
 public:
  Blocks() { trace_.devices.emplace_back(); }

  std::uint32_t alloc(std::uint64_t size_bytes,
                      const std::vector<std::array<const char*, 2>>& frames,
                      const Details& details = {}) {
    std::vector<Frame> stack;
    for (const auto& [file, function] : frames) {
      stack.push_back({.name = trace_.strings.intern(function),
                       .file = trace_.strings.intern(file),
                       .line = 31});
    }
    events().push_back({.address = ++count_ * 1_GiB,
                        .size_bytes = size_bytes,
                        .stack = frames.empty() ? 0 : trace_.stacks.intern(stack),
                        .details = trace_.details.intern(details)});
    return count_ - 1;
  }
  void free(std::uint32_t block) {
    events().push_back({.action = Action::kFreeRequested, .address = (block + 1) * 1_GiB});
    events().push_back({.action = Action::kFreeCompleted, .address = (block + 1) * 1_GiB});
  }
  StringId text(const char* words) { return trace_.strings.intern(words); }
  CategoryAnswer answer(std::uint32_t block, const CategoryRules& rules = {}) {
    const TraceIndex index(trace_, trace_.devices[0]);
    const Categories categories(index, rules);
    return {categories.category_of(block), categories.certainty_of(block)};
  }

 private:
  Events& events() { return trace_.devices[0].events; }

  Trace trace_;
  std::uint32_t count_ = 0;
};

TEST(Categories, KeepWhatIsRecorded) {
  Blocks blocks;
  const auto block = blocks.alloc(1_MiB, {}, {.category = Category::kWorkspace});
  EXPECT_EQ(blocks.answer(block), (CategoryAnswer{Category::kWorkspace, Certainty::kRecorded}));
}

TEST(Categories, FollowTheFrames) {
  Blocks blocks;
  const auto weight = blocks.alloc(4_MiB,
                                   {{"/v/site-packages/torch/nn/modules/module.py", "convert"},
                                    {"/v/site-packages/torch/nn/modules/module.py", "_apply"},
                                    {"/me/train.py", "main"}});
  const auto output = blocks.alloc(2_MiB,
                                   {{"/v/site-packages/torch/nn/modules/linear.py", "forward"},
                                    {"/v/site-packages/torch/nn/modules/module.py", "_call_impl"},
                                    {"/me/train.py", "main"}});
  const auto flow = blocks.alloc(
      2_MiB, {{"??", "at::native::mm"}, {"??", "torch::autograd::Engine::evaluate_function"}});
  const auto again = blocks.alloc(2_MiB,
                                  {{"/v/site-packages/torch/nn/modules/linear.py", "forward"},
                                   {"/v/site-packages/torch/utils/checkpoint.py", "recompute_fn"},
                                   {"??", "torch::autograd::Engine::thread_main"}});
  const auto state = blocks.alloc(4_MiB,
                                  {{"/v/site-packages/torch/optim/adam.py", "_init_group"},
                                   {"/v/site-packages/torch/optim/adam.py", "step"}});
  const auto scratch =
      blocks.alloc(32_MiB, {{"??", "at::cuda::getNewWorkspace()"}, {"/me/train.py", "main"}});
  const auto batch = blocks.alloc(
      3_MiB, {{"/v/site-packages/torch/utils/data/_utils/pin_memory.py", "pin_memory"}});
  const auto expect = [&](std::uint32_t block, Category category) {
    EXPECT_EQ(blocks.answer(block), (CategoryAnswer{category, Certainty::kStack}))
        << to_string(category);
  };
  expect(weight, Category::kParameter);
  expect(output, Category::kActivation);
  expect(flow, Category::kGradient);
  expect(again, Category::kActivation);
  expect(state, Category::kOptimizerState);
  expect(scratch, Category::kWorkspace);
  expect(batch, Category::kData);
}

TEST(Categories, FollowTheAnnotations) {
  Blocks blocks;
  const auto block = blocks.alloc(1_MiB, {}, {.user_metadata = blocks.text("backward/layer1")});
  EXPECT_EQ(blocks.answer(block), (CategoryAnswer{Category::kGradient, Certainty::kStack}));
}

// Plain SGD has no state, and what leaks from step to step is no library's.
TEST(Categories, InventNoStateForALeak) {
  const Trace trace = trace::testing::trace_of(trace::testing::recording("leak_loss"));
  const Sums sums = at_peak(TraceIndex(trace, trace.devices[0]));
  EXPECT_EQ(of(sums, Category::kOptimizerState), 0U);
  EXPECT_LE(of(sums, Category::kWorkspace), 2 * 32_MiB);
}

TEST(Categories, StandInTheSlicesOfPerfetto) {
  const Trace trace = trace::testing::trace_of(trace::testing::recording("resnet50"));
  std::ostringstream out;
  (void)export_perfetto(trace, out);
  for (const char* part : {R"("category":"parameter","known_by":"lifetime")",
                           R"("category":"optimizer_state","known_by":"lifetime")",
                           R"("category":"activation","known_by":"guess")"}) {
    EXPECT_NE(out.str().find(part), std::string::npos) << part;
  }
}

TEST(Categories, AreUnknownWhereNothingIsSaid) {
  Blocks blocks;
  const auto block = blocks.alloc(1_MiB, {});
  (void)blocks.alloc(2_MiB, {});
  EXPECT_EQ(blocks.answer(block), (CategoryAnswer{Category::kUnknown, Certainty::kNone}));
}

TEST(Categories, TakeARecordingWithoutBlocks) {
  Trace trace;
  trace.devices.emplace_back();
  const TraceIndex index(trace, trace.devices[0]);
  EXPECT_NO_THROW((void)Categories(index));
  trace.devices[0].events.push_back({.action = Action::kOutOfMemory, .size_bytes = 1_GiB});
  const TraceIndex failed(trace, trace.devices[0]);
  EXPECT_NO_THROW((void)Categories(failed));
}

TEST(Categories, GroupBlocksThatAddUp) {
  const Trace trace = trace::testing::trace_of(trace::testing::recording("resnet50"));
  const TraceIndex index(trace, trace.devices[0]);
  const auto blocks = index.allocated_at(index.peaks().allocated.position);
  std::uint64_t bytes = 0;
  for (const Group& group : group_blocks(index, blocks, GroupBy::kCategory)) bytes += group.bytes;
  EXPECT_EQ(bytes, index.peaks().allocated.bytes);
}

TEST(CategoryRules, DecideOverEverything) {
  Blocks blocks;
  const std::vector<std::array<const char*, 2>> frames{
      {"/v/site-packages/torch/nn/functional.py", "linear"}, {"/me/nn/model.py", "forward"}};
  const auto block = blocks.alloc(
      96_MiB, frames, {.user_metadata = blocks.text("step/warmup"), .category = Category::kData});
  const auto ruled = [&](std::string_view text) {
    return blocks.answer(block, *parse_category_rules(text)).category;
  };
  EXPECT_EQ(ruled("parameter site:model.py:31"), Category::kParameter);
  EXPECT_EQ(ruled("parameter  site:nn/model.py"), Category::kParameter);
  EXPECT_EQ(ruled("parameter site:model.py:3"), Category::kData);
  EXPECT_EQ(ruled("parameter site:odel.py:31"), Category::kData);
  EXPECT_EQ(ruled("gradient\tstack:functional"), Category::kGradient);
  EXPECT_EQ(ruled("workspace size:96MiB"), Category::kWorkspace);
  EXPECT_EQ(ruled("workspace size:96 MiB\r\n"), Category::kWorkspace);
  EXPECT_EQ(ruled("workspace size:95MiB"), Category::kData);
  EXPECT_EQ(ruled("activation annotation:warm"), Category::kActivation);
  EXPECT_EQ(ruled("# none\n\nunknown size:1\ngradient stack:linear\nparameter size:96MiB"),
            Category::kGradient);
  EXPECT_EQ(blocks.answer(block, *parse_category_rules("parameter stack:linear")).certainty,
            Certainty::kRule);
}

TEST(CategoryRules, NameTheLineThatIsWrong) {
  struct Wrong {
    const char* text;
    std::size_t line;
    const char* what;
  };
  const std::vector<Wrong> cases{
      {"wieght size:1", 1, "'wieght' is no category; there are unknown, parameter,"},
      {"# fine\n\nparameter\n", 3, "nothing after the category; write site:, stack:,"},
      {"parameter size:1\ngradient model.py:31", 2, "'model.py:31' after the category"},
      {"parameter stack:", 1, "'stack:' has no value"},
      {"parameter size:20MB", 1, "20MB"},
      {"parameter size:-1", 1, "-1"},
      {"Parameter size:1", 1, "'Parameter' is no category"},
      {"\x1b[2Jx size:1", 1, "'?[2Jx' is no category"},
  };
  for (const Wrong& each : cases) {
    const auto rules = parse_category_rules(each.text);
    ASSERT_FALSE(rules) << each.text;
    EXPECT_EQ(rules.error().line, each.line) << each.text;
    EXPECT_NE(rules.error().what.find(each.what), std::string::npos) << rules.error().what;
    EXPECT_EQ(rules.error().what.find('\n'), std::string::npos);
  }
  EXPECT_TRUE(parse_category_rules("")->empty());
  EXPECT_TRUE(parse_category_rules("\xEF\xBB\xBF# only a comment")->empty());
}

}  // namespace
}  // namespace headroom::analysis
