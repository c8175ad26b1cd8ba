// `headroom info` step by step, on recordings made by hand. convert_test.cpp runs it for real.
#include "cli/info/info.h"

#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "headroom/base/bytes.h"
#include "headroom/report/text.h"

#include "cli/input/trace_input.h"
#include "tests/support/golden.h"
#include "tests/support/json_schema.h"
#include "tests/trace/samples.h"

namespace headroom::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using headroom::testing::expect_golden;
using headroom::testing::schema_mismatches;
using trace::TraceFile;

const InfoRequest kRequest{.path = "runs/small.pickle.zst"};

TraceFile file_of(trace::Trace trace) {
  return {.trace = std::move(trace), .is_packed = true, .file_bytes = 3210};
}
TraceFile small() { return file_of(trace::testing::small_trace()); }
TraceFile recorded_file(const char* name) {
  return file_of(trace::testing::trace_of(trace::testing::recording(name)));
}

// Two devices, categories and annotations, a note, and events that were dropped.
TraceFile rich() {
  TraceFile file = small();
  trace::Trace& trace = file.trace;
  const auto details = trace.details.intern({.user_metadata = trace.strings.intern("step/layer1"),
                                             .category = memory::Category::kActivation});
  trace::DeviceTrace& second = trace.devices.emplace_back();
  second.device = 1;
  second.dropped_events = 12;
  second.events.push_back({.address = 4096, .size_bytes = 100_MiB, .details = details});
  second.events.push_back({.address = 1_GiB, .size_bytes = 5_MiB});
  second.events.push_back({.address = 1_GiB, .size_bytes = 6_MiB});
  file.note = "the last block is missing";
  file.format = trace::Format::kHrt;
  trace.producer = "headroom 0.1.0";
  trace.settings = trace::Value{trace::Value::Dict{
      {"PYTORCH_CUDA_ALLOC_CONF", trace::Value{std::string("max_split_size_mb:128")}}}};
  return file;
}

std::string drawn(const TraceFile& file, const Context& context = {}) {
  return draw_info(look_into(file, kRequest.options), kRequest, context);
}

nlohmann::json json_of(const TraceFile& file, const InfoRequest& request = kRequest) {
  return nlohmann::json::parse(info_json(look_into(file, request.options), request));
}

nlohmann::json info_schema() {
  std::ifstream in(HEADROOM_SOURCE_DIR "/docs/format/info.schema.json");
  return nlohmann::json::parse(in);
}

TEST(InfoGolden, ASmallRecording) {
  expect_golden("info/small.txt", drawn(small()));
  expect_golden("info/small.json", info_json(look_into(small(), kRequest.options), kRequest));
}

TEST(InfoGolden, TheEndOfAHistory) {
  expect_golden("info/partial.txt", drawn(recorded_file("gpt2_partial")));
}

TEST(InfoGolden, SeveralDevices) { expect_golden("info/rich.txt", drawn(rich())); }

TEST(InfoGolden, WithColour) {
  expect_golden("info/small-color.txt", drawn(small(), {.out = {.has_color = true}}));
}

TEST(InfoGolden, WithoutUnicode) {
  expect_golden("info/small-ascii.txt", drawn(small(), {.out = {.has_unicode = false}}));
}

TEST(InfoView, StaysWithinTheTerminal) {
  for (int width = 60; width < 140; width += 3) {
    for (const TraceFile& file : {small(), recorded_file("gpt2_partial"), rich()}) {
      const std::string text = drawn(file, {.out = {.width = width}});
      for (std::size_t start = 0; start < text.size();) {
        const std::size_t end = text.find('\n', start);
        const std::string line = text.substr(start, end - start);
        // What to type is printed whole.
        const bool is_next = line.starts_with("Next:");
        EXPECT_TRUE(is_next || report::display_width(line) <= width) << line;
        start = end + 1;
      }
    }
  }
}

// A line that libraries split, three levels deep, with names that no terminal has room for.
TraceFile split() {
  TraceFile file = small();
  trace::Trace& trace = file.trace;
  const auto frame = [&trace](const std::string& path, const std::string& function, int line) {
    return trace::Frame{
        .name = trace.strings.intern(function), .file = trace.strings.intern(path), .line = line};
  };
  const std::string packages = "/v/lib/python3.12/site-packages/";
  const std::string long_name = std::string(60, 'a') + ".py";
  trace::DeviceAddress address = 1_TiB;
  for (int i = 0; i < 8; ++i) {
    const std::vector<trace::Frame> frames{
        frame(packages + "hub/act" + std::to_string(i % 2) + long_name, "forward", 60 + i),
        frame(packages + "torch/nn/modules/module.py", "_call_impl", 1790),
        frame(packages + "hub/gpt2.py", "forward", 600 + i / 2),
        frame(packages + "hub/gpt2.py", "model", 500 + i / 4),
        frame("/home/me/train.py", "step", 31)};
    trace.devices[0].events.push_back(
        {.address = address, .size_bytes = 1_GiB, .stack = trace.stacks.intern(frames)});
    address += 1_GiB;
  }
  return file;
}

