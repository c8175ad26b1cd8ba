// The examples, run as a user would run them. Bytes beside the words "PyTorch's" are what
// PyTorch 2.11 gave for the same requests on an H200.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/process.h"
#include "tests/support/temp_folder.h"

namespace headroom {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::string text_of(const std::string& path) {
  std::ifstream in(std::string(HEADROOM_SOURCE_DIR "/") + path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string output_of(const std::string& name, std::vector<std::string> arguments = {}) {
  const auto done =
      testing::run_process({.program = std::string(HEADROOM_EXAMPLES_DIR "/example_") + name,
                            .arguments = std::move(arguments)});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(done.err, "");
  return done.out;
}

// The numbers of the line that starts with `label`.
std::string line(const std::string& output, const std::string& label) {
  const std::size_t start = ("\n" + output).find("\n" + label + "  ");
  if (start == std::string::npos) return "no line '" + label + "' in\n" + output;
  const std::size_t from = start + label.size();
  std::string words;
  for (const char c : output.substr(from, output.find('\n', from) - from)) {
    if (c != ' ') words += c;
    if (c == ' ' && !words.empty() && words.back() != ' ') words += c;
  }
  return words;
}

TEST(Examples, DynamicAllocationGivesPyTorchsBytes) {
  const std::string out = output_of("dynamic_allocation");
  EXPECT_EQ(line(out, "before"), "allocated 0 reserved 0");
  EXPECT_EQ(line(out, "x"), "allocated 4,194,304 reserved 20,971,520");
  EXPECT_EQ(line(out, "y = x * 2"), "allocated 8,388,608 reserved 20,971,520");
  EXPECT_EQ(line(out, "x freed"), "allocated 4,194,304 reserved 20,971,520");
  EXPECT_EQ(line(out, "z = matmul(x, y)"), "allocated 83,886,080 reserved 88,080,384");
  EXPECT_EQ(line(out, "x and y freed"), "allocated 50,331,648 reserved 88,080,384");
}

TEST(Examples, RecordHistoryNamesWhatIsLiveAtThePeak) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("headroom-example-" + std::to_string(getpid())))
          .string() +
      ".hrt";
  const std::string out = output_of("record_history", {path});
  std::filesystem::remove(path);
  EXPECT_THAT(out, HasSubstr("and 18 marks in headroom-example"));
  EXPECT_EQ(line(out, "  weights"), "4MiB");
  EXPECT_EQ(line(out, "  forward/layer3"), "4MiB");
  EXPECT_EQ(line(out, "  backward"), "1MiB");
}

TEST(Examples, PreallocationGivesPyTorchsBytes) {
  const std::string out = output_of("preallocation");
  EXPECT_EQ(line(out, "max_split_size_mb:512, operations"),
            "allocated 45,555,200 reserved 54,525,952");
  EXPECT_EQ(line(out, "dummy tensor of 10 GiB"),
            "allocated 10,737,418,240 reserved 10,737,418,240");
  EXPECT_EQ(line(out, "operations"), "allocated 10,782,973,440 reserved 10,791,944,192");
  EXPECT_EQ(line(out, "dummy freed"), "allocated 45,555,200 reserved 10,791,944,192");
}

TEST(Examples, PreallocationReservesTheRest) {
  const std::string out = output_of("preallocation");
  EXPECT_EQ(line(out, "reserve()"), "allocated 0 reserved 12,884,901,888");
  EXPECT_EQ(line(out, "operations, out of what is reserved"),
            "allocated 45,555,200 reserved 12,884,901,888");
  EXPECT_THAT(out, HasSubstr("the device was asked 0 times more\n"));
  EXPECT_EQ(line(out, "empty_cache()"), "allocated 0 reserved 0");
}

TEST(Examples, SeveralDevicesAndTheWrongOne) {
  const std::string out = output_of("several_devices");
  EXPECT_EQ(line(out, "10 GiB after set_device(1)"),
            "current meta:1 meta:0 allocated 0 meta:1 allocated 10,737,418,240");
  EXPECT_EQ(line(out, "set_device forgotten"),
            "current meta:0 meta:0 allocated 10,737,418,240 meta:1 allocated 0");
  EXPECT_THAT(out, HasSubstr("out of memory on meta:0, which has 2GiB free; meta:1 has 12GiB\n"));
  EXPECT_EQ(line(out, "allocator(1)"),
            "current meta:0 meta:0 allocated 10,737,418,240 meta:1 allocated 10,737,418,240");
  EXPECT_THAT(out, HasSubstr("set_device(2): meta:2 does not exist: there are two meta devices"));
}

TEST(Examples, FreeingGivesPyTorchsBytes) {
  const std::string out = output_of("freeing");
  const std::string one_of_two = "allocated 4,294,967,296 reserved 8,589,934,592";
  const std::string two = "allocated 8,589,934,592 reserved 8,589,934,592";
  EXPECT_EQ(line(out, "x, y = x.sin()"), two);
  EXPECT_EQ(line(out, "x.reset()"), one_of_two);
  EXPECT_EQ(line(out, "x = std::move(y)"), one_of_two);
  EXPECT_EQ(line(out, "y = another"), two);
  EXPECT_EQ(line(out, "x = std::move(y), over the old x"), one_of_two);
  EXPECT_EQ(line(out, "end of scope"), "allocated 0 reserved 8,589,934,592");
  EXPECT_EQ(line(out, "empty_cache()"), "allocated 0 reserved 0");
  EXPECT_EQ(line(out, "empty_cache() while x is held"),
            "allocated 4,294,967,296 reserved 4,294,967,296");
}

TEST(Examples, CompactionServesWhatPyTorchRefuses) {
  const std::string out = output_of("compaction");
  EXPECT_THAT(out, HasSubstr("pytorch   96MiB in use, 160MiB free; 96MiB: refused\n"));
  EXPECT_THAT(out,
              HasSubstr("fragmentation: the request needs 96MiB; the device has 16MiB free and "
                        "144MiB is cached"));
  EXPECT_THAT(out, HasSubstr("paged     96MiB in use, 160MiB free; 96MiB: served, reserved "));
  EXPECT_THAT(out, HasSubstr("MiB of 256MiB, 12 of 12 pieces whole\n"));
}

TEST(Examples, FragmentationIsShownAndMitigated) {
  const std::string out = output_of("fragmentation");
  EXPECT_THAT(out, HasSubstr("active.all.current = 2\n  4MiB at 56MiB of a segment of 120MiB\n"));
  EXPECT_THAT(line(out, "defaults"),
              HasSubstr("fragmentation: the request needs 128MiB; the device has 16MiB free"));
  for (const char* what : {"in four pieces",
                           "max_split_size_mb:64",
                           "expandable_segments:True",
                           "empty_cache() in between"}) {
    EXPECT_THAT(line(out, what), MatchesRegex("fits, reserved [0-9]+MiB")) << what;
  }
}

TEST(Examples, QuickCheckAnswersTheQuestion) {
  const std::string out = output_of("quick_check");
  EXPECT_EQ(line(out, "tensor freed"), "allocated 0 reserved 67,108,864 device used 67,108,864");
  EXPECT_THAT(out, HasSubstr("the answer is b: 64MiB are cached\n"));
  EXPECT_EQ(line(out, "empty_cache()"), "allocated 0 reserved 0 device used 0");
}

TEST(Examples, FractionLimitSaysWhatToRaiseItTo) {
  const std::string out = output_of("fraction_limit");
  EXPECT_THAT(out, HasSubstr("reserved 60GiB of a limit of 64GiB, in pages of 4MiB\n"));
  EXPECT_THAT(out, HasSubstr("raise the limit of 64GiB to at least 70GiB"));
  EXPECT_THAT(out, HasSubstr("without the limit: allocated 70GiB\n"));
  EXPECT_THAT(out, HasSubstr("must be from 0 to 1, not 1.5"));
}

// The bytes of x, y and of freeing x are PyTorch's.
TEST(Examples, TensorLifetimesEndWithTheirScope) {
  const std::string out = output_of("tensor_lifetimes");
  EXPECT_EQ(line(out, "x = randn(1024, 1024)"), "allocated 4,194,304 reserved 20,971,520");
  EXPECT_EQ(line(out, "y = x * 2"), "allocated 8,388,608 reserved 20,971,520");
  EXPECT_EQ(line(out, "del x"), "allocated 4,194,304 reserved 20,971,520");
  EXPECT_THAT(out, HasSubstr("\nmatmul: inner sizes differ: [2048, 2048] x [1024, 1024]\n"));
  EXPECT_EQ(line(out, "after the error"), "allocated 20,971,520 reserved 20,971,520");
  EXPECT_EQ(line(out, "x = randn(1024, 1024, 1024), y"),
            "allocated 8,589,934,592 reserved 8,610,906,112");
  EXPECT_EQ(line(out, "empty_cache()"), "allocated 0 reserved 0");
}

TEST(Examples, GradientAccumulationTakesHardlyMore) {
  EXPECT_EQ(output_of("gradient_accumulation"),
            "1 batches of 64   peak  1,083,904   loss 0.0040\n"
            "4 batches of 64   peak  1,085,440   loss 0.0040\n"
            "1 batches of 256  peak  4,230,656   loss 0.0040\n");
}

TEST(Examples, NoGradSavesTheActivations) {
  const std::string out = output_of("no_grad");
  EXPECT_EQ(line(out, "model and input"), "allocated 5,065,216");
  EXPECT_EQ(line(out, "output, with its history"), "allocated 6,099,456");
  EXPECT_EQ(line(out, "output, under no_grad"), "allocated 5,075,456");
  EXPECT_EQ(line(out, "output, in inference mode"), "allocated 5,075,456");
  EXPECT_THAT(out, HasSubstr("was made in inference mode and cannot be saved for backward"));
  EXPECT_EQ(line(out, "ten batches later: gradients more"), "allocated 9,106,432");
  EXPECT_THAT(out, HasSubstr("Training completed with optimized data loading.\n"));
}

TEST(Examples, InPlaceIsRefusedWhereItMatters) {
  const std::string out = output_of("in_place");
  EXPECT_EQ(line(out, "x.add_, x.relu_, x.mul_"), "allocated 4,194,304");
  EXPECT_THAT(line(out, "a leaf"), HasSubstr("is a leaf that needs a gradient"));
  EXPECT_EQ(line(out, "a leaf, under no_grad"), "is fine");
  EXPECT_THAT(line(out, "what square saved"),
              HasSubstr("square saved f32[3] at version 0, but add_ has since made it version 1"));
  EXPECT_EQ(line(out, "relu's input"), "is fine");
  EXPECT_EQ(line(out, "a row"), "is fine");
  EXPECT_THAT(out, HasSubstr("w.grad = tensor([3., 3., 3.])\n"));
}

TEST(Examples, TrainingMemoryAddsUp) {
  const std::string out = output_of("training_memory");
  EXPECT_EQ(line(out, "After forward:"), "30.5 MB");
  EXPECT_EQ(line(out, "After backward:"), "51.6 MB");
  EXPECT_EQ(line(out, "Peak memory:"), "53.7 MB");
  EXPECT_EQ(line(out, "  gradient"), "25.3 MB");
  EXPECT_EQ(line(out, "total += loss"), "21.0 MB kept after 4 steps");
  EXPECT_THAT(out, HasSubstr("total += loss.detach()    0.0 MB kept after 4 steps\n"));
}

// PyTorch's peaks without its workspaces (66 MiB): 84.8 twice, 2190.6, 917.6, 7118.3 and 2898.8.
TEST(Examples, CheckpointingSavesWhereActivationsAreMost) {
  EXPECT_EQ(output_of("checkpointing"),
            "DeepNet(512, 20), batch 128\n"
            "Checkpoint=false  kept by forward   15.7 MB   peak=84.8 MB\n"
            "Checkpoint=true   kept by forward    5.2 MB   peak=84.8 MB\n"
            "DeepNet(512, 20), batch 16384\n"
            "Checkpoint=false  kept by forward 2013.3 MB   peak=2123.5 MB\n"
            "Checkpoint=true   kept by forward  671.1 MB   peak=850.5 MB\n"
            "DeepNet(1024, 64), batch 8192\n"
            "Checkpoint=false  kept by forward 6442.5 MB   peak=7051.2 MB\n"
            "Checkpoint=true   kept by forward 2147.5 MB   peak=2831.7 MB\n");
}

TEST(Examples, MixedPrecisionSavesAtALargeBatchAndCostsAtASmallOne) {
  const std::string out = output_of("mixed_precision");
  EXPECT_EQ(line(out, "batch   128  f32"), "forward keeps 14.75MiB peak 80.66MiB");
  EXPECT_EQ(line(out, "batch   128  bf16"), "forward keeps 27MiB peak 81.66MiB");
  EXPECT_EQ(line(out, "batch 16384  f32"), "forward keeps 1.84GiB peak 1.95GiB");
  EXPECT_EQ(line(out, "batch 16384  bf16"), "forward keeps 979.5MiB peak 1.12GiB");
  EXPECT_THAT(line(out, "f16 with a scaler"), MatchesRegex("loss 2.16[67].* 2.16[56].* 2.164.*"));
}

TEST(Examples, OutOfMemoryIsReportedAndEachFixMeasured) {
  const std::string out = output_of("out_of_memory");
  EXPECT_THAT(line(out, "2. the peak, without a limit"),
              HasSubstr("peak allocated 47.08MiB, reserved 50MiB"));
  EXPECT_EQ(line(out, "3. with a limit"), "out of memory");
  EXPECT_THAT(out, HasSubstr("  live: activations  "));
  EXPECT_EQ(line(out, "   fix 1: empty the cache"), "out of memory");
  for (const auto& [fix, peak] : {std::pair("2: checkpoint", "29.08MiB, reserved 34MiB"),
                                  std::pair("3: mixed precision", "38.83MiB, reserved 44MiB"),
                                  std::pair("4: accumulate", "21.78MiB, reserved 26MiB")}) {
    EXPECT_THAT(line(out, std::string("   fix ") + fix),
                HasSubstr(std::string("peak allocated ") + peak + ", loss 1.25"));
  }
}

TEST(Examples, TrainingLoopPrintsWhatItsScriptPrints) {
  const std::string out = output_of("training_loop");
  EXPECT_THAT(line(out, "Initial"), HasSubstr("allocated 0.05 MB cached 2.00 MB"));
  EXPECT_THAT(line(out, "After forward pass"), HasSubstr("allocated 0.06 MB cached 2.00 MB"));
  EXPECT_THAT(line(out, "After backward and step"), HasSubstr("allocated 0.10 MB cached 2.00 MB"));
  EXPECT_THAT(line(out, "After second iteration"), HasSubstr("allocated 0.13 MB cached 2.00 MB"));
  EXPECT_THAT(line(out, "After empty_cache"), HasSubstr("allocated 0.13 MB cached 2.00 MB"));
}

TEST(Examples, MemoryManagementIsTheChapterInItsOrder) {
  const std::string out = output_of("memory_management");
  std::size_t from = 0;
  for (const char* text : {"dropped:            allocated       0B   reserved    20MiB",
                           "allocated 8MiB of 20MiB reserved, largest cached block 8MiB",
                           "7 events",
                           "x.add_(1).relu_().mul_(0.99): 0B more",
                           "is a leaf that needs a gradient",
                           "n = 100: k = 10,  20 activations instead of 100",
                           "2181.4 MB estimated, 2207.5 MB measured (-1.2 %)",
                           "After forward: 30.5 MB",
                           "Peak memory: 53.7 MB",
                           "Checkpoint=true: peak=84.8 MB",
                           "Checkpoint=true: peak=850.5 MB",
                           "a sample 8.192 MB, a batch of 128 1.05 GB"}) {
    const std::size_t at = out.find(text, from);
    EXPECT_NE(at, std::string::npos) << text << " is not there, or not in its place, in" << out;
    from = at;
  }
}

TEST(Examples, DataLoadingShowsThatEmptyingTheCacheGainsNothing) {
  const std::string out = output_of("data_loading");
  EXPECT_EQ(line(out, "  without empty_cache()"), "peak 6,999,040, 3 pages asked of the device");
  EXPECT_EQ(line(out, "  with"), "peak 6,999,040, 116 pages asked of the device");
  EXPECT_THAT(out, HasSubstr("Training completed with optimized data loading.\n"));
  EXPECT_THAT(output_of("data_loading", {"--times"}), HasSubstr(" ms a batch\n"));
}

TEST(Examples, LossLeakSaysByHowManyBytesAStep) {
  const std::string out = output_of("loss_leak");
  const std::string flat = "0 in 1000 steps, 0 a step";
  EXPECT_EQ(line(out, "training, total += loss.item()"), flat);
  EXPECT_EQ(line(out, "training, total = total + loss"), flat);
  EXPECT_EQ(line(out, "training, losses.push_back(loss)"), "512,000 in 1000 steps, 512 a step");
  EXPECT_EQ(line(out, "evaluation, total += loss.item()"), flat);
  EXPECT_EQ(line(out, "evaluation, total = total + loss"),
            "16,384,000 in 1000 steps, 16,384 a step");
  EXPECT_EQ(line(out, "the same with loss.detach()"), flat);
  EXPECT_EQ(line(out, "the same under no_grad"), flat);
}

TEST(Examples, ModelParallelFitsTwoDevicesAndNotOne) {
  const std::string out = output_of("model_parallel");
  EXPECT_THAT(out, HasSubstr("on one device: shortage: the request needs 4MiB; the limit leaves"));
  EXPECT_EQ(line(out, "on two"), "cpu:0 8.01MiB, peak 8.01MiB cpu:1 8.01MiB, peak 8.01MiB");
  EXPECT_EQ(line(out, "after backward"),
            "cpu:0 16.27MiB, peak 16.52MiB cpu:1 16.02MiB, peak 16.77MiB");
  EXPECT_EQ(line(out, "after the step"),
            "cpu:0 8.01MiB, peak 16.52MiB cpu:1 8.01MiB, peak 16.77MiB");
}

TEST(Examples, TheGuideRuns) {
  const std::string out = output_of("guide");
  EXPECT_THAT(
      out,
      HasSubstr("weights[0] = 0.5\nshortage: the request needs 100GiB; the device has 80GiB free"));
  EXPECT_THAT(out, HasSubstr("limit 40GiB\nawake 128MiB\npending 0B\n"));
  EXPECT_THAT(out, HasSubstr("step/layer3 16MiB\npeak 16MiB\nmemory of cpu:0\n"));
  EXPECT_THAT(out, HasSubstr("segments taken: 1\n"));
}

// tools/check_docs.py holds the guides to these programs.
TEST(Examples, TheGuidesToRecordingsRun) {
  const headroom::testing::TempFolder folder;
  EXPECT_EQ(output_of("guide_recordings", {folder.path().string()}),
            "4 events of an allocator of our own\n4MiB  unknown\n");
  for (const char* name : {"run.pickle.zst", "run.hrt", "all.hrt", "last.hrt"}) {
    EXPECT_TRUE(std::filesystem::exists(folder.path().string() + "/" + name)) << name;
  }
}

TEST(Examples, PlanAndTrainStaysWithinItsPlan) {
  const std::string out = output_of("plan_and_train");
  const std::string planned = out.substr(out.find("planned ") + 8);
  EXPECT_THAT(planned, EndsWith(", reserved " + planned.substr(0, planned.find(',')) + "\n"));
}

TEST(Examples, TheGuidesToTrainingRun) {
  const headroom::testing::TempFolder folder;
  const std::string out = output_of("guide_training", {folder.path().string()});
  EXPECT_THAT(out, HasSubstr("gradient of 512 elements\nbatch of 50176 and 64\n"));
  EXPECT_THAT(out, HasSubstr("17.58GiB in backward: fits\nlargest batch 22\nloss "));
  EXPECT_TRUE(std::filesystem::exists(folder.path().string() + "/mlp.safetensors"));
}

#ifdef HEADROOM_HAS_C_EXAMPLE
TEST(Examples, TheAllocatorServesC) {
  EXPECT_EQ(output_of("c_abi"), "peak allocated 1048576 bytes\n");
}
#endif

TEST(Examples, AreAllListedInTheirReadme) {
  const std::filesystem::path folder = HEADROOM_SOURCE_DIR "/examples";
  const std::string readme = text_of("examples/README.md");
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() != ".cpp") continue;
    EXPECT_THAT(readme, HasSubstr("(" + name + ")"));
  }
}

