// Runs something in the child of a fork. A child that hangs is ended, and fails the test.
//
//   EXPECT_TRUE(is_true_in_child([&] { return !allocator.try_allocate(512); }));
//   EXPECT_TRUE(exits(fork_and([&] { ... })));     // by exit(), with all that happens then
#pragma once

#include <cstdlib>
#include <functional>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace headroom::testing {

// What a child that is not done by then has as its end: SIGALRM.
inline constexpr unsigned kMostSeconds = 30;

// The child's number; the parent goes on. `body` says how the child ends, 0 to 100.
inline pid_t fork_and(const std::function<int()>& body, bool runs_exit = true) {
  const pid_t child = fork();
  if (child != 0) return child;
  alarm(kMostSeconds);
  const int code = body();
  if (runs_exit) std::exit(code);  // NOLINT(concurrency-mt-unsafe): that it works is what is tested
  _exit(code);
}

// Whether it ended by itself, with 0.
inline bool has_ended_well(pid_t child) {
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

inline bool is_true_in_child(const std::function<bool()>& body) {
  return has_ended_well(fork_and([&] { return body() ? 0 : 1; }, /*runs_exit=*/false));
}

}  // namespace headroom::testing
