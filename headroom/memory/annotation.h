// What the allocations of a thread are for: a category and a path of names, set by scopes.
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
#include <string>
#include <string_view>

#include "headroom/memory/types.h"

namespace headroom::memory {

// A path of names, interned for the life of the process; 0 is the empty path.
using AnnotationId = std::uint32_t;

// The path `parent` extended by `name`.
[[nodiscard]] AnnotationId intern_annotation(AnnotationId parent, std::string_view name);
// `step/layer3/conv1`; empty for 0 and for ids that were never given out.
[[nodiscard]] std::string annotation_path(AnnotationId id);

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

enum class Phase : std::uint8_t { kForward, kBackward, kOptimizerStep, kEvaluation, kDataLoading };

// "forward", "backward", "optimizer_step", "evaluation", "data_loading".
[[nodiscard]] std::string_view to_string(Phase phase) noexcept;

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
