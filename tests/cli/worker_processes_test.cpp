// Work shared among processes: order, progress, and what goes wrong in one of them.
#include "cli/plan/worker_processes.h"

#include <csignal>
#include <stdexcept>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/error.h"

namespace headroom::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

void nobody_is_told(std::size_t /*done*/) {}

TEST(WorkerProcesses, ReturnTextsInOrderWhateverTheirLengths) {
  std::vector<std::size_t> told;
  const auto texts = in_processes(
      300,
      [](std::size_t i) { return std::string(i % 7 == 0 ? 100'000 : i, 'a') + std::to_string(i); },
      [&](std::size_t done) { told.push_back(done); });
  ASSERT_EQ(texts.size(), 300U);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(texts[i].size(), (i % 7 == 0 ? 100'000 : i) + std::to_string(i).size());
    EXPECT_TRUE(texts[i].ends_with("a" + std::to_string(i)) || i < 1) << i;
  }
  ASSERT_EQ(told.size(), 300U);
  for (std::size_t i = 0; i < told.size(); ++i) EXPECT_EQ(told[i], i + 1);
}

TEST(WorkerProcesses, HaveNothingToDo) {
  EXPECT_THAT(in_processes(
                  0, [](std::size_t) { return "x"; }, nobody_is_told),
              IsEmpty());
}

TEST(WorkerProcesses, TellWhatWasThrown) {
  const auto fails_at_7 = [](std::size_t i) {
    if (i == 7) throw std::runtime_error("no room\nfor 7 = seven");
    return std::string("fine");
  };
  for (const std::size_t count : {8U, 100U}) {
    EXPECT_THAT([&] { (void)in_processes(count, fails_at_7, nobody_is_told); },
                ThrowsMessage<std::runtime_error>(HasSubstr("for 7 = seven")));
  }
}

TEST(WorkerProcesses, SayThatOneWasKilled) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one core: no other process";
  const pid_t test = getpid();
  const auto dies_at_3 = [test](std::size_t i) {
    if (i == 3 && getpid() != test) kill(getpid(), SIGKILL);
    return std::string("fine");
  };
  EXPECT_THAT([&] { (void)in_processes(20, dies_at_3, nobody_is_told); },
              ThrowsMessage<Error>(HasSubstr("is there enough memory?")));
}

}  // namespace
}  // namespace headroom::cli
