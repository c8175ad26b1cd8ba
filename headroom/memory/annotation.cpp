#include "headroom/memory/annotation.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "headroom/base/fork.h"
#include "headroom/memory/internal/context.h"

namespace headroom::memory {

thread_local constinit AllocationContext internal::t_context{};
using internal::t_context;

namespace {

// Every path ever made. A path is its parent and a name, so a layer that is entered a million times
// is looked up by (parent, name) without building the whole path.
class Interner {
 public:
  AnnotationId intern(AnnotationId parent, std::string_view name) {
    const std::lock_guard lock(mutex_);
    if (parent >= paths_.size()) parent = 0;
    const auto found = ids_.find(Key{parent, name});
    if (found != ids_.end()) return found->second;
    const std::string& outer = paths_[parent].text;
    std::string text = outer.empty() ? std::string(name) : outer + "/" + std::string(name);
    const auto id = static_cast<AnnotationId>(paths_.size());
    paths_.push_back({.parent = parent, .text = std::move(text)});
    Path& stored = paths_.back();
    stored.name = std::string_view(stored.text).substr(stored.text.size() - name.size());
    ids_.emplace(Key{parent, stored.name}, id);
    return id;
  }

  std::string path(AnnotationId id) {
    const std::lock_guard lock(mutex_);
    return id < paths_.size() ? paths_[id].text : std::string();
  }

  std::vector<std::string_view> names(AnnotationId id) {
    const std::lock_guard lock(mutex_);
    std::vector<std::string_view> out;
    if (id >= paths_.size()) return out;
    for (; id != 0; id = paths_[id].parent) out.push_back(paths_[id].name);
    std::ranges::reverse(out);
    return out;
  }

 private:
  using Key = std::pair<AnnotationId, std::string_view>;
  struct Path {
    AnnotationId parent = 0;
    std::string text{};
    std::string_view name{};  // the end of the text
  };

  ForkSafeMutex mutex_{ForkSafeMutex::Rank::kTable};
  std::deque<Path> paths_{Path{}};  // by id; a deque keeps its texts in place
  std::map<Key, AnnotationId> ids_;
};

// Never destroyed: objects that outlive main may still be freed and reported.
Interner& interner() {
  static auto* const instance = new Interner;
  return *instance;
}

// The lock keeps observers alive while they are told; the flag spares everybody from it while there
// are none.
class ScopeObservers {
 public:
  void add(ScopeObserver& observer) {
    const std::lock_guard lock(mutex_);
    observers_.push_back(&observer);
    has_any_.store(true, std::memory_order_relaxed);
  }
  void remove(ScopeObserver& observer) noexcept {
    const std::lock_guard lock(mutex_);
    std::erase(observers_, &observer);
    has_any_.store(!observers_.empty(), std::memory_order_relaxed);
  }
  void tell(std::string_view name, bool is_start) noexcept {
    const std::lock_guard lock(mutex_);
    for (ScopeObserver* observer : observers_) observer->scope_changed(name, is_start);
  }
  static bool has_any() noexcept { return has_any_.load(std::memory_order_relaxed); }

 private:
  // NOLINTNEXTLINE(readability-identifier-naming): a private member, as the others are
  static inline std::atomic<bool> has_any_{false};

  ForkSafeMutex mutex_{ForkSafeMutex::Rank::kObservers};
  std::vector<ScopeObserver*> observers_;
};

// Never destroyed: scopes may end with the process.
ScopeObservers& scope_observers() {
  static auto* const instance = new ScopeObservers;
  return *instance;
}

// Made before there are threads: a child that is forked while one of them makes these would wait
// for it for ever.
[[maybe_unused]] const Interner& made_interner = interner();
[[maybe_unused]] const ScopeObservers& made_observers = scope_observers();

void announce_iteration(std::uint64_t number, bool is_start) noexcept {
  if (!ScopeObservers::has_any()) return;
  std::array<char, 40> name{};
  const int size = std::snprintf(
      name.data(), name.size(), "iteration %llu", static_cast<unsigned long long>(number));
  announce_scope({name.data(), static_cast<std::size_t>(size)}, is_start);
}

bool is_phase_name(std::string_view name) noexcept {
  for (const Phase phase : {Phase::kForward,
                            Phase::kBackward,
                            Phase::kOptimizerStep,
                            Phase::kEvaluation,
                            Phase::kDataLoading}) {
    if (name == to_string(phase)) return true;
  }
  return false;
}

}  // namespace

std::vector<std::string_view> split_annotation(std::string_view path) {
  std::vector<std::string_view> names;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    if (end > 0) names.push_back(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return names;
}

AnnotationId intern_annotation(AnnotationId parent, std::string_view name) {
  if (!name.empty() && name.find('/') == std::string_view::npos) {
    return interner().intern(parent, name);
  }
  for (const std::string_view part : split_annotation(name)) {
    parent = interner().intern(parent, part);
  }
  return parent;
}

AnnotationId intern_annotation(AnnotationId parent, std::span<const std::string_view> names) {
  for (const std::string_view name : names) parent = intern_annotation(parent, name);
  return parent;
}

std::string annotation_path(AnnotationId id) { return interner().path(id); }

AnnotationPath::AnnotationPath(AnnotationId id) : names_(interner().names(id)) {}

bool AnnotationPath::ends_with(Phase phase) const noexcept {
  return !names_.empty() && names_.back() == to_string(phase);
}

bool AnnotationPath::is_inside(std::string_view scope) const {
  const std::vector<std::string_view> wanted = split_annotation(scope);
  const auto found = std::search(names_.begin(), names_.end(), wanted.begin(), wanted.end());
  return found != names_.end() || wanted.empty();
}

std::span<const std::string_view> AnnotationPath::inside(Phase phase) const noexcept {
  const auto found = std::find(names_.rbegin(), names_.rend(), to_string(phase));
  if (found == names_.rend()) return {};
  return {found.base(), names_.end()};
}

std::string_view AnnotationPath::layer() const noexcept {
  bool is_in_phase = false;
  for (const std::string_view name : names_) {
    const bool is_phase = is_phase_name(name);
    if (is_in_phase && !is_phase) return name;
    is_in_phase = is_in_phase || is_phase;
  }
  return {};
}

AllocationContext current_context() noexcept { return t_context; }

ContextScope::ContextScope(AllocationContext context) noexcept
    : outer_(std::exchange(t_context, context)) {}

ContextScope::~ContextScope() { t_context = outer_; }

void add_scope_observer(ScopeObserver& observer) { scope_observers().add(observer); }

void remove_scope_observer(ScopeObserver& observer) noexcept { scope_observers().remove(observer); }

void announce_scope(std::string_view name, bool is_start) noexcept {
  if (ScopeObservers::has_any()) scope_observers().tell(name, is_start);
}

std::string_view to_string(Phase phase) noexcept {
  switch (phase) {
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kOptimizerStep:
      return "optimizer_step";
    case Phase::kEvaluation:
      return "evaluation";
    case Phase::kDataLoading:
      return "data_loading";
  }
  return "?";
}

IterationScope::IterationScope(std::uint64_t number) : number_(number) {
  announce_iteration(number_, true);
}

IterationScope::~IterationScope() { announce_iteration(number_, false); }

}  // namespace headroom::memory
