// `headroom convert` and `headroom info` from outside, on a real snapshot.
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "headroom/trace/file.h"

#include "tests/support/process.h"
#include "tests/support/temp_folder.h"
#include "tests/trace/samples.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using headroom::testing::ProcessResult;

class Convert : public ::testing::Test {
 protected:
  void SetUp() override {
    snapshot_ = path("step.pickle");
    ASSERT_TRUE(trace::write_trace(trace::testing::small_trace(), snapshot_).has_value());
  }

  [[nodiscard]] std::string path(const std::string& name) const { return folder_.path(name); }

  static ProcessResult run(std::vector<std::string> arguments) {
    return headroom::testing::run_process({.program = HEADROOM_BINARY,
                                           .arguments = std::move(arguments),
                                           .environment = {{"HEADROOM_CALLED_AS", "headroom"}}});
  }

  static void write(const std::string& path, std::string_view text) {
    std::ofstream(path, std::ios::binary) << text;
  }
  static std::string read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    std::stringstream out;
    out << in.rdbuf();
    return out.str();
  }

  // One line on standard error, nothing on standard output.
  static void expect_complaint(const ProcessResult& done, int exit_code, const std::string& part) {
    EXPECT_EQ(done.exit_code, exit_code) << done.err;
    EXPECT_EQ(done.out, "");
    EXPECT_THAT(done.err, StartsWith("headroom: "));
    EXPECT_EQ(done.err.find('\n'), done.err.size() - 1) << done.err;
    EXPECT_THAT(done.err, HasSubstr(part));
  }

  headroom::testing::TempFolder folder_{};
  std::string snapshot_;
};

TEST_F(Convert, WritesEachExportAndSaysWhereToOpenIt) {
  const ProcessResult perfetto = run({"convert", snapshot_, path("a.perfetto.json")});
  EXPECT_EQ(perfetto.exit_code, 0) << perfetto.err;
  EXPECT_THAT(perfetto.out, HasSubstr("https://ui.perfetto.dev"));
  EXPECT_THAT(perfetto.out, HasSubstr("Next: headroom info "));
  EXPECT_TRUE(nlohmann::json::accept(read(path("a.perfetto.json"))));
  EXPECT_EQ(run({"convert", snapshot_, path("a.speedscope.json")}).exit_code, 0);
  EXPECT_TRUE(nlohmann::json::accept(read(path("a.speedscope.json"))));
  EXPECT_EQ(run({"convert", snapshot_, path("a.csv")}).exit_code, 0);
  EXPECT_THAT(read(path("a.csv")),
              StartsWith("device,action,addr,size,stream,time_us,category,site,"));
}

TEST_F(Convert, ShowsAnyMomentByStack) {
  ASSERT_EQ(run({"convert", snapshot_, path("a.speedscope.json"), "--at", "2"}).exit_code, 0);
  const auto file = nlohmann::json::parse(read(path("a.speedscope.json")));
  EXPECT_EQ(file["profiles"][0]["endValue"], 16 << 20);
  expect_complaint(run({"convert", snapshot_, path("b.csv"), "--at", "2"}), 2, "--at is only for");
  expect_complaint(
      run({"convert", snapshot_, path("b.speedscope.json"), "--at", "noon"}), 2, "write peak");
}

TEST_F(Convert, AnswersInJson) {
  const ProcessResult done = run({"convert", snapshot_, path("a.csv"), "--json"});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  const auto json = nlohmann::json::parse(done.out);
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["command"], "convert");
  EXPECT_EQ(json["input"]["format"], "pickle");
  EXPECT_EQ(json["output"]["format"], "csv");
  EXPECT_EQ(json["output"]["bytes"], fs::file_size(path("a.csv")));
  EXPECT_EQ(json["events"], 30);
}

TEST_F(Convert, OverwritesOnlyWhenForced) {
  write(path("a.csv"), "precious");
  expect_complaint(run({"convert", snapshot_, path("a.csv")}), 1, "--force overwrites it");
  EXPECT_EQ(read(path("a.csv")), "precious");
  EXPECT_EQ(run({"convert", snapshot_, path("a.csv"), "--force"}).exit_code, 0);
  EXPECT_NE(read(path("a.csv")), "precious");
}

TEST_F(Convert, RefusesToWriteOverItsInput) {
  const std::string before = read(snapshot_);
  expect_complaint(run({"convert", snapshot_, snapshot_, "--force"}), 1, "the same file");
  fs::create_symlink(snapshot_, path("link.pickle"));
  expect_complaint(run({"convert", snapshot_, path("link.pickle"), "--force"}), 1, "the same file");
  EXPECT_EQ(read(snapshot_), before);
}

TEST_F(Convert, ListsTheEndingsItKnows) {
  expect_complaint(run({"convert", snapshot_, path("a.xlsx")}), 2, ".perfetto.json");
  expect_complaint(run({"convert", snapshot_, path("plain")}), 2, ".speedscope.json");
}

TEST_F(Convert, SaysWhereItCannotWrite) {
  expect_complaint(run({"convert", snapshot_, path("no/such/a.csv")}), 1, "no/such/a.csv");
}

TEST_F(Convert, ReadsBackWhatItWrote) {
  ASSERT_EQ(run({"convert", snapshot_, path("b.pickle.zst")}).exit_code, 0);
  const auto first = nlohmann::json::parse(run({"info", snapshot_, "--json"}).out);
  const auto second = nlohmann::json::parse(run({"info", path("b.pickle.zst"), "--json"}).out);
  EXPECT_EQ(first["per_device"], second["per_device"]);
  EXPECT_EQ(second["is_packed"], true);
  EXPECT_EQ(first["peak_allocated"], 60 << 20);
}

TEST_F(Convert, BadInputIsOneLine) {
  for (const char* command : {"info", "convert"}) {
    const auto ask = [&](const std::string& input) {
      return std::string(command) == "info" ? run({"info", input})
                                            : run({"convert", input, path("out.csv")});
    };
    expect_complaint(ask(path("missing.pickle")), 1, "missing.pickle");
    expect_complaint(ask(folder_.path().string()), 1, "directory");
    write(path("empty.pickle"), "");
    expect_complaint(ask(path("empty.pickle")), 1, "empty");
    write(path("text.pickle"), "hello, this is no recording\n");
    expect_complaint(ask(path("text.pickle")), 1, "text.pickle");
    const std::string whole = read(snapshot_);
    write(path("cut.pickle"), whole.substr(0, whole.size() / 2));
    expect_complaint(ask(path("cut.pickle")), 1, "cut.pickle");
    // A string of 2^62 bytes, in a file of a few.
    write(path("huge.pickle"), std::string("\x80\x04\x8d\0\0\0\0\0\0\0\x40", 11));
    expect_complaint(ask(path("huge.pickle")), 1, "huge.pickle");
    write(path("future.pickle"), "\x80\x63.");
    expect_complaint(ask(path("future.pickle")), 1, "future.pickle");
    EXPECT_FALSE(fs::exists(path("out.csv")));
  }
}

TEST_F(Convert, WrongUsageIsTwo) {
  expect_complaint(run({"info"}), 2, "");
  expect_complaint(run({"convert", snapshot_}), 2, "");
  expect_complaint(run({"info", snapshot_, "--device", "cuda:7"}), 2, "only of cuda:0");
  expect_complaint(run({"info", snapshot_, "--top", "-1"}), 2, "--top");
}

}  // namespace
}  // namespace headroom::cli
