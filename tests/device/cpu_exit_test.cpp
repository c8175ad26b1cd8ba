// The end of a process with streams at work: see cpu_exit_program.cpp.
#include <array>
#include <chrono>
#include <cstdio>
#include <string>
#include <sys/wait.h>

#include <gtest/gtest.h>

namespace headroom::device {
namespace {

struct Ending {
  int status = -1;
  std::string output;
  double seconds = 0;
};

Ending run_program(const std::string& way) {
  const auto start = std::chrono::steady_clock::now();
  Ending ending;
  std::FILE* pipe = popen(("timeout 60 '" HEADROOM_EXIT_PROGRAM "' " + way + " 2>&1").c_str(), "r");
  std::array<char, 256> line{};
  while (std::fgets(line.data(), line.size(), pipe) != nullptr) ending.output += line.data();
  const int status = pclose(pipe);
  if (WIFEXITED(status)) ending.status = WEXITSTATUS(status);
  ending.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return ending;
}

TEST(CpuExit, MemoryIsFreedWhileStaticsAreDestroyed) {
  const Ending ending = run_program("free");
  EXPECT_EQ(ending.status, 0) << ending.output;
  EXPECT_EQ(ending.output, "");
}

TEST(CpuExit, ADeviceInAStaticIsDestroyedAfterItsThreadsAreParked) {
  const Ending ending = run_program("destroy");
  EXPECT_EQ(ending.status, 0) << ending.output;
}

TEST(CpuExit, ATaskMayEndTheProcess) {
  const Ending ending = run_program("exit-from-task");
  EXPECT_EQ(ending.status, 0) << ending.output;
}

TEST(CpuExit, TheChildOfAForkEndsLikeItsParent) {
  const Ending ending = run_program("fork");
  EXPECT_EQ(ending.status, 0) << ending.output;
}

TEST(CpuExit, ATaskThatHangsDoesNotKeepTheProcess) {
  const Ending ending = run_program("hang");
  EXPECT_EQ(ending.status, 0) << ending.output;
  EXPECT_GT(ending.seconds, 4) << "the task was given no time";
  EXPECT_LT(ending.seconds, 30);
}

}  // namespace
}  // namespace headroom::device
