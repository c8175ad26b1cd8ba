#include "headroom/base/env.h"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"

namespace headroom {
namespace {

constexpr const char* kName = "HEADROOM_ENV_TEST";

class Env : public testing::Test {
 protected:
  void TearDown() override { unsetenv(kName); }
  static void set(const char* value) { setenv(kName, value, 1); }
};

TEST_F(Env, UnsetAndEmptyAreNoValue) {
  unsetenv(kName);
  EXPECT_EQ(*env_bytes(kName), std::nullopt);
  set("");
  EXPECT_EQ(*env_bytes(kName), std::nullopt);
  EXPECT_EQ(*env_int(kName, 0, 1), std::nullopt);
  EXPECT_EQ(*env_flag(kName), std::nullopt);
  EXPECT_EQ(env_string(kName), std::nullopt);
}

TEST_F(Env, ReadsSizesNumbersAndFlags) {
  set("1.5GiB");
  EXPECT_EQ(*env_bytes(kName), 1536_MiB);
  set("-3");
  EXPECT_EQ(*env_int(kName, -5, 5), -3);
  set("ON");
  EXPECT_EQ(*env_flag(kName), true);
  set("no");
  EXPECT_EQ(*env_flag(kName), false);
}

TEST_F(Env, GarbageIsNamedAndQuoted) {
  set("lots");
  for (const std::string& message :
       {env_bytes(kName).error(), env_int(kName, 1, 8).error(), env_flag(kName).error()}) {
    EXPECT_NE(message.find(kName), std::string::npos) << message;
    EXPECT_NE(message.find("'lots'"), std::string::npos) << message;
  }
}

TEST_F(Env, NumbersOutOfRangeSayTheRange) {
  for (const char* text : {"0", "9", "99999999999999999999", "4x", "4 "}) {
    set(text);
    const auto parsed = env_int(kName, 1, 8);
    ASSERT_FALSE(parsed) << text;
    EXPECT_NE(parsed.error().find("from 1 to 8"), std::string::npos) << parsed.error();
  }
}

}  // namespace
}  // namespace headroom
