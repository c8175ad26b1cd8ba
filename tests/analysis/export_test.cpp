// What other programs open: Perfetto, speedscope, lines.
#include <map>
#include <set>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "headroom/analysis/export_csv.h"
#include "headroom/analysis/export_perfetto.h"
#include "headroom/analysis/export_speedscope.h"
#include "headroom/analysis/index.h"
#include "headroom/base/bytes.h"

#include "tests/trace/samples.h"

namespace headroom::analysis {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using trace::testing::small_trace;

json perfetto(const Trace& trace, const PerfettoOptions& options = {}) {
  std::ostringstream out;
  export_perfetto(trace, out, options);
  return json::parse(out.str());
}

json speedscope(const Trace& trace, const SpeedscopeOptions& options = {}) {
  std::ostringstream out;
  export_speedscope(trace, out, options);
  return json::parse(out.str());
}

TEST(ExportPerfetto, IsInTheTraceEventFormat) {
  const json file = perfetto(small_trace());
  EXPECT_EQ(file["displayTimeUnit"], "ms");
  std::map<std::string, int> open;
  for (const json& event : file["traceEvents"]) {
    const std::string phase = event.at("ph");
    EXPECT_THAT(phase, ::testing::AnyOf("M", "C", "b", "e", "i"));
    EXPECT_TRUE(event.at("pid").is_number_integer());
    EXPECT_GE(event.at("ts").get<std::int64_t>(), 0);
    EXPECT_TRUE(event.at("name").is_string());
    if (phase == "b" || phase == "e") {
      const std::string key = event.at("cat").get<std::string>() + event.at("id").dump();
      open[key] += phase == "b" ? 1 : -1;
    }
    EXPECT_TRUE(phase != "C" || event.at("args").at("bytes").is_number_unsigned());
    EXPECT_TRUE(phase != "i" || event.at("s") == "p");
  }
  for (const auto& [id, count] : open) EXPECT_EQ(count, 0) << id;
  EXPECT_EQ(open.size(), 10U + 6U);  // blocks, and annotations
}

TEST(ExportPerfetto, CountersReachThePeaks) {
  const Trace trace = small_trace();
  std::map<std::string, std::uint64_t> highest;
  const json file = perfetto(trace);
  for (const json& event : file["traceEvents"]) {
    if (event["ph"] != "C") continue;
    std::uint64_t& value = highest[event["name"].get<std::string>()];
    value = std::max(value, event["args"]["bytes"].get<std::uint64_t>());
  }
  EXPECT_EQ(highest["allocated"], 60_MiB);
  EXPECT_EQ(highest["reserved"], 64_MiB);
}

TEST(ExportPerfetto, DrawsTheBlocksThatHeldMost) {
  const json file = perfetto(small_trace(), {.max_blocks = 4});
  std::multiset<std::string> names;
  for (const json& event : file["traceEvents"]) {
    if (event["ph"] == "b" && event["cat"] == "block") names.insert(event["name"]);
  }
  EXPECT_EQ(names,
            (std::multiset<std::string>{"train.py:12 build",
                                        "train.py:30 forward",
                                        "train.py:30 forward",
                                        "train.py:30 forward"}));
  EXPECT_EQ(file["otherData"]["blocks"], 10);
  EXPECT_EQ(file["otherData"]["blocks_drawn"], 4);
}

TEST(ExportPerfetto, ClosesScopesThatAreOpenAndOpensThoseThatAreNot) {
  Trace trace = small_trace();
  trace.annotations = {{.name = trace.strings.intern("late"), .is_start = false, .time_us = 1},
                       {.name = trace.strings.intern("never"), .time_us = INT64_MAX}};
  EXPECT_EQ(perfetto(trace)["otherData"]["blocks"], 10);
}

TEST(ExportSpeedscope, IsInSpeedscopesFormat) {
  const json file = speedscope(small_trace());
  EXPECT_EQ(file["$schema"], "https://www.speedscope.app/file-format-schema.json");
  ASSERT_EQ(file["profiles"].size(), 1U);
  const json& profile = file["profiles"][0];
  EXPECT_EQ(profile["type"], "sampled");
  EXPECT_EQ(profile["unit"], "bytes");
  EXPECT_EQ(profile["startValue"], 0);
  EXPECT_EQ(profile["endValue"], 60_MiB);
  EXPECT_THAT(profile["name"].get<std::string>(), StartsWith("cuda:0: 60MiB after 5 of 30 events"));
  ASSERT_EQ(profile["samples"].size(), profile["weights"].size());
  std::uint64_t sum = 0;
  for (const json& weight : profile["weights"]) sum += weight.get<std::uint64_t>();
  EXPECT_EQ(sum, profile["endValue"]);
  const json& frames = file["shared"]["frames"];
  for (const json& sample : profile["samples"]) {
    for (const json& frame : sample) EXPECT_LT(frame.get<std::size_t>(), frames.size());
  }
  // The outermost frame is first.
  EXPECT_EQ(frames[profile["samples"][0][0].get<std::size_t>()]["name"], "<module>");
  EXPECT_EQ(frames[profile["samples"][0][0].get<std::size_t>()]["line"], 90);
}

TEST(ExportSpeedscope, OfAMomentAndWithoutStacks) {
  EXPECT_EQ(speedscope(small_trace(), {.position = 2})["profiles"][0]["endValue"], 16_MiB);
  EXPECT_EQ(speedscope(small_trace(), {.position = 0})["profiles"].size(), 0U);
  EXPECT_EQ(speedscope(small_trace(), {.position = UINT64_MAX})["profiles"][0]["endValue"], 16_MiB);
  const json file = speedscope(trace::testing::trace_of(trace::testing::recording("leak_loss")));
  EXPECT_EQ(file["profiles"][0]["samples"].size(), 1U);
  EXPECT_EQ(file["shared"]["frames"].back()["name"], "(no stack)");
}

TEST(Exports, StayJsonWhateverANameIs) {
  for (const std::string_view name : {std::string_view("\xff\xfe"),
                                      std::string_view("\"\\\n\t\x01\x7f"),
                                      std::string_view("\xc3"),
                                      std::string_view("\xed\xa0\x80"),
                                      std::string_view("\xf5\x80\x80\x80"),
                                      std::string_view("\xe0\x80\x80"),
                                      std::string_view("a\0b", 3),
                                      std::string_view("größe 显存 🦜")}) {
    Trace trace = small_trace();
    const std::vector<Frame> frames{
        {.name = trace.strings.intern(name), .file = trace.strings.intern("/home/me/x.py")}};
    trace.devices[0].events.push_back(
        {.address = 1, .size_bytes = 7, .stack = trace.stacks.intern(frames)});
    trace.annotations.push_back({.name = trace.strings.intern(name)});
    std::ostringstream out;
    export_perfetto(trace, out);
    EXPECT_TRUE(json::accept(out.str())) << name;
    out.str("");
    export_speedscope(trace, out, {.position = 31});
    ASSERT_TRUE(json::accept(out.str())) << name;
  }
}

TEST(ExportCsv, IsOneEventALine) {
  std::ostringstream out;
  export_csv(small_trace(), out);
  EXPECT_THAT(out.str(),
              StartsWith("# settings=\n"
                         "segment_alloc,139637976727552,67108864,0,1700000000000250\n"
                         "alloc,139637976727552,16777216,0,1700000000000500\n"));
  EXPECT_THAT(out.str(),
              ::testing::EndsWith("oom,0,536870912,0,1700000000007500\n"
                                  "segment,139637976727552,67108864,0,large\n"
                                  "block,139637976727552,16777216,16777216,active_allocated\n"
                                  "block,139637993504768,50331648,0,inactive\n"));
}

TEST(ExportCsv, NamesTheDevicesWhereThereAreSeveral) {
  Trace trace = small_trace();
  trace.devices.push_back({.device = 1, .events = trace.devices[0].events});
  trace.settings = trace::Value{
      trace::Value::Dict{{"PYTORCH_CUDA_ALLOC_CONF", trace::Value{std::string("a\nb")}}}};
  std::ostringstream out;
  export_csv(trace, out);
  EXPECT_THAT(out.str(), StartsWith("# settings=a b\n# device=cuda:0\n"));
  EXPECT_THAT(out.str(), HasSubstr("\n# device=cuda:1\n"));
}

TEST(ExportCsv, ReadsBackAsTheSameRecording) {
  const auto original = trace::testing::recording("streams_expandable");
  std::ostringstream out;
  export_csv(trace::testing::trace_of(original), out);
  EXPECT_THAT(out.str(), HasSubstr(",small-expandable\n"));
  EXPECT_THAT(out.str(), StartsWith("# settings=expandable_segments:True\n"));
}

TEST(Exports, OfNothingAreWhole) {
  const Trace trace;
  EXPECT_EQ(perfetto(trace)["traceEvents"].size(), 0U);
  EXPECT_EQ(speedscope(trace)["profiles"].size(), 0U);
  std::ostringstream out;
  export_csv(trace, out);
  EXPECT_EQ(out.str(), "# settings=\n");
}

}  // namespace
}  // namespace headroom::analysis
