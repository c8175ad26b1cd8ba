#include <array>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/memory/annotation.h"

namespace headroom::memory {
namespace {

TEST(AnnotationThreads, AThreadStartsWithoutContext) {
  AnnotationScope scope("main");
  std::thread([] { EXPECT_EQ(current_context(), AllocationContext{}); }).join();
}

TEST(AnnotationThreads, AContextCanBeCarriedToAnotherThread) {
  CategoryScope category(Category::kGradient);
  AnnotationScope scope("backward");
  const AllocationContext context = current_context();
  std::thread([context] {
    ContextScope carried(context);
    AnnotationScope inner("layer");
    EXPECT_EQ(current_context().category, Category::kGradient);
    EXPECT_EQ(annotation_path(current_context().annotation), "backward/layer");
  }).join();
  EXPECT_EQ(current_context(), context);
}

TEST(AnnotationThreads, ThreadsAgreeOnIds) {
  constexpr std::size_t kScopeThreads = 8;
  constexpr std::size_t kNames = 200;
  std::array<std::vector<AnnotationId>, kScopeThreads> ids;
  {
    std::vector<std::jthread> threads;
    threads.reserve(kScopeThreads);
    for (std::vector<AnnotationId>& mine : ids) {
      threads.emplace_back([&mine] {
        for (std::size_t i = 0; i < kNames; ++i) {
          AnnotationScope outer("shared");
          AnnotationScope inner("name" + std::to_string(i));
          mine.push_back(current_context().annotation);
          EXPECT_EQ(annotation_path(mine.back()), "shared/name" + std::to_string(i));
        }
      });
    }
  }
  for (const std::vector<AnnotationId>& other : ids) EXPECT_EQ(other, ids[0]);
}

// Runs after main has returned and static objects are going: paths must still be there.
struct ReportsAtExit {
  AnnotationId id = 0;
  ~ReportsAtExit() {
    if (id != 0 && annotation_path(id) != "late") std::abort();
  }
};
ReportsAtExit g_reports_at_exit;  // NOLINT(readability-identifier-naming): made before the interner

TEST(AnnotationThreads, PathsOutliveStaticDestruction) {
  g_reports_at_exit.id = intern_annotation(0, "late");
  EXPECT_EQ(annotation_path(g_reports_at_exit.id), "late");
}

}  // namespace
}  // namespace headroom::memory
