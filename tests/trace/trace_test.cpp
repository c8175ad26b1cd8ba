#include "headroom/trace/trace.h"

#include <array>

#include <gtest/gtest.h>

#include "headroom/trace/settings.h"

namespace headroom::trace {
namespace {

TEST(StringTable, GivesOneNumberToOneText) {
  StringTable table;
  const StringId loss = table.intern("loss");
  EXPECT_EQ(table.intern("loss"), loss);
  EXPECT_NE(table.intern("other"), loss);
  EXPECT_EQ(table[loss], "loss");
  EXPECT_EQ(table.intern(""), 0U);
}

TEST(StackTable, TellsNoStackFromAnEmptyOne) {
  StackTable table;
  const StackId empty = table.intern({});
  EXPECT_NE(empty, 0U);
  EXPECT_TRUE(table.frame_ids(0).empty());
  EXPECT_TRUE(table.frame_ids(empty).empty());
  const std::array frames{Frame{.name = 1, .file = 2, .line = 3}, Frame{.name = 4}};
  const StackId two = table.intern(frames);
  EXPECT_EQ(table.intern(frames), two);
  ASSERT_EQ(table.frame_ids(two).size(), 2U);
  EXPECT_EQ(table.frame(table.frame_ids(two)[0]), frames[0]);
  EXPECT_EQ(table.frame_count(), 2U);
}

TEST(Events, GiveBackWhatWasPushed) {
  Events events;
  const Entry first{.address = 512, .size_bytes = 7, .stream = 99, .time_us = -1, .stack = 2};
  const Entry second{.action = Action::kOutOfMemory, .size_bytes = 1, .stream = 3};
  events.push_back(first);
  events.push_back(second);
  events.push_back(first);
  EXPECT_EQ(events[0], first);
  EXPECT_EQ(events[1], second);
  EXPECT_EQ(events[2], first);
  EXPECT_EQ(events.streams(), (std::vector<std::uint64_t>{99, 3}));
}

TEST(DetailsTable, TellsAnAbsentFieldFromAnEmptyOne) {
  DetailsTable table;
  EXPECT_EQ(table.intern({}), 0U);
  const DetailsId with = table.intern({.user_metadata = 0});
  EXPECT_NE(with, 0U);
  EXPECT_EQ(table[with].user_metadata, StringId{0});
}

TEST(Trace, FindsItsSettingsString) {
  Trace trace;
  EXPECT_EQ(trace.settings_string(), "");
  trace.settings = Value{Value::Dict{{"PYTORCH_CUDA_ALLOC_CONF", Value{std::string("a:b")}}}};
  EXPECT_EQ(trace.settings_string(), "a:b");
}

Trace with_device(Value name, Value limit, Value page) {
  Value::Dict device{{"name", std::move(name)},
                     {"limit_bytes", std::move(limit)},
                     {"page_bytes", std::move(page)}};
  Trace trace;
  trace.settings = Value{Value::Dict{{"devices", Value{Value::Dict{{"0", Value{device}}}}}}};
  return trace;
}

TEST(RecordedDevice, IsWhatOurRecorderWrote) {
  const Trace trace =
      with_device({std::string("cpu:0")}, {std::int64_t{5000}}, {std::int64_t{4096}});
  const RecordedDevice said = recorded_device(trace, {.device = 0});
  EXPECT_EQ(said.name, "cpu:0");
  EXPECT_EQ(said.limit_bytes, 5000U);
  EXPECT_EQ(said.page_bytes, 4096U);
  EXPECT_TRUE(recorded_device(trace, {.device = 1}).name.empty());
  EXPECT_TRUE(recorded_device({}, {}).name.empty());
}

TEST(RecordedDevice, LeavesOutWhatNoRecorderWrites) {
  const Trace odd = with_device({std::string("\x1b[2J")}, {std::int64_t{0}}, {std::int64_t{3}});
  const Trace typed = with_device({true}, {std::string("x")}, {std::int64_t{-4096}});
  for (const Trace& trace : {odd, typed}) {
    const RecordedDevice said = recorded_device(trace, {.device = 0});
    EXPECT_TRUE(said.name.empty());
    EXPECT_FALSE(said.limit_bytes);
    EXPECT_EQ(said.page_bytes, 0U);
  }
}

}  // namespace
}  // namespace headroom::trace