TEST(InfoView, SplitsASiteByTheFramesBelowIt) {  // #22
  const std::string text = drawn(split());
  EXPECT_THAT(text, HasSubstr("train.py:31 step\n"));
  EXPECT_THAT(text, HasSubstr("├ gpt2.py:500 model"));
  EXPECT_THAT(text, Not(HasSubstr("module.py")));
  EXPECT_THAT(schema_mismatches(info_schema(), json_of(split())), IsEmpty());
  const auto tree = json_of(split())["per_device"][0]["site_tree"];
  EXPECT_EQ(tree[0]["children"].size(), 2U);
  EXPECT_EQ(tree[0]["children"][0]["children"].size(), 2U);
}

TEST(InfoView, StaysWithinTheTerminalHoweverHoldersAreListed) {
  for (const InfoBy by : {InfoBy::kSite, InfoBy::kStack, InfoBy::kModule}) {
    const InfoRequest request{.path = "x.pickle", .by = by};
    for (const bool has_unicode : {true, false}) {
      const Context context{.out = {.width = 80, .has_unicode = has_unicode}};
      std::istringstream lines(draw_info(look_into(split(), request.options), request, context));
      for (std::string line; std::getline(lines, line);) {
        const bool is_next = line.starts_with("Next:");
        EXPECT_TRUE(is_next || report::display_width(line) <= 80) << line;
      }
    }
  }
}

TEST(InfoView, ShowsNoByteOfUnicodeWhereThereIsNone) {
  for (const char c : drawn(rich(), {.out = {.has_unicode = false}})) {
    ASSERT_LT(static_cast<unsigned char>(c), 0x80);
  }
}

TEST(InfoView, OfNothingSaysWhatToDo) {
  EXPECT_THAT(drawn({}), HasSubstr("_record_memory_history()"));
  EXPECT_THAT(schema_mismatches(info_schema(), json_of({})), IsEmpty());
}

TEST(InfoView, OfAStateHasNoHistory) {
  TraceFile file = small();
  file.trace.devices.clear();
  const std::string text = drawn(file);
  EXPECT_THAT(text, HasSubstr("a snapshot of one moment, without events"));
  EXPECT_THAT(text, Not(HasSubstr("event by event")));
  EXPECT_EQ(json_of(file)["peak_allocated"], 16_MiB);
  EXPECT_EQ(json_of(file)["devices"], 1);
}

TEST(InfoView, NamesAreShownWithoutTheirControlCharacters) {
  TraceFile file = small();
  const std::vector<trace::Frame> frames{{.name = file.trace.strings.intern("a\x1b[31m\nb"),
                                          .file = file.trace.strings.intern("/home/me/x.py")}};
  file.trace.devices[0].events.push_back(
      {.address = 1, .size_bytes = 1_GiB, .stack = file.trace.stacks.intern(frames)});
  EXPECT_THAT(drawn(file), HasSubstr("x.py a?[31m b"));
}

TEST(InfoJson, IsWhatTheSchemaSays) {
  for (const TraceFile& file : {small(), rich(), recorded_file("leak_loss")}) {
    EXPECT_THAT(schema_mismatches(info_schema(), json_of(file)), IsEmpty());
  }
}

TEST(InfoJson, SumsOverTheDevicesAndTakesTheHighestPeaks) {
  const auto json = json_of(rich());
  EXPECT_EQ(json["events"], 33);
  EXPECT_EQ(json["allocs"], 13);
  EXPECT_EQ(json["frees"], 9);
  EXPECT_EQ(json["segments"], 1);
  EXPECT_EQ(json["devices"], 2);
  EXPECT_EQ(json["peak_allocated"], 106_MiB);
  EXPECT_EQ(json["peak_reserved"], 64_MiB);
  EXPECT_EQ(json["has_stacks"], true);
  EXPECT_EQ(json["format"], "hrt");
}

TEST(InfoJson, OfOneDevice) {
  for (const char* name : {"cuda:0", "0"}) {
    const auto json = json_of(rich(), {.path = "x", .options = {.device = name}});
    EXPECT_EQ(json["devices"], 1);
    EXPECT_EQ(json["peak_allocated"], 60_MiB);
  }
  EXPECT_THROW((void)json_of(rich(), {.path = "x", .options = {.device = "7"}}), InvalidArgument);
}

TEST(InfoJson, ListsAsManyHoldersAsAsked) {
  const auto json = json_of(small(), {.path = "x", .options = {.top = 1}});
  EXPECT_EQ(json["per_device"][0]["sites"].size(), 1U);
  EXPECT_EQ(json["per_device"][0]["sites"][0]["site"], "train.py:30 forward");
  EXPECT_THAT(json["per_device"][0]["sites"][0]["stack"][0].get<std::string>(),
              HasSubstr("functional.py:2301 linear"));
}

TEST(ShellWord, IsTakenBackByAShell) {
  EXPECT_EQ(shell_word("a/b-c_1.pickle"), "a/b-c_1.pickle");
  EXPECT_EQ(shell_word("my run.hrt"), "'my run.hrt'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word(""), "''");
}

TEST(WithoutEndings, KeepsTheName) {
  EXPECT_EQ(without_endings("a/run.pickle.zst"), "a/run");
  EXPECT_EQ(without_endings("run.hrt"), "run");
  EXPECT_EQ(without_endings("run.v2"), "run.v2");
  EXPECT_EQ(without_endings("a/.hrt"), "a/.hrt");
}

}  // namespace
}  // namespace headroom::cli
