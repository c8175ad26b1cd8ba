#include "headroom/replay/internal/in_order.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace headroom::replay::internal {

namespace {

class Runner {
 public:
  explicit Runner(const OrderedJobs& jobs) : jobs_(jobs), is_done_(jobs.count) {}

  void run(int threads) {
    {
      std::vector<std::jthread> helpers;
      const std::size_t most = std::min(jobs_.ahead, jobs_.count);
      try {
        for (std::size_t i = 1; i < most && i < static_cast<std::size_t>(threads); ++i) {
          helpers.emplace_back([this] { take_part(/*is_caller=*/false); });
        }
      } catch (const std::system_error&) {  // those that there are do it all
      }
      take_part(/*is_caller=*/true);
    }
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void take_part(bool is_caller) {
    std::unique_lock lock(mutex_);
    for (;;) {
      advance();
      changed_.wait(lock, [&] { return taken_ < begun_ || is_over(); });
      if (taken_ == begun_) return;
      const std::size_t job = taken_++;
      lock.unlock();
      work(job);
      lock.lock();
      is_done_[job] = true;
      if (is_caller && jobs_.watch) jobs_.watch();
    }
  }

  void work(std::size_t job) {
    try {
      jobs_.work(job);
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
  }

  [[nodiscard]] bool is_over() const { return is_full_ && ended_ == begun_; }

  // The sequence. Beginning comes first: that makes it one and the same.
  void advance() {
    const std::size_t begun = begun_;
    const std::size_t ended = ended_;
    while (take_step()) {
    }
    if (begun != begun_ || ended != ended_ || is_over()) changed_.notify_all();
  }

  // False where the next step waits for a job.
  bool take_step() {
    try {
      is_full_ = is_full_ || error_ || begun_ == jobs_.count;
      if (!is_full_ && begun_ < ended_ + jobs_.ahead) {
        jobs_.begin(begun_);
        ++begun_;
        return true;
      }
      if (ended_ == begun_ || !is_done_[ended_]) return false;
      if (!error_) jobs_.end(ended_);
      ++ended_;
    } catch (...) {
      error_ = std::current_exception();
    }
    return true;
  }

  const OrderedJobs& jobs_;
  std::mutex mutex_{};
  std::condition_variable changed_{};
  std::vector<bool> is_done_;
  std::size_t begun_ = 0;
  std::size_t taken_ = 0;
  std::size_t ended_ = 0;
  bool is_full_ = false;  // no more will begin
  std::exception_ptr error_{};
};

}  // namespace

void run_in_order(const OrderedJobs& jobs, int threads) { Runner(jobs).run(threads); }

}  // namespace headroom::replay::internal
