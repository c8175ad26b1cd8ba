// Two processes share a card, each under a fraction of it. See cuda_share_program.cpp.
#include <cstdint>
#include <future>
#include <map>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/cuda/cuda_device.h"

#include "tests/support/process.h"
#include "tests/support/temp_folder.h"

namespace headroom::memory {
namespace {

using headroom::testing::ProcessResult;
using ::testing::HasSubstr;

// "key rest of the line", by key.
std::map<std::string, std::string> read_answers(const std::string& text) {
  std::map<std::string, std::string> answers;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t end = line.find(' ');
    if (end != std::string::npos) answers[line.substr(0, end)] = line.substr(end + 1);
  }
  return answers;
}

TEST(CudaShare, EachSeesTheOtherAndIsHeldToItsShare) {
  if (device::CudaDevice::count() == 0) GTEST_SKIP() << device::CudaDevice::why_none();
  const headroom::testing::TempFolder folder;
  const auto start = [&](const char* which) {
    return std::async(std::launch::async, [which, path = folder.path().string()] {
      return headroom::testing::run_process(
          {.program = HEADROOM_CUDA_SHARE_PROGRAM, .arguments = {which, path}});
    });
  };
  auto first = start("first");
  auto second = start("second");
  for (auto* running : {&first, &second}) {
    const ProcessResult done = running->get();
    SCOPED_TRACE(done.out + done.err);
    ASSERT_EQ(done.exit_code, 0) << "signal " << done.signal;
    auto answers = read_answers(done.out);
    const auto number = [&](const char* key) { return std::stoull("0" + answers[key]); };
    EXPECT_EQ(number("reserved"), 600_MiB);
    EXPECT_GE(number("others"), 600_MiB) << "the other process's block";
    EXPECT_EQ(number("sum"), number("total"));
    EXPECT_LT(number("outside"), 4_GiB) << "this process's context";
    EXPECT_EQ(number("refused"), 1U);
    EXPECT_GE(number("missing"), 600_MiB) << "beyond its share";
    EXPECT_LE(number("missing"), 604_MiB) << "and what rounds it up to pages";
    EXPECT_GT(number("free"), number("limit")) << "although the card has the room";
    EXPECT_THAT(answers["summary"], HasSubstr("the limit leaves"));
  }
}

}  // namespace
}  // namespace headroom::memory
