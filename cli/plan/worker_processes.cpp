#include "cli/plan/worker_processes.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <poll.h>
#include <string_view>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

#include "headroom/base/error.h"

namespace headroom::cli {
namespace {

constexpr std::size_t kMostWorkers = 16;
constexpr char kText = '=';
constexpr char kFailure = '!';

// The number of the next piece of work, seen by all processes.
class SharedCounter {
 public:
  SharedCounter()
      : memory_(mmap(nullptr,
                     sizeof(std::atomic<std::size_t>),
                     PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS,
                     -1,
                     0)) {
    if (memory_ == MAP_FAILED) throw Error(fmt::format("mmap: {}", std::strerror(errno)));
    next_ = new (memory_) std::atomic<std::size_t>(0);
  }
  ~SharedCounter() { munmap(memory_, sizeof(std::atomic<std::size_t>)); }
  SharedCounter(const SharedCounter&) = delete;
  SharedCounter& operator=(const SharedCounter&) = delete;

  std::size_t take() noexcept { return next_->fetch_add(1); }

 private:
  static_assert(std::atomic<std::size_t>::is_always_lock_free);
  void* memory_;
  std::atomic<std::size_t>* next_ = nullptr;
};

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(fd, text.data(), text.size());
    if (count < 0 && errno != EINTR) return false;
    if (count > 0) text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

// A line "17=text" or "17!what went wrong" for each piece of work.
[[noreturn]] void work_in_child(std::size_t count,
                                const std::function<std::string(std::size_t)>& work,
                                SharedCounter& counter,
                                int out) {
  for (std::size_t i = counter.take(); i < count; i = counter.take()) {
    char sign = kText;
    std::string text;
    try {
      text = work(i);
    } catch (const std::exception& error) {
      sign = kFailure;
      text = error.what();
      std::ranges::replace(text, '\n', ' ');
    }
    if (!write_all(out, fmt::format("{}{}{}\n", i, sign, text))) break;  // nobody reads any more
  }
  _exit(0);  // what the parent had not flushed is the parent's to flush
}

// A child and what it has written so far; ended with its owner.
class Worker {
 public:
  Worker(pid_t child, int fd) : child_(child), fd_(fd) {}
  ~Worker() {
    close(fd_);
    if (!is_at_end_) kill(child_, SIGTERM);
    while (waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  [[nodiscard]] int fd() const noexcept { return is_at_end_ ? -1 : fd_; }
  [[nodiscard]] bool is_at_end() const noexcept { return is_at_end_; }

  void read_some() {
    std::array<char, 65536> buffer{};
    const ssize_t count = read(fd_, buffer.data(), buffer.size());
    if (count > 0) text_.append(buffer.data(), static_cast<std::size_t>(count));
    if (count == 0 || (count < 0 && errno != EINTR)) is_at_end_ = true;
  }
  std::optional<std::string> take_line() {
    const std::size_t end = text_.find('\n');
    if (end == std::string::npos) return std::nullopt;
    std::string line = text_.substr(0, end);
    text_.erase(0, end + 1);
    return line;
  }

 private:
  pid_t child_;
  int fd_;
  std::string text_{};
  bool is_at_end_ = false;
};

// Without one where the system has no process or file to give.
std::unique_ptr<Worker> start_worker(std::size_t count,
                                     const std::function<std::string(std::size_t)>& work,
                                     SharedCounter& counter) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return nullptr;
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    work_in_child(count, work, counter, ends[1]);
  }
  close(ends[1]);
  if (child > 0) return std::make_unique<Worker>(child, ends[0]);
  close(ends[0]);
  return nullptr;
}

struct Results {
  std::vector<std::string> texts{};
  std::size_t ready = 0;

  void add(const std::string& line) {
    const std::size_t sign = line.find_first_of("=!");
    std::string text = line.substr(sign + 1);
    if (line[sign] == kFailure) throw Error(text);
    texts.at(std::stoul(line)) = std::move(text);
    ++ready;
  }
};

void collect(std::vector<std::unique_ptr<Worker>>& workers,
             Results& results,
             const std::function<void(std::size_t)>& done) {
  std::vector<pollfd> waits(workers.size());
  while (!std::ranges::all_of(workers, [](const auto& worker) { return worker->is_at_end(); })) {
    for (std::size_t i = 0; i < workers.size(); ++i) waits[i] = {workers[i]->fd(), POLLIN, 0};
    if (poll(waits.data(), waits.size(), -1) < 0) {
      if (errno == EINTR) continue;
      throw Error(fmt::format("poll: {}", std::strerror(errno)));
    }
    for (std::size_t i = 0; i < workers.size(); ++i) {
      if (waits[i].revents == 0) continue;
      workers[i]->read_some();
      while (const auto line = workers[i]->take_line()) {
        results.add(*line);
        done(results.ready);
      }
    }
  }
}

}  // namespace

std::vector<std::string> in_processes(std::size_t count,
                                      const std::function<std::string(std::size_t)>& work,
                                      const std::function<void(std::size_t)>& done) {
  SharedCounter counter;
  Results results{.texts = std::vector<std::string>(count)};
  const std::size_t cores = std::max(std::thread::hardware_concurrency(), 1U);
  const std::size_t wanted = std::min({cores, count, kMostWorkers});
  std::vector<std::unique_ptr<Worker>> workers;
  while (wanted > 1 && workers.size() < wanted) {
    auto worker = start_worker(count, work, counter);
    if (worker == nullptr) break;
    workers.push_back(std::move(worker));
  }
  if (!workers.empty()) {
    collect(workers, results, done);
    if (results.ready == count) return std::move(results.texts);
    throw Error("a process that did part of the work was ended; is there enough memory?");
  }
  for (std::size_t i = 0; i < count; ++i) {
    results.texts[i] = work(i);
    done(i + 1);
  }
  return std::move(results.texts);
}

}  // namespace headroom::cli
