// The point of replay: on a recording of PyTorch every allocation lands on the recorded address,
// and the peaks are PyTorch's. HEADROOM_RECORDINGS names a folder with more of them.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/replay/infer_empty_caches.h"
#include "headroom/replay/verify.h"
#include "headroom/trace/file.h"

#include "tests/trace/samples.h"

namespace headroom::replay {
namespace {

using trace::testing::recording;
using trace::testing::recording_names;
using trace::testing::trace_of;

void expect_exact(const trace::Trace& trace, const trace::DeviceTrace& device) {
  const Program program = compile_with_empty_caches(trace, device);
  const Verification v = verify(program);
  EXPECT_EQ(v.address_mismatches, 0U);
  EXPECT_EQ(v.segment_mismatches, 0U);
  EXPECT_TRUE(v.has_same_end);
  EXPECT_EQ(program.anomalies.total(), 0U);
  if (v.first) {
    ADD_FAILURE() << "event " << v.first->event << ": " << v.first->recorded << ", but we did "
                  << v.first->ours;
  }
}

class Recordings : public ::testing::TestWithParam<std::string> {};

TEST_P(Recordings, VerifyToTheByte) {
  const trace::Trace trace = trace_of(recording(GetParam()));
  expect_exact(trace, trace.devices[0]);
}

INSTANTIATE_TEST_SUITE_P(Kept,
                         Recordings,
                         ::testing::ValuesIn(recording_names()),
                         [](const auto& test) { return test.param; });

// What PyTorch itself counted.
TEST(RecordedPeaks, ArePyTorchs) {
  struct Peaks {
    std::uint64_t allocated;
    std::uint64_t reserved;
  };
  const std::map<std::string, Peaks> all{{"resnet50", {3'077'896'704, 3'684'696'064}},
                                         {"gpt2_varlen", {12'985'996'800, 21'109'932'032}},
                                         {"gnn_sampled", {9'328'110'080, 16'334'716'928}},
                                         {"llama_serve", {4'900'414'976, 7'342'129'152}},
                                         {"seed_deepnet", {279'592'960, 283'115'520}},
                                         {"streams", {301'989'888, 778'043'392}},
                                         {"streams_expandable", {301'400'064, 379'584'512}}};
  for (const auto& [name, peaks] : all) {
    const trace::Trace trace = trace_of(recording(name));
    const Verification v = verify(compile_with_empty_caches(trace, trace.devices[0]));
    EXPECT_EQ(v.result.peak_allocated, peaks.allocated) << name;
    EXPECT_EQ(v.result.peak_reserved, peaks.reserved) << name;
  }
}

// The comparison must be able to fail.
TEST(Verify, NoticesAnotherVersionsDecisionsAndExplainsTheFirst) {
  const trace::Trace trace = trace_of(recording("gpt2_varlen"));
  const Program program = compile_with_empty_caches(trace, trace.devices[0]);
  const Verification v = verify(program, {.version = memory::kPyTorch213});
  EXPECT_GT(v.address_mismatches, 0U);
  ASSERT_TRUE(v.first);
  EXPECT_NE(v.first->recorded.find("alloc of"), std::string::npos);
  EXPECT_NE(v.first->ours.find("placed at"), std::string::npos);
  EXPECT_GE(v.first->free_blocks.size(), 2U);
}

TEST(Verify, NoticesAnotherLimit) {
  const trace::Trace trace = trace_of(recording("resnet50_gc_tight"));
  const Program program = compile_with_empty_caches(trace, trace.devices[0]);
  EXPECT_GT(verify(program, {.card_bytes = 80'000'000'000}).segment_mismatches, 0U);
  const Verification v = verify(program);
  EXPECT_TRUE(v.is_exact());
  EXPECT_EQ(v.card_bytes, kDefaultCardBytes);
}

std::vector<std::string> snapshots_in(const char* folder) {
  std::vector<std::string> paths;
  if (folder == nullptr) return paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string path = entry.path().string();
    if (path.find(".pickle") != std::string::npos) paths.push_back(path);
  }
  std::ranges::sort(paths);
  return paths;
}

std::string name_of(const ::testing::TestParamInfo<std::string>& test) {
  std::string name = std::filesystem::path(test.param).stem().string();
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

class Snapshots : public ::testing::TestWithParam<std::string> {};

TEST_P(Snapshots, VerifyToTheByte) {
  const auto file = trace::read_trace(GetParam());
  ASSERT_TRUE(file);
  for (const trace::DeviceTrace* device : replayable(file->trace)) {
    expect_exact(file->trace, *device);
  }
}

INSTANTIATE_TEST_SUITE_P(Kept,
                         Snapshots,
                         ::testing::ValuesIn(snapshots_in(HEADROOM_TEST_SNAPSHOTS)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Given,
                         Snapshots,
                         ::testing::ValuesIn(snapshots_in(std::getenv("HEADROOM_RECORDINGS"))),
                         name_of);

}  // namespace
}  // namespace headroom::replay
