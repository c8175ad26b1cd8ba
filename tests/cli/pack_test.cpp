// `headroom pack` from outside: a table in, offsets out, and every way to get it wrong.
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "headroom/solve/packing_file.h"
#include "headroom/solve/validate_packing.h"

#include "tests/support/json_schema.h"
#include "tests/support/process.h"
#include "tests/support/temp_folder.h"

namespace headroom::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

using headroom::testing::ProcessResult;

class Pack : public ::testing::Test {
 protected:
  void SetUp() override {
    write("problem.csv",
          "id,lower,upper,size,name\n"
          "a,0,4,1024,first\n"
          "b,2,6,2048,second\n"
          "c,5,9,1024,third\n");
  }

  static ProcessResult run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "pack");
    return headroom::testing::run_process({.program = HEADROOM_BINARY,
                                           .arguments = std::move(arguments),
                                           .environment = {{"HEADROOM_CALLED_AS", "headroom"}}});
  }

  std::string write(const std::string& name, std::string_view text) const {
    std::ofstream(folder_.path(name), std::ios::binary) << text;
    return folder_.path(name);
  }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_.path(name); }

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
};

TEST_F(Pack, SaysHowMuchMemoryIsNeeded) {
  const ProcessResult done = run({path("problem.csv")});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("3 buffers"));
  EXPECT_THAT(done.out, HasSubstr("3KiB"));
  EXPECT_THAT(done.out, HasSubstr("the packing is optimal"));
  EXPECT_THAT(done.out, HasSubstr("Next: headroom pack "));
}

TEST_F(Pack, WritesASolutionThatIsOne) {
  const std::string solution = path("solution.csv");
  const ProcessResult done = run({path("problem.csv"), "--capacity", "3KiB", "-o", solution});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("wrote "));
  const std::string text = read(solution);
  EXPECT_THAT(text, StartsWith("id,lower,upper,size,name,offset\na,0,4,1024,first,"));
  expect_complaint(run({path("problem.csv"), "-o", solution}), 1, "exists; --force overwrites it");
  EXPECT_EQ(run({solution, "-o", solution, "--force"}).exit_code, 0);
}

TEST_F(Pack, PrintsWhatTheSchemaSays) {
  std::ifstream in(HEADROOM_SOURCE_DIR "/docs/format/pack.schema.json");
  const auto schema = nlohmann::json::parse(in);
  for (const std::string capacity : {"", "3KiB", "2KiB"}) {
    std::vector<std::string> arguments{path("problem.csv"), "--json"};
    if (!capacity.empty()) arguments.insert(arguments.end(), {"--capacity", capacity});
    const ProcessResult done = run(arguments);
    const auto json = nlohmann::json::parse(done.out);
    EXPECT_THAT(headroom::testing::schema_mismatches(schema, json), IsEmpty());
    EXPECT_EQ(json["height"], 3072);
    EXPECT_EQ(json["lower_bound"], 3072);
    EXPECT_EQ(json["gap"], 0);
    EXPECT_EQ(done.exit_code, capacity == "2KiB" ? 3 : 0);
  }
}

TEST_F(Pack, ExitsWith3WhereItDoesNotFit) {
  const ProcessResult done =
      run({path("problem.csv"), "--capacity", "2KiB", "-o", path("none.csv")});
  EXPECT_EQ(done.exit_code, 3) << done.err;
  EXPECT_THAT(done.out, HasSubstr("no packing fits"));
  EXPECT_THAT(done.out, HasSubstr("nothing was written"));
  EXPECT_THAT(done.out, HasSubstr("--capacity 3072"));
  EXPECT_EQ(read(path("none.csv")), "");
}

TEST_F(Pack, NamesTheLineThatIsWrong) {
  const auto complaint = [&](std::string_view text, const std::string& part) {
    expect_complaint(run({write("bad.csv", text)}), 1, part);
  };
  complaint("", "bad.csv:1: it is empty");
  complaint("id,lower,upper\n1,2,3\n", "bad.csv:1: there is no column 'size'");
  complaint("id,lower,upper,size\n1,5,5,1\n", "bad.csv:2: it lives from 5 to 5");
  complaint("id,lower,upper,size\n1,0,5,-1\n", "bad.csv:2: size '-1' is negative");
  complaint("id,lower,upper,size\n1,0,5,99999999999999999999\n", "bad.csv:2: size '");
  complaint("id,lower,upper,size\n1,0,5,1\n1,0,5,1\n", "bad.csv:3: id '1' is that of line 2");
  complaint("id,lower,upper,size\n1,0,5,\x1b[31m\n", "bad.csv:2: size '");
  expect_complaint(run({path("missing.csv")}), 1, "missing.csv: ");
  expect_complaint(run({path(".")}), 1, "it is a directory");
  expect_complaint(run({path("problem.csv"), "--capacity", "3KB"}), 2, "--capacity: ");
  expect_complaint(run({path("problem.csv"), "--seconds", "-1"}), 2, "--seconds: ");
  expect_complaint(run({path("problem.csv"), "--seconds", "nan"}), 2, "--seconds: ");
  expect_complaint(run({path("problem.csv"), "--seed", "-1"}), 2, "--seed: ");
  expect_complaint(
      run({path("problem.csv"), "-o", path("no/such/folder.csv")}), 1, "there is no folder");
}

TEST_F(Pack, KeepsItsTimeWithAHundredThousandRows) {
  std::string text = "id,lower,upper,size\n";
  for (int i = 0; i < 100'000; ++i) {
    const int lower = i * 7919 % 1'000'003;
    text += std::to_string(i) + "," + std::to_string(lower) + "," +
            std::to_string(lower + 1 + i % 997) + "," + std::to_string(1 + i * 31 % 4096) + "\n";
  }
  const ProcessResult done = run({write("many.csv", text), "--seconds", "0.2", "--json"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(nlohmann::json::parse(done.out)["buffers"], 100'000);
}

}  // namespace
}  // namespace headroom::cli
