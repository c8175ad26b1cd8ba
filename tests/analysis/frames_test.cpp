// Which frames are the user's, which only pass a call on, and what frames are called.
#include "headroom/analysis/frames.h"

#include <gtest/gtest.h>

#include "headroom/analysis/sites.h"

namespace headroom::analysis {
namespace {

constexpr const char* kPackages = "/v/lib/python3.12/site-packages/";

TEST(Frames, OfWindowsAreToldApartAsWell) {
  EXPECT_TRUE(is_user_frame(R"(C:\Users\me\proj\train.py)", "step"));
  EXPECT_TRUE(is_user_frame(R"(C:\proj\lib\model.py)", "forward"));
  EXPECT_FALSE(is_user_frame(R"(C:\Python311\Lib\site-packages\torch\nn\functional.py)", "linear"));
  EXPECT_FALSE(is_user_frame(R"(C:\Python311\Lib\threading.py)", "run"));
  EXPECT_FALSE(is_user_frame(R"(D:\miniconda3\envs\ml\lib\contextlib.py)", "inner"));
  EXPECT_TRUE(is_wrapper_frame(R"(C:\Python311\Lib\site-packages\torch\nn\modules\module.py)",
                               "_call_impl"));
}

TEST(Frames, OfTheUserMayLieInFoldersWithOddNames) {
  EXPECT_TRUE(is_user_frame("/home/me/exp.soft/train.py", "step"));
  EXPECT_TRUE(is_user_frame("/home/me/c10/train.py", "step"));
  EXPECT_TRUE(is_user_frame("/tmp/ipykernel_12/34.py", "<module>"));
  EXPECT_FALSE(is_user_frame("/opt/lib/libcudnn.so.9", "f"));
  EXPECT_FALSE(is_user_frame("/tmp/torchinductor_me/ab/cab.py", "call"));
}

TEST(Frames, ThatOnlyPassACallOnAreWrappers) {
  const std::string packages = kPackages;
  EXPECT_TRUE(is_wrapper_frame(packages + "torch/nn/modules/module.py", "_call_impl"));
  EXPECT_TRUE(is_wrapper_frame(packages + "torch/nn/modules/container.py", "forward"));
  EXPECT_TRUE(is_wrapper_frame(packages + "torch/nn/functional.py", "cross_entropy"));
  EXPECT_TRUE(is_wrapper_frame(packages + "torch/utils/_contextlib.py", "decorate_context"));
  EXPECT_TRUE(is_wrapper_frame(packages + "transformers/utils/generic.py", "wrapper"));
  EXPECT_TRUE(
      is_wrapper_frame("/usr/local/src/conda/python-3.11/Python/ceval.c", "_PyEval_Vector"));
  EXPECT_TRUE(is_wrapper_frame("??", "c10::Dispatcher::callBoxed(c10::OperatorHandle const&)"));
  EXPECT_TRUE(is_wrapper_frame("??", "at::native::empty_cuda(c10::ArrayRef<long>)"));
  EXPECT_TRUE(is_wrapper_frame("", ""));
  EXPECT_FALSE(is_wrapper_frame("??", "at::native::softmax_cuda(at::Tensor const&, long)"));
  EXPECT_FALSE(is_wrapper_frame(packages + "torch/nn/modules/linear.py", "forward"));
  EXPECT_FALSE(is_wrapper_frame(packages + "torch/optim/adam.py", "_init_group"));
  // The user's own are never left out, whatever they are called.
  EXPECT_FALSE(is_wrapper_frame("/home/me/train.py", "wrapper"));
}

TEST(Frames, OfCppAreCalledWithoutTheirTypes) {
  EXPECT_EQ(short_function("at::native::add<float, std::pair<int, int>>(at::Tensor const&) const"),
            "at::native::add");
  EXPECT_EQ(short_function("(anonymous namespace)::grow(int)"), "(anonymous namespace)::grow");
  EXPECT_EQ(short_function("Model::operator()(int)"), "Model::operator()");
  EXPECT_EQ(short_function("<module>"), "<module>");
  EXPECT_EQ(short_function("f.<locals>.<lambda>"), "f.<locals>.<lambda>");
  EXPECT_EQ(short_function("a::b<<<("), "a::b");
  EXPECT_EQ(short_function(""), "");
}

struct NamedFrames {
  Trace trace{};
  FrameId add(const std::string& file, const char* function, std::uint32_t extras = 0) {
    const Frame frame{.name = trace.strings.intern(function),
                      .file = trace.strings.intern(file),
                      .line = 7,
                      .extras = extras};
    return trace.stacks.frame_ids(trace.stacks.intern(std::vector<Frame>{frame}))[0];
  }
};

TEST(Frames, WithTheSameFileNameGetTheFoldersThatTellThemApart) {
  NamedFrames made;
  const FrameId gpt2 = made.add(std::string(kPackages) + "hub/gpt2/modeling.py", "forward");
  const FrameId bert = made.add(std::string(kPackages) + "hub/bert/modeling.py", "forward");
  const FrameId alone = made.add(std::string(kPackages) + "hub/cache.py", "forward");
  const FrameId user = made.add("/home/me/modeling.py", "forward");
  const FrameId ours = made.add("/home/me/a/train.py", "step");
  const FrameId theirs = made.add("/home/me/b/train.py", "step");
  const FrameId windows = made.add(R"(C:\proj\run.py)", "step");
  const Frames frames(made.trace);
  EXPECT_EQ(frames.name(gpt2), "gpt2/modeling.py:7 forward");
  EXPECT_EQ(frames.name(bert), "bert/modeling.py:7 forward");
  EXPECT_EQ(frames.name(alone), "cache.py:7 forward");
  EXPECT_EQ(frames.name(user), "modeling.py:7 forward") << "only the user's compete with it";
  EXPECT_EQ(frames.name(ours), "a/train.py:7 step");
  EXPECT_EQ(frames.name(theirs), "b/train.py:7 step");
  EXPECT_EQ(frames.name(windows), "run.py:7 step");
  EXPECT_EQ(frames.module(gpt2), "gpt2/modeling.py forward");
}

TEST(Frames, MayHaveNoNameAtAll) {
  NamedFrames made;
  const FrameId nothing = made.add("", "");
  const FrameId function = made.add("", "f");
  const FrameId root = made.add("/", "");
  const FrameId other_root = made.add("\\", "g");
  const Frames frames(made.trace);
  EXPECT_EQ(frames.name(nothing), "");
  EXPECT_EQ(frames.name(function), "f");
  EXPECT_EQ(frames.kind(nothing), FrameKind::kUnnamed);
  EXPECT_FALSE(frames.module(root).empty() && frames.name(other_root).empty());
}

TEST(Frames, WithAClassInTheirNameAreCalledByIt) {
  NamedFrames made;
  const FrameId mlp = made.add(std::string(kPackages) + "gpt2.py", "GPT2MLP.forward");
  EXPECT_EQ(Frames(made.trace).module(mlp), "GPT2MLP gpt2.py");
}

TEST(Frames, ThatDifferByWhatIsNotShownAreOneSite) {
  NamedFrames made;
  const FrameId plain = made.add("/home/me/train.py", "step");
  const FrameId with_more = made.add("/home/me/train.py", "step", 3);
  ASSERT_NE(plain, with_more);
  const Frames frames(made.trace);
  EXPECT_EQ(frames.shown(with_more), plain);
}

TEST(Frames, OfTorchAloneNameTheOperatorAndNotTheAllocator) {
  Trace trace;
  const StringId unknown = trace.strings.intern("??");
  std::vector<Frame> stack;
  for (const char* function : {"c10::cuda::CUDACachingAllocator::Native::malloc(unsigned long)",
                               "at::native::empty_cuda(c10::ArrayRef<long>)",
                               "at::native::softmax_cuda(at::Tensor const&, long)",
                               "torch::autograd::Engine::thread_main(int)"}) {
    stack.push_back({.name = trace.strings.intern(function), .file = unknown});
  }
  const StackId id = trace.stacks.intern(stack);
  Sites sites(trace);
  EXPECT_EQ(sites.name(sites.site_of(id)), "at::native::softmax_cuda");
  EXPECT_EQ(sites.module(id), "at::native::softmax_cuda");
}

}  // namespace
}  // namespace headroom::analysis
