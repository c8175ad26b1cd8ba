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

constexpr const char* kHeader =
    "device,action,addr,size,stream,time_us,category,site,annotation,requested,state\n";

std::string csv(const Trace& trace) {
  std::ostringstream out;
  export_csv(trace, out);
  return out.str();
}

// The fields of a line, as a reader of CSV takes them.
std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  bool is_quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"' && is_quoted && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += line[i++];
    } else if (line[i] == '"') {
      is_quoted = !is_quoted;
    } else if (line[i] == ',' && !is_quoted) {
      fields.emplace_back();
    } else {
      fields.back() += line[i];
    }
  }
  return fields;
}

TEST(ExportCsv, IsAHeaderAndOneEventALine) {
  EXPECT_THAT(csv(small_trace()),
              StartsWith(std::string(kHeader) +
                         "cuda:0,segment_alloc,139637976727552,67108864,0,1700000000000250,,"
                         "train.py:12 build,,,\n"
                         "cuda:0,alloc,139637976727552,16777216,0,1700000000000500,parameter,"
                         "train.py:12 build,,,\n"));
}

TEST(ExportCsv, EndsWithTheFinalState) {
  EXPECT_THAT(
      csv(small_trace()),
      ::testing::ContainsRegex(
          "cuda:0,oom,0,536870912,0,1700000000007500,[^\n]*\n"
          "cuda:0,segment,139637976727552,67108864,0,1700000000007500,,[^,]*,,,large\n"
          "cuda:0,block,139637976727552,16777216,0,1700000000007500,parameter,[^,]*,,16777216,"
          "active_allocated\n"
          "cuda:0,block,139637993504768,50331648,0,1700000000007500,,[^,]*,,0,inactive\n$"));
}

TEST(ExportCsv, HasAsManyFieldsInEveryLineWhateverANameIs) {
  Trace trace = small_trace();
  trace.devices.push_back({.device = 1, .events = trace.devices[0].events});
  const std::vector<Frame> frames{{.name = trace.strings.intern("f\"a,b\"#c\nd"),
                                   .file = trace.strings.intern("/home/me/x,#.py")}};
  const auto details = trace.details.intern({.user_metadata = trace.strings.intern("a,\"b\"\r\n#c"),
                                             .category = memory::Category::kData});
  trace.devices[1].events.push_back(
      {.address = 1, .size_bytes = 7, .stack = trace.stacks.intern(frames), .details = details});
  trace.settings = trace::Value{
      trace::Value::Dict{{"PYTORCH_CUDA_ALLOC_CONF", trace::Value{std::string("a\nb,c")}}}};
  std::istringstream in(csv(trace));
  std::string line;
  std::vector<std::string> last;
  int comments = 0;
  while (std::getline(in, line)) {
    if (line.starts_with('#')) {
      ++comments;
      EXPECT_EQ(line, "# settings=a b,c");
      continue;
    }
    last = fields_of(line);
    EXPECT_EQ(last.size(), 11U) << line;
  }
  EXPECT_EQ(comments, 1);
  EXPECT_EQ(last[0], "cuda:1");
  EXPECT_EQ(last[6], "data");
  EXPECT_EQ(last[7], "x,#.py f\"a,b\"#c d");
  EXPECT_EQ(last[8], "a,\"b\"  #c");
}

TEST(ExportCsv, TellsOfAFreeWhoseBlockItWas) {
  Trace trace;
  const auto details = trace.details.intern({.user_metadata = trace.strings.intern("net/layer1"),
                                             .category = memory::Category::kActivation});
  Events& events = trace.devices.emplace_back().events;
  events.push_back({.address = 512, .size_bytes = 100, .details = details});
  events.push_back({.action = Action::kFreeRequested, .address = 512, .size_bytes = 100});
  EXPECT_EQ(csv(trace),
            std::string(kHeader) +
                "cuda:0,alloc,512,100,0,0,activation,,net/layer1,,\n"
                "cuda:0,free_requested,512,100,0,0,activation,,net/layer1,,\n");
}

TEST(ExportCsv, SaysWhichSegmentsAreExpandable) {
  const auto original = trace::testing::recording("streams_expandable");
  const std::string text = csv(trace::testing::trace_of(original));
  EXPECT_THAT(text, HasSubstr(",small-expandable\n"));
  EXPECT_THAT(text, StartsWith(std::string(kHeader) + "# settings=expandable_segments:True\n"));
}

// A recording of ours: two layers, of which one has a stack as well.
Trace annotated_trace() {
  Trace trace;
  trace.origin = trace::Origin::kHeadroom;
  const auto first = trace.details.intern({.user_metadata = trace.strings.intern("model/layer1"),
                                           .category = memory::Category::kActivation});
  const auto second =
      trace.details.intern({.user_metadata = trace.strings.intern("/model//layer2/")});
  const std::vector<Frame> frames{{.name = trace.strings.intern("step"),
                                   .file = trace.strings.intern("/home/me/train.cpp"),
                                   .line = 5}};
  Events& events = trace.devices.emplace_back().events;
  events.push_back({.address = 512, .size_bytes = 4096, .details = first});
  events.push_back({.address = 8192,
                    .size_bytes = 2048,
                    .stack = trace.stacks.intern(frames),
                    .details = second});
  events.push_back({.address = 16384, .size_bytes = 1024});
  return trace;
}

TEST(ExportSpeedscope, HasAnnotationsAsFramesOutermostFirst) {
  const json file = speedscope(annotated_trace());
  const json& frames = file["shared"]["frames"];
  std::vector<std::vector<std::string>> samples;
  for (const json& sample : file["profiles"][0]["samples"]) {
    samples.emplace_back();
    for (const json& frame : sample) {
      samples.back().push_back(frames.at(frame.get<std::size_t>())["name"]);
    }
  }
  EXPECT_EQ(samples,
            (std::vector<std::vector<std::string>>{
                {"model", "layer1"}, {"model", "layer2", "step"}, {"(no stack)"}}));
  EXPECT_EQ(frames[0], (json{{"name", "step"}, {"file", "/home/me/train.cpp"}, {"line", 5}}));
}

TEST(ExportSpeedscope, DoesNotCutWhatPyTorchsUsersWrote) {
  Trace trace = annotated_trace();
  trace.origin = trace::Origin::kPyTorch;
  const json file = speedscope(trace);
  const std::size_t frame = file["profiles"][0]["samples"][0][0];
  EXPECT_EQ(file["shared"]["frames"][frame]["name"], "model/layer1");
}

TEST(ExportPerfetto, NamesBlocksByTheirAnnotation) {
  std::vector<std::string> names;
  const json file = perfetto(annotated_trace());
  for (const json& event : file["traceEvents"]) {
    if (event["ph"] == "b") names.push_back(event["name"]);
    if (event["name"] == "model/layer1" && event["ph"] == "b") {
      EXPECT_EQ(event["args"]["category"], "activation");
    }
  }
  EXPECT_EQ(
      names,
      (std::vector<std::string>{"model/layer1", "/model//layer2/ > train.cpp:5 step", "1KiB"}));
}

TEST(Exports, OfNothingAreWhole) {
  const Trace trace;
  EXPECT_EQ(perfetto(trace)["traceEvents"].size(), 0U);
  EXPECT_EQ(speedscope(trace)["profiles"].size(), 0U);
  std::ostringstream out;
  export_csv(trace, out);
  EXPECT_EQ(out.str(), kHeader);
}

}  // namespace
}  // namespace headroom::analysis
