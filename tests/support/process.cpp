#include "tests/support/process.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string_view>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <utility>

extern char** environ;

namespace headroom::testing {
namespace {

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// Both ends of a pipe or of a terminal: the child writes, we read.
struct Channel {
  int ours = -1;
  int childs = -1;
};

Channel make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) fail("pipe");
  return {.ours = ends[0], .childs = ends[1]};
}

Channel make_terminal(int columns) {
  const int ours = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (ours < 0 || grantpt(ours) != 0 || unlockpt(ours) != 0) fail("posix_openpt");
  const int childs = open(ptsname(ours), O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (childs < 0) fail("open terminal");
  winsize size{};
  size.ws_col = static_cast<unsigned short>(columns);
  size.ws_row = 24;
  if (ioctl(childs, TIOCSWINSZ, &size) != 0) fail("TIOCSWINSZ");
  return {.ours = ours, .childs = childs};
}

bool changes_output(std::string_view variable) {
  for (const std::string_view prefix :
       {"HEADROOM_", "LC_", "LANG", "COLUMNS=", "NO_COLOR=", "TERM="}) {
    if (variable.starts_with(prefix)) return true;
  }
  return false;
}

std::vector<std::string> child_environment(const ProcessOptions& options) {
  std::vector<std::string> out;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!changes_output(*variable)) out.emplace_back(*variable);
  }
  std::map<std::string, std::string> set{{"LANG", "C.UTF-8"}, {"TERM", "xterm"}};
  for (const auto& [name, value] : options.environment) set[name] = value;
  for (const auto& [name, value] : set) out.push_back(std::string(name).append("=").append(value));
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  out.reserve(texts.size() + 1);
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

// Between fork and exec: only calls that are safe there.
[[noreturn]] void become(char* const* arguments, char* const* environment, int out, int err) {
  if (out >= 0) {
    dup2(out, STDOUT_FILENO);
  } else {
    close(STDOUT_FILENO);
  }
  dup2(err, STDERR_FILENO);
  execve(arguments[0], arguments, environment);
  _exit(127);
}

// False at the end: nothing more will come.
bool read_some(int fd, std::string& text) {
  std::array<char, 4096> buffer{};
  const ssize_t count = read(fd, buffer.data(), buffer.size());
  if (count > 0) text.append(buffer.data(), static_cast<std::size_t>(count));
  return count > 0 || (count < 0 && errno == EINTR);  // a terminal ends with EIO
}

void read_both(int out, int err, ProcessResult& result) {
  std::array<pollfd, 2> waits{{{out, POLLIN, 0}, {err, POLLIN, 0}}};
  while (waits[0].fd >= 0 || waits[1].fd >= 0) {
    if (poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) fail("poll");
    if (waits[0].revents != 0 && !read_some(out, result.out)) waits[0].fd = -1;
    if (waits[1].revents != 0 && !read_some(err, result.err)) waits[1].fd = -1;
  }
}

void drop_carriage_returns(std::string& text) {
  for (std::size_t at = 0; (at = text.find("\r\n", at)) != std::string::npos;) text.erase(at, 1);
}

}  // namespace

ProcessResult run_process(const ProcessOptions& options) {
  std::vector<std::string> arguments{options.program};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  std::vector<std::string> environment = child_environment(options);
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> envp = pointers(environment);

  const Channel out = options.out_is_terminal ? make_terminal(options.columns) : make_pipe();
  const Channel err = options.err_is_terminal ? make_terminal(options.columns) : make_pipe();
  int target = out.childs;
  if (options.out_file == "-") {
    target = -1;
  } else if (!options.out_file.empty()) {
    target = open(options.out_file.c_str(), O_WRONLY | O_CLOEXEC);
    if (target < 0) fail("open out_file");
  }

  const pid_t child = fork();
  if (child < 0) fail("fork");
  if (child == 0) become(argv.data(), envp.data(), target, err.childs);
  if (target >= 0 && target != out.childs) close(target);
  close(out.childs);
  close(err.childs);

  ProcessResult result;
  read_both(out.ours, err.ours, result);
  close(out.ours);
  close(err.ours);
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) fail("waitpid");
  }
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  drop_carriage_returns(result.out);
  drop_carriage_returns(result.err);
  return result;
}

bool has_terminals() {
  const int ours = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (ours < 0) return false;
  const bool works = grantpt(ours) == 0 && unlockpt(ours) == 0 && ptsname(ours) != nullptr &&
                     access(ptsname(ours), R_OK | W_OK) == 0;
  close(ours);
  return works;
}

}  // namespace headroom::testing