// What is asked for is what the shapes say, with 2 KiB of single numbers; what is reserved, the
// total.
TEST(Examples, MassiveMimoStaysWithinItsComputedNeed) {
  const std::string out = output_of("massive_mimo", {"1.01", "2"});
  EXPECT_EQ(line(out, "  total"), "52,428,800");
  EXPECT_EQ(line(out, "  asked for at the peak"), "49,666,048");
  EXPECT_EQ(line(out, "  reserved at the peak"), "52,428,800");
  std::vector<double> errors;
  std::istringstream lines(out);
  for (std::string text; std::getline(lines, text);) {
    const std::size_t at = text.find("bit error rate ");
    if (at == std::string::npos) continue;
    errors.push_back(std::stod(text.substr(at + 15)));
    EXPECT_THAT(text, HasSubstr("reserved 52,428,800")) << "grew";
  }
  ASSERT_EQ(errors.size(), 3U);
  EXPECT_LT(errors[0], 0.2);
  EXPECT_LT(errors[1], errors[0] / 2);
  EXPECT_LT(errors[2], errors[1] / 5);
}

TEST(Examples, MassiveMimoIsRefusedWithTheAccountBelowIt) {
  const auto done = testing::run_process(
      {.program = HEADROOM_EXAMPLES_DIR "/example_massive_mimo", .arguments = {"0.95", "2"}});
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_THAT(done.out, HasSubstr("refused: out of memory"));
  EXPECT_THAT(done.out, HasSubstr("memory of cpu:0"));
  EXPECT_THAT(done.out, HasSubstr("raise the limit of 47.5MiB to at least 48MiB"));
}

}  // namespace
}  // namespace headroom
