// The models by name: that they are what their names say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/error.h"
#include "headroom/train/models.h"

#include "tests/train/world.h"

namespace headroom::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TrainWorld;

struct ModelCase {
  ModelConfig config;
  std::int64_t parameters;
  std::size_t blocks;
};

class ModelByName : public ::testing::TestWithParam<ModelCase> {};

TEST_P(ModelByName, HasTheParametersItsNameSays) {
  TrainWorld world(TrainWorld::Kind::kMeta);
  const auto model = make_model(GetParam().config, {.device = world.allocator()});
  EXPECT_EQ(model->num_parameters(), GetParam().parameters);
  EXPECT_EQ(model->blocks().size(), GetParam().blocks);
}

INSTANTIATE_TEST_SUITE_P(
    All,
    ModelByName,
    ::testing::Values(ModelCase{{.name = "mlp"}, 785 * 256 + 257 * 256 + 2570, 2},
                      ModelCase{{.name = "deepnet"}, 20 * 2 * 513 * 512, 20},
                      ModelCase{{.name = "deepnet", .depth = 64, .width = 1024},
                                std::int64_t{64} * 2 * 1025 * 1024,
                                64},
                      ModelCase{{.name = "trackingnet"}, 1025 * 2048 + 2049 * 2048 + 20490, 5},
                      ModelCase{{.name = "simplenn"}, 101 * 50 + 510, 3},
                      ModelCase{{.name = "resnet18"}, 11'689'512, 8},
                      ModelCase{{.name = "resnet50"}, 25'557'032, 16},
                      ModelCase{{.name = "gpt2"}, 124'439'808, 12}));

TEST(Models, AreListedWithASentenceAndADefaultEach) {
  for (const ModelInfo& info : models()) {
    EXPECT_FALSE(info.summary.empty()) << info.name;
    EXPECT_GT(info.batch, 0) << info.name;
    EXPECT_EQ(&find_model(info.name).name, &find_model(info.name).name);
  }
}

TEST(Models, ResNetHasTorchvisionsNames) {
  TrainWorld world(TrainWorld::Kind::kMeta);
  const auto model = make_model({.name = "resnet50"}, {.device = world.allocator()});
  std::vector<std::string> names;
  for (const auto& [name, tensor] : model->named_parameters()) names.push_back(name);
  EXPECT_EQ(names.size(), 161U);
  EXPECT_EQ(names[0], "conv1.weight");
  EXPECT_EQ(names[12], "layer1.0.downsample.0.weight");
  EXPECT_EQ(names.back(), "fc.bias");
}

struct WrongModel {
  ModelConfig config;
  const char* message;
};

class WrongModels : public ::testing::TestWithParam<WrongModel> {};

TEST_P(WrongModels, AreRefusedWithWhatWouldBeValid) {
  TrainWorld world(TrainWorld::Kind::kMeta);
  try {
    (void)make_model(GetParam().config, {.device = world.allocator()});
    FAIL() << "was accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr(GetParam().message));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All,
    WrongModels,
    ::testing::Values(
        WrongModel{{.name = "gtp2"},
                   "there is no model 'gtp2'; did you mean 'gpt2'? There are: mlp,"},
        WrongModel{{.name = "unheard-of"},
                   "there is no model 'unheard-of'; there are: mlp, deepnet"},
        WrongModel{{.name = "mlp", .depth = 0}, "a depth of 0 is not possible; use 1 to"},
        WrongModel{{.name = "mlp", .seq = 8}, "mlp: its seq is fixed; do not set it"},
        WrongModel{{.name = "resnet50", .width = 8}, "resnet50: its width is fixed"},
        WrongModel{{.name = "gpt2", .width = 100}, "not a multiple of 64"},
        WrongModel{{.name = "gpt2", .seq = 2048}, "2048 tokens are more than its 1024 positions"}));

}  // namespace
}  // namespace headroom::train
