#include "bindings/pytorch/bridge/named_stacks.h"

#include <mutex>
#include <utility>

namespace headroom::bridge {
namespace {

// Of the allocation that this thread is in.
thread_local constinit std::uint32_t t_stack = 0;  // NOLINT(readability-identifier-naming)

constinit std::atomic<StackWalker> g_walker{nullptr};  // NOLINT(readability-identifier-naming)

// The process that records, as fork_generation() counts them. In the child of a fork another thread
// may hold what a walker needs, for ever.
constinit std::atomic<std::uint64_t> g_walks_in{0};  // NOLINT(readability-identifier-naming)

// Before there are threads, so that no child is forked while one of them makes it.
[[maybe_unused]] const NamedStacks& made_stacks = NamedStacks::instance();

}  // namespace

NamedStacks& NamedStacks::instance() {
  static NamedStacks& stacks = *new NamedStacks;
  return stacks;
}

void NamedStacks::walk_here() noexcept {
  g_walks_in.store(fork_generation(), std::memory_order_relaxed);
}

std::uint32_t NamedStacks::intern(const SourceLine& line) {
  Key key{line.name, line.file, line.line};
  const std::lock_guard lock(mutex_);
  const auto known = ids_.find(key);
  if (known != ids_.end()) return known->second;
  if (lines_.size() > kMostLines) return 0;
  const auto id = static_cast<std::uint32_t>(lines_.size());
  const auto added = ids_.emplace(std::move(key), id).first;
  lines_.push_back(&added->first);
  return id;
}

std::uint32_t NamedStacks::intern(std::span<const std::uint32_t> lines) {
  const std::vector<std::uint64_t> words(lines.begin(), lines.end());
  const std::uint64_t hash = SeenStacks::hash_of(words);
  const std::lock_guard lock(mutex_);
  const std::uint32_t known = stacks_.find(words, hash);
  if (known != SeenStacks::kUnknown) return known;
  if (stack_lines_.size() > kMostStacks) return 0;
  const auto id = static_cast<std::uint32_t>(stack_lines_.size());
  stack_lines_.emplace_back(lines.begin(), lines.end());
  stacks_.add(words, hash, id);
  return id;
}

std::uint32_t NamedStacks::current() const noexcept { return t_stack; }

std::vector<trace::NamedFrame> NamedStacks::frames_of(std::uint32_t stack) const {
  std::vector<trace::NamedFrame> frames;
  const std::lock_guard lock(mutex_);
  if (stack >= stack_lines_.size()) return frames;
  for (const std::uint32_t id : stack_lines_[stack]) {
    if (id == 0 || id >= lines_.size()) continue;
    const auto& [name, file, line] = *lines_[id];
    frames.push_back({.name = name, .file = file, .line = line});
  }
  return frames;
}

// --- Of a thread ---------------------------------------------------------------------------------

void RecordedStack::begin() noexcept {
  const StackWalker walker = g_walker.load(std::memory_order_acquire);
  if (walker == nullptr || g_walks_in.load(std::memory_order_relaxed) != fork_generation()) return;
  has_begun_ = true;
  outer_ = std::exchange(t_stack, 0);  // the walker itself may allocate
  t_stack = walker();
}

void RecordedStack::end() const noexcept { t_stack = outer_; }

std::uint32_t intern_line(const SourceLine& line) { return NamedStacks::instance().intern(line); }
std::uint32_t intern_stack(std::span<const std::uint32_t> lines) {
  return NamedStacks::instance().intern(lines);
}
void set_stack_walker(StackWalker walker) noexcept {
  g_walker.store(walker, std::memory_order_release);
}

}  // namespace headroom::bridge
