#include "headroom/trace/trace.h"

#include <array>

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace headroom::trace
