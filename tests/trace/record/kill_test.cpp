// kill -9 while recording: the file opens, and has all that was known to be in it.
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <random>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "headroom/trace/hrt/hrt_reader.h"

#include "tests/trace/scratch.h"

namespace headroom::trace {
namespace {

using testing::read_file;
using testing::Scratch;

// Runs kill_program for a while and kills it; gives what it printed.
std::string run_and_kill(const std::string& path, std::chrono::microseconds after) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    execl(HEADROOM_KILL_PROGRAM, HEADROOM_KILL_PROGRAM, path.c_str(), nullptr);
    _exit(127);
  }
  close(ends[1]);
  std::jthread killer([child, after] {
    std::this_thread::sleep_for(after);
    kill(child, SIGKILL);
  });
  std::string printed;
  std::array<char, 4096> buffer{};
  for (ssize_t got = 0; (got = read(ends[0], buffer.data(), buffer.size())) > 0;) {
    printed.append(buffer.data(), static_cast<std::size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status)) << "it ended by itself";
  return printed;
}

// The number on the last whole line.
std::uint64_t last_number(const std::string& printed) {
  const std::size_t end = printed.rfind('\n');
  if (end == std::string::npos) return 0;
  const std::size_t begin = end == 0 ? std::string::npos : printed.rfind('\n', end - 1);
  return std::stoull(printed.substr(begin == std::string::npos ? 0 : begin + 1));
}

TEST(Kill, LeavesAFileThatOpensAndLacksOnlyItsEnd) {
  const char* wanted = std::getenv("HEADROOM_KILLS");
  const int kills = wanted == nullptr ? 10 : std::atoi(wanted);
  const Scratch scratch;
  std::mt19937_64 random(std::random_device{}());
  int with_events = 0;
  for (int i = 0; i < kills; ++i) {
    const std::string path = scratch.path(std::to_string(i) + ".hrt");
    const std::chrono::microseconds after(random() % 150'000);
    const std::uint64_t certain = last_number(run_and_kill(path, after));
    const auto file = read_file(path);
    if (certain == 0 && file.size() < 16) continue;  // killed before it began
    std::string note;
    const auto read = parse_hrt(file, &note);
    ASSERT_TRUE(read) << "killed after " << after.count() << " us: " << to_string(read.error());
    EXPECT_NE(note, "");
    EXPECT_GE(read->event_count(), certain) << "killed after " << after.count() << " us";
    with_events += read->event_count() > 0 ? 1 : 0;
    // Nothing but the last block is missing: what there is has no gap.
    const auto blocks = list_hrt_blocks(file);
    ASSERT_TRUE(blocks);
  }
  EXPECT_GT(with_events, 0);
}

}  // namespace
}  // namespace headroom::trace
