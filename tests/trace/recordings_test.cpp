// Real recordings: read, written again, and compared in full by Python.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/trace/file.h"

#include "tests/support/process.h"

namespace headroom::trace {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> snapshots_in(const fs::path& folder) {
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const auto target = target_of(entry.path().string());
    if (target && target->format == Format::kPickle) out.push_back(entry.path());
  }
  std::ranges::sort(out);
  return out;
}

bool has_python() { return std::system("python3 -c 'import pickle' 2>/dev/null") == 0; }

void expect_round_trip(const fs::path& path) {
  const auto file = read_trace(path.string());
  ASSERT_TRUE(file) << path << ": " << to_string(file.error());
  EXPECT_GT(file->trace.event_count(), 0U) << path;
  EXPECT_EQ(file->note, "");
  const fs::path written = fs::path(::testing::TempDir()) /
                           ("headroom-round-trip-" + path.stem().stem().string() + ".pickle");
  const auto done = write_trace(file->trace, written.string(), {.overwrite = true});
  ASSERT_TRUE(done) << to_string(done.error());
  const auto compared =
      headroom::testing::run_process({.program = "/usr/bin/env",
                                      .arguments = {"python3",
                                                    HEADROOM_TEST_TRACE "/compare_snapshots.py",
                                                    path.string(),
                                                    written.string()}});
  EXPECT_EQ(compared.exit_code, 0) << path << "\n" << compared.out << compared.err;
  fs::remove(written);
}

TEST(Recordings, ComeBackAsPythonHadThem) {
  if (!has_python()) GTEST_SKIP() << "no python3 here";
  for (const fs::path& path : snapshots_in(HEADROOM_TEST_TRACE "/data")) expect_round_trip(path);
  for (const fs::path& path : snapshots_in(HEADROOM_SAMPLES)) expect_round_trip(path);
}

// HEADROOM_RECORDINGS=folder: all that are there.
TEST(Recordings, OfAFolderComeBackAsPythonHadThem) {
  const char* folder = std::getenv("HEADROOM_RECORDINGS");
  if (folder == nullptr) GTEST_SKIP() << "HEADROOM_RECORDINGS names no folder";
  if (!has_python()) GTEST_SKIP() << "no python3 here";
  const auto paths = snapshots_in(folder);
  EXPECT_FALSE(paths.empty());
  for (const fs::path& path : paths) {
    expect_round_trip(path);
    std::printf("%s comes back\n", path.filename().c_str());
  }
}

TEST(Recordings, HoldWhatPyTorchRecorded) {
  const auto file = read_trace(HEADROOM_SAMPLES "/leak_loss.pickle.zst");
  ASSERT_TRUE(file) << to_string(file.error());
  EXPECT_EQ(file->format, Format::kPickle);
  EXPECT_TRUE(file->is_packed);
  const Trace& trace = file->trace;
  ASSERT_EQ(trace.devices.size(), 1U);
  const Events& events = trace.devices[0].events;
  EXPECT_EQ(events.size(), 2276U);
  EXPECT_EQ(trace.segments.size(), 99U);
  EXPECT_EQ(trace.origin, Origin::kPyTorch);
  std::size_t allocs = 0;
  for (std::size_t i = 0; i < events.size(); ++i) allocs += events.action(i) == Action::kAlloc;
  EXPECT_EQ(allocs, 859U);
}

// Frames name the files of whoever recorded: in what is shipped, of nobody.
TEST(Recordings, OfSamplesNameNoMachine) {
  for (const fs::path& path : snapshots_in(HEADROOM_SAMPLES)) {
    const auto file = read_trace(path.string());
    ASSERT_TRUE(file) << to_string(file.error());
    const StringTable& strings = file->trace.strings;
    for (StringId id = 0; id < strings.size(); ++id) {
      EXPECT_TRUE(!strings[id].starts_with('/') || strings[id].starts_with("/home/user/"))
          << path << " names " << strings[id];
    }
  }
}

}  // namespace
}  // namespace headroom::trace
