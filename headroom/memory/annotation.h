// The purpose of a thread's allocations: a category and a path of names, set by scopes.
//
//   AnnotationScope layer("layer3");                 // nested scopes make a path: step/layer3
//   CategoryScope category(Category::kActivation);
//   ...
//   const AllocationContext context = current_context();         // carry it to another thread:
//   pool.submit([context] { ContextScope scope(context); ... });
//
//   IterationScope iteration(i);                     // parts of a program that recordings show as
//   PhaseScope phase(Phase::kForward);               // spans of time; a phase is in the path too
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/memory/types.h"

namespace headroom::memory {

// A path of names, interned for the life of the process; 0 is the empty path.
using AnnotationId = std::uint32_t;

// The names of a path, outermost first: `a//b` has two. They lie in `path`.
[[nodiscard]] std::vector<std::string_view> split_annotation(std::string_view path);
// The path `parent` extended by `name`; `a/b` is two names.
[[nodiscard]] AnnotationId intern_annotation(AnnotationId parent, std::string_view name);
// The same for several names, outermost first.
[[nodiscard]] AnnotationId intern_annotation(AnnotationId parent,
                                             std::span<const std::string_view> names);
// `step/layer3/conv1`; empty for 0 and for ids that were never given out.
[[nodiscard]] std::string annotation_path(AnnotationId id);

// The part of a step that a thread is in; one of its names in the path.
enum class Phase : std::uint8_t { kForward, kBackward, kOptimizerStep, kEvaluation, kDataLoading };

// "forward", "backward", "optimizer_step", "evaluation", "data_loading".
[[nodiscard]] std::string_view to_string(Phase phase) noexcept;

// A path taken apart: `step/forward/h.0/attn` is in the phase forward, and its layer is `h.0`.
class AnnotationPath {
 public:
  explicit AnnotationPath(AnnotationId id);

  // Outermost first. They live as long as the process.
  [[nodiscard]] std::span<const std::string_view> names() const noexcept { return names_; }
  [[nodiscard]] bool ends_with(Phase phase) const noexcept;
  // Whether the names of `scope` follow one another in the path; `a/b` is two. No name is in every
  // path.
  [[nodiscard]] bool is_inside(std::string_view scope) const;
  // The names inside the innermost scope of that phase; none where there is no such scope.
  [[nodiscard]] std::span<const std::string_view> inside(Phase phase) const noexcept;
  // The first name inside a phase that is no phase itself; empty where there is none.
  [[nodiscard]] std::string_view layer() const noexcept;

 private:
  std::vector<std::string_view> names_;
};

struct AllocationContext {
  Category category = Category::kUnknown;
  AnnotationId annotation = 0;

  friend bool operator==(const AllocationContext&, const AllocationContext&) = default;
};

[[nodiscard]] AllocationContext current_context() noexcept;

// Makes a context current for this thread until the end of the scope.
class ContextScope {
 public:
  explicit ContextScope(AllocationContext context) noexcept;
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  AllocationContext outer_;
};

class CategoryScope {
 public:
  explicit CategoryScope(Category category) noexcept
      : scope_({category, current_context().annotation}) {}

 private:
  ContextScope scope_;
};

class AnnotationScope {
 public:
  explicit AnnotationScope(std::string_view name)
      : scope_(
            {current_context().category, intern_annotation(current_context().annotation, name)}) {}

 private:
  ContextScope scope_;
};

// --- Spans of time -------------------------------------------------------------------------------

// Told of phases and iterations as they start and end, by the threads that are in them, one call
// at a time. It must not throw, and must not open or close one itself.
class ScopeObserver {
 public:
  ScopeObserver() = default;
  ScopeObserver(const ScopeObserver&) = delete;
  ScopeObserver& operator=(const ScopeObserver&) = delete;
  virtual ~ScopeObserver() = default;

  virtual void scope_changed(std::string_view name, bool is_start) noexcept = 0;
};

void add_scope_observer(ScopeObserver& observer);
// When it returns, the observer is not called any more.
void remove_scope_observer(ScopeObserver& observer) noexcept;

// Tells the observers. Without one, a look at a variable is all it costs.
void announce_scope(std::string_view name, bool is_start) noexcept;

class PhaseScope {
 public:
  explicit PhaseScope(Phase phase) : phase_(phase), scope_(to_string(phase)) {
    announce_scope(to_string(phase), true);
  }
  ~PhaseScope() { announce_scope(to_string(phase_), false); }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  Phase phase_;
  AnnotationScope scope_;
};

// A phase, where the innermost scope is not that phase already.
class InPhaseScope {
 public:
  explicit InPhaseScope(Phase phase) {
    if (!AnnotationPath(current_context().annotation).ends_with(phase)) scope_.emplace(phase);
  }

 private:
  std::optional<PhaseScope> scope_{};
};

// "iteration 12". Not in the path of annotations: paths are kept for the life of the process, and
// iterations do not end.
class IterationScope {
 public:
  explicit IterationScope(std::uint64_t number);
  ~IterationScope();
  IterationScope(const IterationScope&) = delete;
  IterationScope& operator=(const IterationScope&) = delete;

 private:
  std::uint64_t number_;
};

}  // namespace headroom::memory
