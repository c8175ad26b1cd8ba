// Settings from the environment, and the versions that they name.
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/memory/config.h"

#include "tests/memory/config_dialects.h"

namespace headroom::memory {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class ConfigEnvironment : public ::testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }
  static void set(const char* name, const char* value) { ::setenv(name, value, 1); }

 private:
  static void clear() {
    for (const char* name : {"HEADROOM_ALLOC_CONF",
                             "PYTORCH_CUDA_ALLOC_CONF",
                             "PYTORCH_HIP_ALLOC_CONF",
                             "PYTORCH_ALLOC_CONF"}) {
      ::unsetenv(name);
    }
  }
};

TEST_F(ConfigEnvironment, NothingSetGivesDefaults) {
  const auto parsed = config_from_environment();
  ASSERT_TRUE(parsed);
  EXPECT_EQ(to_string(parsed->config), "");
  EXPECT_THAT(parsed->warnings, IsEmpty());
}

TEST_F(ConfigEnvironment, OursComesFirstAndIsStrict) {
  set("HEADROOM_ALLOC_CONF", "max_split_size_mb:64");
  set("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128");
  EXPECT_EQ(config_from_environment()->config.max_split_bytes, 64_MiB);
  set("HEADROOM_ALLOC_CONF", "max_split_size_mb:64MB");
  EXPECT_THAT(error_of(config_from_environment()),
              ::testing::StartsWith("HEADROOM_ALLOC_CONF: max_split_size_mb: found '64MB'"));
}

TEST_F(ConfigEnvironment, PyTorchsOwnAreReadInItsOrder) {
  set("PYTORCH_ALLOC_CONF", "max_split_size_mb:64");
  EXPECT_EQ(config_from_environment()->config.max_split_bytes, 64_MiB);
  set("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128MB");
  const auto parsed = config_from_environment();
  EXPECT_EQ(parsed->config.max_split_bytes, 128_MiB);
  EXPECT_THAT(parsed->warnings,
              ElementsAre(HasSubstr("PYTORCH_CUDA_ALLOC_CONF: max_split_size_mb: PyTorch reads"),
                          HasSubstr("PYTORCH_ALLOC_CONF is ignored")));
}

TEST_F(ConfigEnvironment, AnEmptyVariableStillHidesTheNext) {
  set("PYTORCH_CUDA_ALLOC_CONF", "");
  set("PYTORCH_ALLOC_CONF", "max_split_size_mb:64");
  const auto parsed = config_from_environment();
  EXPECT_EQ(parsed->config.max_split_bytes, AllocatorConfig::kUnlimited);
  EXPECT_THAT(parsed->warnings, SizeIs(1));
}

TEST_F(ConfigEnvironment, TheOldParserReadsOnlyTheCudaName) {
  set("PYTORCH_ALLOC_CONF", "max_split_size_mb:64");
  const auto parsed = config_from_environment(kPyTorch29);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->config.max_split_bytes, AllocatorConfig::kUnlimited);
  EXPECT_THAT(parsed->warnings, ElementsAre(HasSubstr("up to 2.9 PyTorch reads only")));
}

TEST_F(ConfigEnvironment, ErrorsNameTheVariable) {
  set("PYTORCH_HIP_ALLOC_CONF", "nonsense:1");
  EXPECT_EQ(error_of(config_from_environment()),
            "PYTORCH_HIP_ALLOC_CONF: Unrecognized key 'nonsense' in Accelerator allocator config.");
}

// --- Versions ------------------------------------------------------------------------------------

TEST(PyTorchVersion, ReadsTheUsualSpellings) {
  struct Row {
    const char* text;
    PyTorchVersion expected;
  };
  for (const Row& row : {Row{"2.9", {2, 9}},
                         Row{"2.11.0", {2, 11}},
                         Row{"2.11.0+cu130", {2, 11}},
                         Row{"2.15.0a0+git1234", {2, 15}},
                         Row{"2.15a0", {2, 15}},
                         Row{"3.0rc1", {3, 0}}}) {
    const auto parsed = parse_pytorch_version(row.text);
    ASSERT_TRUE(parsed) << row.text;
    EXPECT_EQ(*parsed, row.expected) << row.text;
  }
}

TEST(PyTorchVersion, RefusesEverythingElse) {
  for (const char* text : {"",
                           "2",
                           "2.",
                           ".11",
                           "v2.11",
                           "2.x",
                           "-2.11",
                           "2.-1",
                           "2.11 ",
                           "2,11",
                           "99999999999.1",
                           "2.99999999999"}) {
    const auto parsed = parse_pytorch_version(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_THAT(parsed.error(), HasSubstr("is not a PyTorch version")) << text;
  }
}

}  // namespace
}  // namespace headroom::memory
