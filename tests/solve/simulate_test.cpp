// The arbiter: what it counts, and which schedules it refuses.
#include "headroom/solve/simulate.h"

#include <string>

#include <gtest/gtest.h>

namespace headroom::solve {
namespace {

// Two stages whose every size is another power of ten, so that a peak tells what was live.
Chain two_stages() {
  Chain chain{.input_bytes = 1};
  chain.stages.push_back(
      {.output_bytes = 10,
       .forward_cost = 1,
       .forward_extra_bytes = 1'000'000,
       .options = {{.saved_bytes = 110, .forward_cost = 2, .backward_cost = 3}}});
  chain.stages.push_back({.output_bytes = 1000,
                          .forward_cost = 4,
                          .options = {{.saved_bytes = 11'000,
                                       .forward_cost = 5,
                                       .backward_cost = 6,
                                       .backward_extra_bytes = 100'000}}});
  return chain;
}

std::string fault(const Chain& chain, const Schedule& schedule) {
  const auto run = simulate(chain, schedule);
  return run ? "" : run.error().message;
}

constexpr Step kSave0{StepKind::kForwardSave, 0, 0};
constexpr Step kSave1{StepKind::kForwardSave, 1, 0};
constexpr Step kKeep0{StepKind::kForwardKeep, 0, 0};
constexpr Step kLoss{StepKind::kLoss, 2, 0};
constexpr Step kBack0{StepKind::kBackward, 0, 0};
constexpr Step kBack1{StepKind::kBackward, 1, 0};

TEST(Simulate, CountsWhatAStageHoldsWhileItRuns) {
  const auto run = simulate(two_stages(), {kSave0, kSave1, kLoss, kBack1, kBack0});
  ASSERT_TRUE(run.has_value()) << run.error().message;
  // The backward of stage 1: input, both saved, its gradient, the input's gradient, its extra.
  EXPECT_EQ(run->peak_bytes, 1 + 110 + 11'000 + 1000 + 10 + 100'000U);
  EXPECT_EQ(run->peak_step, 3U);
  EXPECT_EQ(run->cost, 2 + 5 + 3 + 6);
}

TEST(Simulate, FreesACheckpointWithItsBackward) {
  const auto run = simulate(two_stages(), {kKeep0, kSave1, kLoss, kBack1, kSave0, kBack0});
  ASSERT_TRUE(run.has_value()) << run.error().message;
  EXPECT_EQ(run->peak_bytes, 1 + 10 + 1'000'000U);  // forward of stage 0 with its extra
  EXPECT_EQ(run->peak_step, 0U);
  EXPECT_EQ(run->cost, 1 + 5 + 6 + 2 + 3);
}

TEST(Simulate, CountsWhatWaitsOnTheHost) {
  Chain chain = two_stages();
  chain.stages[0].input_trip_cost = 7;
  chain.stages[1].options[0].host_bytes = 50;
  const Step send{StepKind::kSendInput, 0, 0};
  const Step fetch{StepKind::kFetchInput, 0, 0};
  const auto run = simulate(chain, {kKeep0, send, kSave1, kLoss, kBack1, fetch, kSave0, kBack0});
  ASSERT_TRUE(run.has_value()) << run.error().message;
  EXPECT_EQ(run->peak_host_bytes, 51U);
  EXPECT_EQ(run->cost, 1 + 5 + 6 + 7 + 2 + 3);
  EXPECT_EQ(fault(two_stages(), {kKeep0, send}),
            "step 1 (send the input of 0 to the host): its input may not leave the device");
}

TEST(Simulate, RefusesWhatCannotRun) {
  const Chain chain = two_stages();
  EXPECT_EQ(fault(chain, {kSave1}), "step 0 (save 1 by option 0): its input is not there");
  EXPECT_EQ(fault(chain, {kSave0, kSave0}),
            "step 1 (save 0 by option 0): its output is there already");
  EXPECT_EQ(fault(chain, {kLoss}), "step 0 (loss): its input is not there");
  EXPECT_EQ(fault(chain, {kSave0, kSave1, kBack1}),
            "step 2 (backward 1): the gradient of its output is not there");
  EXPECT_EQ(fault(chain, {kKeep0, kSave1, kLoss, kBack1, kBack0}),
            "step 4 (backward 0): what it needs was not saved");
  EXPECT_EQ(fault(chain, {kSave0, kSave1, kLoss, kLoss}), "step 3 (loss): it ran already");
  EXPECT_EQ(fault(chain, {{StepKind::kForwardSave, 0, 9}}),
            "step 0 (save 0 by option 9): there is no such option");
  EXPECT_EQ(fault(chain, {{StepKind::kBackward, 2, 0}}),
            "step 0 (backward 2): there is no such stage");
  EXPECT_EQ(fault(chain, {kSave0}), "it ends before the backward of stage 0");
  EXPECT_EQ(fault(chain, {{StepKind::kForward, 0, 0}, kSave1, kLoss, kBack1, kSave0}),
            "step 4 (save 0 by option 0): its input is not there");
}

}  // namespace
}  // namespace headroom::solve
