#include "headroom/memory/annotation.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

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

TEST(Annotation, ASlashSeparatesNames) {
  const AnnotationId step = intern_annotation(0, "slash");
  const AnnotationId both = intern_annotation(step, "forward/h.0");
  EXPECT_EQ(both, intern_annotation(intern_annotation(step, "forward"), "h.0"));
  EXPECT_EQ(both, intern_annotation(step, "/forward//h.0/"));
  EXPECT_EQ(intern_annotation(step, "///"), step);
}

std::vector<std::string_view> listed(std::span<const std::string_view> names) {
  return {names.begin(), names.end()};
}

TEST(Annotation, IsSplitIntoTheNamesThatAreThere) {
  using Names = std::vector<std::string_view>;
  EXPECT_EQ(split_annotation("step/h.0/attn"), (Names{"step", "h.0", "attn"}));
  EXPECT_EQ(split_annotation("//a///b/"), (Names{"a", "b"}));
  EXPECT_EQ(split_annotation("alone"), Names{"alone"});
  EXPECT_EQ(split_annotation("/"), Names{});
  EXPECT_EQ(split_annotation(""), Names{});
}

TEST(AnnotationPath, HasTheNamesThatItWasMadeOf) {
  using Names = std::vector<std::string_view>;
  const AnnotationId id = intern_annotation(0, "step/forward/h.0/attn");
  const AnnotationPath path(id);
  EXPECT_EQ(listed(path.names()), (Names{"step", "forward", "h.0", "attn"}));
  EXPECT_EQ(listed(path.inside(Phase::kForward)), (Names{"h.0", "attn"}));
  EXPECT_EQ(listed(path.inside(Phase::kBackward)), Names{});
  EXPECT_EQ(path.layer(), "h.0");
  EXPECT_EQ(intern_annotation(0, path.names()), id);
  EXPECT_TRUE(AnnotationPath(0).names().empty());
  EXPECT_TRUE(AnnotationPath(UINT32_MAX).names().empty());
}

TEST(AnnotationPath, ALayerIsInsideAPhase) {
  struct Row {
    std::string_view path;
    std::string_view layer;
  };
  for (const Row& row : {Row{"forward/fc", "fc"},
                         Row{"backward/forward/h.1/mlp", "h.1"},
                         Row{"forward", ""},
                         Row{"h.0/attn", ""},
                         Row{"forwards/h.0", ""},
                         Row{"", ""}}) {
    EXPECT_EQ(AnnotationPath(intern_annotation(0, row.path)).layer(), row.layer) << row.path;
  }
}

TEST(AnnotationPath, TheInnermostScopeOfAPhaseCounts) {
  const AnnotationPath path(intern_annotation(0, "backward/a/backward/b"));
  EXPECT_EQ(listed(path.inside(Phase::kBackward)), (std::vector<std::string_view>{"b"}));
  EXPECT_FALSE(path.ends_with(Phase::kBackward));
}

TEST(PhaseScope, IsOpenedOnceWhereOneIsEnough) {
  const InPhaseScope outer(Phase::kBackward);
  const AnnotationId once = current_context().annotation;
  EXPECT_EQ(annotation_path(once), "backward");
  {
    const InPhaseScope inner(Phase::kBackward);
    EXPECT_EQ(current_context().annotation, once);
    const AnnotationScope layer("h.0");
    const InPhaseScope nested(Phase::kBackward);
    EXPECT_EQ(annotation_path(current_context().annotation), "backward/h.0/backward");
  }
  EXPECT_EQ(current_context().annotation, once);
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
