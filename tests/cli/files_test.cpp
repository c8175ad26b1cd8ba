// The files that commands read and write, when something is wrong with them (#21): one line,
// nothing read without end, nothing destroyed, nothing left behind.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/trace/file.h"

#include "tests/support/process.h"
#include "tests/support/sanitized.h"
#include "tests/support/temp_folder.h"
#include "tests/trace/pickle/pickle_text.h"
#include "tests/trace/samples.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;
using headroom::testing::ProcessResult;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class CommandFiles : public ::testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const { return folder_.path(name); }
  // `headroom ARGUMENTS` in that folder, after `before` ("ulimit -f 1;").
  [[nodiscard]] ProcessResult headroom(const std::string& arguments,
                                       const std::string& before = "") const {
    return headroom::testing::run_process(
        {.program = "/bin/sh",
         .arguments = {"-c",
                       "cd \"$1\"; " + before + " \"$0\" " + arguments,
                       HEADROOM_BINARY,
                       folder_.path().string()},
         .environment = {{"HEADROOM_CALLED_AS", "headroom"}}});
  }
  void put(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
  }
  [[nodiscard]] std::string get(const std::string& name) const {
    std::stringstream out;
    out << std::ifstream(path(name), std::ios::binary).rdbuf();
    return out.str();
  }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      out.push_back(entry.path().filename().string());
    }
    std::ranges::sort(out);
    return out;
  }
  void put_snapshot(const std::string& name) const {
    ASSERT_TRUE(trace::write_trace(trace::testing::small_trace(), path(name)).has_value());
  }
  static void expect_one_line(const ProcessResult& done, const std::string& part, int code = 1) {
    EXPECT_EQ(done.exit_code, code) << done.err;
    EXPECT_EQ(done.out, "");
    EXPECT_THAT(done.err, StartsWith("headroom: "));
    EXPECT_EQ(done.err.find('\n'), done.err.size() - 1) << done.err;
    EXPECT_THAT(done.err, HasSubstr(part));
  }

  headroom::testing::TempFolder folder_{};
};

TEST_F(CommandFiles, ADeviceIsNotRead) {
  for (const char* command : {"info", "doctor", "replay", "tune", "compare"}) {
    expect_one_line(headroom(std::string(command) + " /dev/zero"), "it is a device");
  }
  expect_one_line(headroom("convert /dev/zero out.hrt"), "it is a device");
  expect_one_line(headroom("train gpt2-tiny --steps 1 --data /dev/zero"), "it is a device");
  EXPECT_TRUE(names().empty());
}

TEST_F(CommandFiles, AFolderIsCalledOne) {
  expect_one_line(headroom("train gpt2-tiny --steps 1 --data ."), ".: it is a directory");
  expect_one_line(headroom("train mlp --steps 1 --data ."), ".: it is a directory");
  expect_one_line(headroom("info ."), ".: it is a directory");
  expect_one_line(headroom("."), "'.' is a directory", 2);
}

TEST_F(CommandFiles, WhatIsNoRecordingNamesWhatReadsIt) {
  put("log.txt",
      "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has "
      "a "
      "total capacity of 23.65 GiB of which 1.00 GiB is free.\n");
  put("other.txt", "nothing of the kind\n");
  for (const char* command : {"info", "replay", "tune", "compare"}) {
    expect_one_line(headroom(std::string(command) + " log.txt"), "'headroom doctor log.txt'");
    expect_one_line(headroom(std::string(command) + " other.txt"), "it is a text");
  }
  expect_one_line(headroom("info -", "cat log.txt |"), "name its file, or /dev/stdin");
  expect_one_line(headroom("train mlp --steps 1 --data nofile"), "nofile: it cannot be opened");
  expect_one_line(headroom("train mlp --steps 1 --data log.txt"), "its name has no 'images'");
}

TEST_F(CommandFiles, APipeWithoutEndIsLeftAfterItsFirstBytes) {
  expect_one_line(headroom("info /dev/stdin", "yes |"), "it is a text");
  expect_one_line(headroom("info /dev/stdin", "cat /dev/zero |"), "is it a recording?");
}

TEST_F(CommandFiles, ARecordingMayComeThroughAPipe) {
  put_snapshot("a.pickle");
  const ProcessResult done = headroom("info /dev/stdin", "cat a.pickle |");
  EXPECT_EQ(done.exit_code, 0) << done.err;
}

TEST_F(CommandFiles, AFullDiskLeavesTheOldPage) {
  put("page.html", "the old page");
  expect_one_line(headroom("plan mlp -o page.html --force", "ulimit -f 1;"), "File too large");
  EXPECT_EQ(get("page.html"), "the old page");
  EXPECT_THAT(names(), ElementsAre("page.html"));
}

