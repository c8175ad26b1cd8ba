// Files that are made to do harm, or were hurt: an error, nothing else.
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trace/pickle/pickle_text.h"

namespace headroom::trace {
namespace {

using namespace std::string_literals;
using testing::dict;
using testing::error_of;
using ::testing::HasSubstr;
using testing::list;
using testing::little_endian;
using testing::number;
using testing::parse;
using testing::pickle;
using testing::raw;
using ::testing::StartsWith;
using testing::str;
using testing::with_entry;
using testing::with_settings;

TEST(HostilePickle, NamesEveryOpcodeThatWouldRunSomething) {
  const std::vector<std::pair<std::string, std::string>> forbidden{
      {"c", "GLOBAL"},
      {"\x93", "STACK_GLOBAL"},
      {"i", "INST"},
      {"R", "REDUCE"},
      {"b", "BUILD"},
      {"o", "OBJ"},
      {"\x81", "NEWOBJ"},
      {"\x92", "NEWOBJ_EX"},
      {"\x82", "EXT1"},
      {"\x83", "EXT2"},
      {"\x84", "EXT4"},
      {"P", "PERSID"},
      {"Q", "BINPERSID"},
      {"\x97", "NEXT_BUFFER"},
      {"\x98", "READONLY_BUFFER"},
      {"I", "INT"},
      {"L", "LONG"},
      {"F", "FLOAT"},
      {"S", "STRING"},
      {"V", "UNICODE"},
      {"p", "PUT"},
      {"g", "GET"},
      {"B", "BINBYTES"},
      {"C", "SHORT_BINBYTES"},
      {"\x8e", "BINBYTES8"},
      {"\x96", "BYTEARRAY8"},
      {"\x8f", "EMPTY_SET"},
      {"\x90", "ADDITEMS"},
      {"\x91", "FROZENSET"},
      {"\xff", "0xff"},
  };
  for (const auto& [code, name] : forbidden) {
    EXPECT_THAT(error_of(raw("\x80\x04N") + code), StartsWith("at byte 3: opcode " + name + " "));
  }
}

TEST(HostilePickle, RunsNothing) {
  // What pickle.dumps makes of an object whose __reduce__ gives os.system and a command.
  const char* touched = "/tmp/headroom-hostile-pickle-ran";
  const std::string command = "touch "s + touched;
  const std::string bytes = pickle(str("posix") + "\x94" + str("system") + "\x94\x93\x94" +
                                   str(command) + "\x94\x85\x94R\x94");
  EXPECT_THAT(error_of(bytes), HasSubstr("opcode STACK_GLOBAL would import code"));
  EXPECT_EQ(std::system(("test ! -e "s + touched).c_str()), 0);
  EXPECT_THAT(error_of(raw("\x80\x02"
                           "cos\nsystem\n(") +
                       str(command) + "tR."),
              StartsWith("at byte 2: opcode GLOBAL would import code"));
}

TEST(HostilePickle, ToleratesNoWrongStack) {
  for (const char* wrong : {"a",
                            "e",
                            "s",
                            "u",
                            "1",
                            "t",
                            "l",
                            "d",
                            "\x85",
                            "\x94",
                            "q\x01",
                            "N(",
                            "NN",
                            "](Ka",
                            "](K\x01u",
                            "}(K\x01u",
                            "}(K\x01K\x01"
                            "e",
                            "](](](",
                            "](e]",
                            "K\x01K\x02K\x03s",
                            "N(e",
                            "(e",
                            "(u",
                            "]((e"}) {
    EXPECT_FALSE(parse(with_settings(wrong))) << wrong;
  }
  EXPECT_THAT(error_of(raw("\x80\x04.")), HasSubstr("0 values on the stack instead of one"));
}

TEST(HostilePickle, AllocatesByWhatIsThereAndNotByWhatIsSaid) {
  const std::string huge = little_endian(UINT64_MAX - 5, 8);
  EXPECT_THAT(error_of(with_settings("\x8d" + huge)), HasSubstr("wants more bytes than are left"));
  EXPECT_THAT(error_of(with_settings("X" + little_endian(UINT32_MAX, 4))), HasSubstr("left"));
  EXPECT_THAT(error_of(with_settings("\x8b" + little_endian(UINT32_MAX, 4))), HasSubstr("left"));
  EXPECT_THAT(error_of(with_settings("\x95" + huge)), HasSubstr("left"));
  EXPECT_TRUE(parse(with_settings("Nr" + little_endian(UINT32_MAX, 4))));
}

TEST(HostilePickle, RefusesDeepNestingAndCycles) {
  const std::string deep(1'000'000, ']');
  EXPECT_THAT(error_of(with_settings(deep + std::string(999'999, 'a'))),
              HasSubstr("nests deeper than 64 levels, or contains itself"));
  EXPECT_THAT(error_of(with_settings("]\x94h\x00"
                                     "a"s)),
              HasSubstr("contains itself"));
  // A list of histories that holds itself, and frames that do.
  EXPECT_THAT(error_of(pickle(dict("segments",
                                   list(),
                                   "device_traces",
                                   "]\x94h\x00"
                                   "a"s))),
              HasSubstr("device_traces[0][0]: expected a dictionary, found list"));
}

TEST(HostilePickle, RefusesWhatUnfoldsWithoutEnd) {
  std::string bomb = "](" + str("lol") + "e\x94";
  for (char i = 0; i < 50; ++i) {
    std::string level = "](";
    for (int k = 0; k < 10; ++k) level += "h"s + i;
    bomb += level + "e\x94";
  }
  EXPECT_THAT(error_of(with_settings("(" + bomb + "l")),
              HasSubstr("unfolds to far more than its size"));
}

TEST(HostilePickle, RefusesAHistoryThatIsNamedAMillionTimes) {
  const std::string entry = dict("action", str("alloc"), "addr", "K\x01", "size", "K\x01");
  std::string events = "](" + entry + "\x94";  // the first thing in the memo
  for (int i = 0; i < 5'000; ++i) events += raw("h\x00");
  events += "e\x94";
  std::string devices = "](" + events;
  for (int i = 0; i < 5'000; ++i) devices += "h\x01";
  EXPECT_THAT(error_of(pickle(dict("segments", list(), "device_traces", devices + "e"))),
              HasSubstr("unfolds to far more than its size"));
}

TEST(HostilePickle, KeepsToTheMemoThatWasOverwritten) {
  // Many dictionaries alike, and then one of the numbers that they name their keys by changes.
  std::string events = "](";
  const std::string keys = str("action") + raw("q\x00") + "0" + str("addr") + raw("q\x01") + "0" +
                           str("size") + raw("q\x02") + "0" + str("alloc") + raw("q\x03") + "0" +
                           str("time_us") + raw("q\x04") + "0";
  const std::string event = raw("}(h\x00h\x03h\x01K\x05h\x02K\x06u");
  for (int i = 0; i < 50; ++i) events += event;
  events += "h\x04" + raw("q\x02") + "0" + event;
  const std::string bytes =
      raw("\x80\x04") + keys + dict("segments", list(), "device_traces", list(events + "e")) + ".";
  EXPECT_THAT(error_of(bytes), HasSubstr("device_traces[0][50]: there is no 'size'"));
}

TEST(HostilePickle, SurvivesTruncationAtEveryByte) {
  std::string events = "](";
  for (int i = 0; i < 20; ++i) {
    events += dict("action",
                   str("alloc"),
                   "addr",
                   number(512),
                   "size",
                   raw("M\0\2"),
                   "stream",
                   raw("K\0"),
                   "frames",
                   list(dict("name", str("f"), "filename", str("x.py"), "line", "K\x03")));
  }
  const std::string block = dict("address", number(512), "size", "K\x05", "state", str("inactive"));
  const std::string segment = dict("device",
                                   raw("K\0"),
                                   "address",
                                   number(512),
                                   "total_size",
                                   "K\x05",
                                   "segment_type",
                                   str("small"),
                                   "blocks",
                                   list(block));
  const std::string whole =
      pickle(dict("segments", list(segment), "device_traces", list(events + "e")));
  ASSERT_TRUE(parse(whole)) << error_of(whole);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(parse(whole.substr(0, size))) << size;
  }
}

TEST(HostilePickle, SaysWhichFieldIsWrong) {
  EXPECT_EQ(error_of(with_entry(dict("action", str("alloc"), "addr", "K\x01", "size", str("big")))),
            "at byte 36: device_traces[0][0].size: expected an integer, found str");
  EXPECT_THAT(error_of(with_entry("K\x01")),
              HasSubstr("device_traces[0][0]: expected a dictionary, found int"));
  EXPECT_THAT(error_of(with_entry(dict("addr", "K\x01"))),
              HasSubstr("device_traces[0][0]: there is no 'action'"));
  EXPECT_THAT(error_of(with_entry(dict("action", str("alloc"), "addr", "\x88", "size", "K\x01"))),
              HasSubstr(".addr: expected an integer, found bool"));
  EXPECT_THAT(error_of(with_entry(
                  dict("action", str("alloc"), "addr", raw("J\xff\xff\xff\xff"), "size", "K\x01"))),
              HasSubstr(".addr: expected an integer from 0 on, found -1"));
  EXPECT_THAT(error_of(with_entry(dict("action", str("alloc"), "action", str("alloc")))),
              HasSubstr("the key 'action' comes twice"));
  EXPECT_THAT(error_of(with_entry("}(K\x01K\x01u")),
              HasSubstr("device_traces[0][0]: expected a string as key, found int"));
  EXPECT_THAT(error_of(pickle(dict("segments", "N", "device_traces", list()))),
              HasSubstr("segments: expected a list, found NoneType"));
}

TEST(HostilePickle, SaysALongNameInShort) {
  const std::string name = "X" + little_endian(5'000'000, 4) + std::string(5'000'000, 'z');
  const std::string said = error_of(with_settings("}(" + name + "N" + name + "Nu"));
  EXPECT_THAT(said, HasSubstr("zzz...' comes twice"));
  EXPECT_LT(said.size(), 300U);
}

TEST(HostilePickle, SaysWhenItIsNoSnapshot) {
  EXPECT_THAT(error_of(pickle("K\x01")),
              HasSubstr("a value of type int, and a memory snapshot is a"));
  EXPECT_THAT(error_of(pickle(dict("epoch", "K\x01"))), HasSubstr("it is not a memory snapshot"));
}

}  // namespace
}  // namespace headroom::trace
