// What is recorded when.
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/autograd/world.h"

namespace headroom {
namespace {

using ::testing::HasSubstr;
using testing::message_of;
using testing::World;

class Modes : public ::testing::Test {
 protected:
  World world_{};
  Tensor x_ = ones({4}, world_.f32(/*requires_grad=*/true));
};

TEST_F(Modes, NoGradRecordsNothing) {
  const NoGradScope no_grad;
  const Tensor y = exp(x_);
  EXPECT_FALSE(y.requires_grad());
  {
    const EnableGradScope again;
    EXPECT_TRUE(exp(x_).requires_grad());
  }
  EXPECT_FALSE(exp(x_).requires_grad());
}

TEST_F(Modes, SetGradEnabledHoldsUntilCalledAgain) {
  set_grad_enabled(false);
  EXPECT_FALSE(exp(x_).requires_grad());
  set_grad_enabled(true);
  EXPECT_TRUE(exp(x_).requires_grad());
}

TEST_F(Modes, AreOfTheirThread) {
  const NoGradScope no_grad;
  std::thread([&] { EXPECT_TRUE(exp(x_).requires_grad()); }).join();
}

TEST_F(Modes, AreCarriedToAnotherThread) {
  ThreadState state;
  {
    const NoGradScope no_grad;
    const memory::AnnotationScope layer("layer");
    state = ThreadState::capture();
  }
  std::thread([&] {
    {
      const ThreadStateScope scope(state);
      EXPECT_FALSE(exp(x_).requires_grad());
      EXPECT_EQ(memory::annotation_path(memory::current_context().annotation), "layer");
    }
    EXPECT_TRUE(GradMode::is_enabled());
    EXPECT_EQ(memory::current_context().annotation, 0U);
  }).join();
}

TEST_F(Modes, DetachSharesElementsAndVersions) {
  const Tensor y = exp(x_);
  const Tensor d = y.detach();
  EXPECT_FALSE(d.requires_grad());
  EXPECT_TRUE(d.is_leaf());
  d.zero_();
  EXPECT_EQ(y[0].item<double>(), 0);
  EXPECT_THAT(message_of([&] { y.sum().backward(); }), HasSubstr("fill_ has since made it"));
}

TEST_F(Modes, InferenceTensorsCountNoWrites) {
  Tensor made;
  {
    const InferenceModeScope inference;
    made = exp(x_);
    EXPECT_FALSE(made.requires_grad());
    made.add_(1.0);
    EXPECT_EQ(made.version(), 0U);
  }
  EXPECT_FALSE(GradMode::is_inference());
  EXPECT_TRUE(GradMode::is_enabled());
  EXPECT_TRUE((made + x_).requires_grad());  // saves neither
}

TEST_F(Modes, InferenceTensorsAreNotSaved) {
  Tensor made;
  {
    const InferenceModeScope inference;
    made = exp(x_);
  }
  EXPECT_EQ(message_of([&] { (void)(made * x_); }),
            "mul: f32[4] was made in inference mode and cannot be saved for backward; clone it "
            "outside");
  EXPECT_TRUE((made.clone() * x_).requires_grad());
  EXPECT_THAT(message_of([&] { made.add_(x_); }),
              HasSubstr("cannot be written to outside of it; clone it"));
  EXPECT_THAT(message_of([&] { made.requires_grad_(); }), HasSubstr("inference mode"));
}

TEST_F(Modes, AWriteToANormalTensorCountsInInferenceToo) {
  const Tensor y = exp(x_);
  {
    const InferenceModeScope inference;
    y.zero_();
  }
  EXPECT_EQ(y.version(), 1U);
  EXPECT_THAT(message_of([&] { y.sum().backward(); }), HasSubstr("exp saved f32[4] at version 0"));
}

}  // namespace
}  // namespace headroom