TEST_F(CommandFiles, AFileSizeLimitLeavesNothingBehind) {
  put_snapshot("a.pickle");
  for (const char* out : {"b.pickle", "b.hrt", "b.perfetto.json", "b.csv", "b.hrt.zst"}) {
    expect_one_line(headroom("convert a.pickle " + std::string(out), "ulimit -f 0;"),
                    "File too large");
    EXPECT_THAT(names(), ElementsAre("a.pickle"));
  }
  put("b.csv", "the old one");
  expect_one_line(headroom("convert a.pickle b.csv --force", "ulimit -f 0;"), "File too large");
  EXPECT_EQ(get("b.csv"), "the old one");
  EXPECT_THAT(names(), ElementsAre("a.pickle", "b.csv"));
}

TEST_F(CommandFiles, ALinkThatLeadsNowhereIsTaken) {
  put_snapshot("a.pickle");
  fs::create_symlink("there.hrt", path("link.hrt"));
  expect_one_line(headroom("convert a.pickle link.hrt"), "is a link that leads to no file");
  EXPECT_TRUE(fs::is_symlink(path("link.hrt")));
  EXPECT_FALSE(fs::exists(path("there.hrt")));
  EXPECT_EQ(headroom("convert a.pickle link.hrt --force").exit_code, 0);
  EXPECT_TRUE(fs::is_symlink(path("link.hrt"))) << "and stays one";
  EXPECT_TRUE(fs::is_regular_file(path("there.hrt")));
}

TEST_F(CommandFiles, NoCommandOverwritesUnasked) {
  put_snapshot("a.pickle");
  put("old", "precious");
  for (const char* command :
       {"replay a.pickle --policy paged -o old", "plan mlp -o old", "compare a.pickle -o old"}) {
    expect_one_line(headroom(command), "'old' exists; --force overwrites it");
    EXPECT_EQ(get("old"), "precious");
  }
}

TEST_F(CommandFiles, APageHasTheEndingOfAPage) {  // #22
  for (const char* name : {"x.txt", "page", "page.html.json", ".html"}) {
    const ProcessResult done = headroom(std::string("plan mlp -o ") + name);
    expect_one_line(done, "does not end in .html; name it ", 2);
  }
  EXPECT_THAT(names(), IsEmpty());
  EXPECT_EQ(headroom("plan mlp -o page.html").exit_code, 0);
  EXPECT_THAT(headroom("plan mlp -o /dev/stdout").out, HasSubstr("</html>"));
}

TEST_F(CommandFiles, DevicesWithoutEventsCostNothing) {
  using namespace trace::testing;  // NOLINT(google-build-using-namespace): pickles by hand
  const std::string event = dict("action", str("alloc"), "addr", "K\x01", "size", "K\x01");
  put("empty.pickle",
      pickle(
          dict("segments", list(), "device_traces", list(list(event), std::string(60'000, ']')))));
  for (const char* command : {"info", "doctor", "replay", "tune"}) {
    const ProcessResult done = headroom(std::string(command) + " empty.pickle --json");
    EXPECT_LT(done.exit_code, 4) << done.err;
    EXPECT_LT(done.out.size(), 100'000U) << command << " speaks of one device";
  }
  // One history, for all of them.
  put("many.pickle",
      raw("\x80\x04") + list(event) + raw("q\x00") + "0" +
          dict("segments",
               list(),
               "device_traces",
               [] {
                 std::string all = "](";
                 for (int i = 0; i < 60'000; ++i) all += raw("h\x00");
                 return all + "e";
               }()) +
          ".");
  for (const char* command : {"info", "doctor", "replay", "tune"}) {
    expect_one_line(headroom(std::string(command) + " many.pickle"),
                    "the snapshot has 60,000 devices, and a process has 256 at most");
  }
}

// Three hundred stacks do not fit into 2 GB: the loader waited for workers that were not there.
TEST_F(CommandFiles, WorkersThatCannotBeStartedAreSaid) {
  if (testing::kIsSanitized) GTEST_SKIP() << "a sanitizer needs more memory than that";
  expect_one_line(headroom("train gpt2-tiny --steps 2 --workers 300",
                           // OpenBLAS takes memory for a thread per core before the command begins.
                           "export OPENBLAS_NUM_THREADS=1; ulimit -s 8192; ulimit -d 2000000;"),
                  "of 300 workers could be started");
}

}  // namespace
}  // namespace headroom::cli
