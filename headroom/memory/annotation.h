// What the allocations of a thread are for: a category and a path of names, set by scopes.
//
//   AnnotationScope layer("layer3");                 // nested scopes make a path: step/layer3
//   CategoryScope category(Category::kActivation);
//   ...
//   const AllocationContext context = current_context();         // carry it to another thread:
//   pool.submit([context] { ContextScope scope(context); ... });
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

}  // namespace headroom::memory
