#include "headroom/memory/annotation.h"

#include <gtest/gtest.h>

namespace headroom::memory {
namespace {

TEST(Annotation, NothingIsSetAtFirst) {
  EXPECT_EQ(current_context(), AllocationContext{});
  EXPECT_EQ(annotation_path(0), "");
}

TEST(Annotation, NestedScopesMakeAPath) {
  AnnotationScope step("step");
  {
    AnnotationScope layer("layer3");
    EXPECT_EQ(annotation_path(current_context().annotation), "step/layer3");
  }
  EXPECT_EQ(annotation_path(current_context().annotation), "step");
}

TEST(Annotation, ScopesKeepWhatTheyDoNotSet) {
  CategoryScope category(Category::kActivation);
  AnnotationScope layer("layer");
  EXPECT_EQ(current_context().category, Category::kActivation);
  CategoryScope inner(Category::kWorkspace);
  EXPECT_EQ(annotation_path(current_context().annotation), "layer");
  EXPECT_EQ(current_context().category, Category::kWorkspace);
}

TEST(Annotation, ContextScopeRestoresTheOuterContext) {
  AnnotationScope outer("outer");
  const AllocationContext before = current_context();
  { ContextScope scope({Category::kData, intern_annotation(0, "elsewhere")}); }
  EXPECT_EQ(current_context(), before);
}

TEST(Annotation, TheSamePathHasTheSameId) {
  const AnnotationId parent = intern_annotation(0, "same");
  EXPECT_EQ(intern_annotation(0, "same"), parent);
  EXPECT_EQ(intern_annotation(parent, "path"), intern_annotation(parent, "path"));
  EXPECT_NE(intern_annotation(parent, "path"), intern_annotation(0, "path"));
}

TEST(Annotation, AnEmptyNameAddsNothing) {
  const AnnotationId parent = intern_annotation(0, "parent");
  EXPECT_EQ(intern_annotation(parent, ""), parent);
  EXPECT_EQ(intern_annotation(0, ""), 0U);
}

TEST(Annotation, UnknownIdsAreTheEmptyPath) {
  EXPECT_EQ(annotation_path(UINT32_MAX), "");
  EXPECT_EQ(annotation_path(intern_annotation(UINT32_MAX, "orphan")), "orphan");
}

// The name of a scope may be a temporary.
TEST(Annotation, NamesAreCopied) {
  std::string name = "layer";
  const AnnotationId id = intern_annotation(0, name);
  name = "-----";
  EXPECT_EQ(annotation_path(id), "layer");
  EXPECT_EQ(intern_annotation(0, "layer"), id);
}

}  // namespace
}  // namespace headroom::memory
