// What each opcode of a pickle makes.
#include <cmath>
#include <string>
#include <variant>

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
using testing::parse;
using testing::pickle;
using testing::raw;
using testing::str;
using testing::with_settings;

Value read(const std::string& value, int protocol = 4) {
  const auto trace = parse(with_settings(value, protocol));
  EXPECT_TRUE(trace) << to_string(trace.error());
  return trace && trace->settings ? *trace->settings : Value{"not read"s};
}

Value integer(std::int64_t value) { return {value}; }
Value text(std::string value) { return {std::move(value)}; }

TEST(PickleOpcodes, ReadEveryProtocolFrom2To5) {
  for (int protocol = 2; protocol <= 5; ++protocol) EXPECT_EQ(read("K\x07", protocol), integer(7));
  EXPECT_THAT(error_of(with_settings("N", 1)),
              HasSubstr("at byte 0: opcode PROTO asks for protocol 1"));
  EXPECT_THAT(error_of(with_settings("N", 6)), HasSubstr("protocol 6, and 2 to 5 are read"));
  EXPECT_THAT(error_of("(lp0\n."), HasSubstr("not a pickle of protocol 2 to 5"));
}

TEST(PickleOpcodes, ReadIntegersOfEverySize) {
  EXPECT_EQ(read(raw("K\xff")), integer(255));
  EXPECT_EQ(read(raw("M\x00\x80")), integer(32768));
  EXPECT_EQ(read(raw("J\xff\xff\xff\xff")), integer(-1));
  EXPECT_EQ(read(raw("\x8a\x00")), integer(0));
  EXPECT_EQ(read(raw("\x8a\x01\x80")), integer(-128));
  EXPECT_EQ(read(raw("\x8a\x02\xff\x00")), integer(255));
  EXPECT_EQ(read("\x8a\x08" + little_endian(1ULL << 62U, 8)), integer(std::int64_t{1} << 62U));
  EXPECT_EQ(read("\x8a\x08" + little_endian(1ULL << 63U, 8)), integer(INT64_MIN));
  EXPECT_EQ(read("\x8a\x09" + little_endian(UINT64_MAX, 8) + raw("\x00")), Value{UINT64_MAX});
  EXPECT_EQ(read("\x8b" + little_endian(3, 4) + raw("\x01\x00\x00")), integer(1));
  EXPECT_EQ(read("\x8b" + little_endian(20, 4) + std::string(20, '\xff')), integer(-1));
}

TEST(PickleOpcodes, RefuseIntegersAbove64Bits) {
  EXPECT_THAT(error_of(with_settings(raw("\x8a\x09\0\0\0\0\0\0\0\0\x01"))),
              HasSubstr("LONG1 holds an integer of more than 64 bits"));
  EXPECT_THAT(error_of(with_settings(raw("\x8a\x09\0\0\0\0\0\0\0\0\xff"))),
              HasSubstr("more than 64 bits"));
}

TEST(PickleOpcodes, ReadFloatsBoolsAndNone) {
  EXPECT_EQ(read(raw("G\x3f\xf8\x00\x00\x00\x00\x00\x00")), Value{1.5});
  EXPECT_EQ(read("\x88"), Value{true});
  EXPECT_EQ(read("\x89"), Value{false});
  EXPECT_EQ(read("N"), Value{});
}

TEST(PickleOpcodes, ReadStringsOfEveryKind) {
  EXPECT_EQ(read(str("caf\xc3\xa9")), text("caf\xc3\xa9"));
  EXPECT_EQ(read("X" + little_endian(3, 4) + "abc", 2), text("abc"));
  EXPECT_EQ(read("\x8d" + little_endian(3, 8) + "abc"), text("abc"));
  EXPECT_EQ(read("U\x03"
                 "abc",
                 2),
            text("abc"));
  EXPECT_EQ(read("T" + little_endian(3, 4) + "abc", 2), text("abc"));
  EXPECT_EQ(read(str("\xed\xb3\xbf")), text("\xed\xb3\xbf"));  // a byte of an odd file name
}

TEST(PickleOpcodes, RefuseStringsThatAreNotUtf8) {
  for (const char* wrong :
       {"\xff", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xf5\x80\x80\x80", "a\x80"}) {
    EXPECT_THAT(error_of(with_settings(str(wrong))), HasSubstr("that is not UTF-8")) << wrong;
  }
  EXPECT_THAT(error_of(with_settings("U\x01\xe9", 2)), HasSubstr("that is not ASCII"));
}

TEST(PickleOpcodes, ReadContainers) {
  const Value one_two{Value::List{integer(1), integer(2)}};
  EXPECT_EQ(read("](K\x01K\x02"
                 "e"),
            one_two);
  EXPECT_EQ(read("]K\x01"
                 "aK\x02"
                 "a"),
            one_two);
  EXPECT_EQ(read("(K\x01K\x02l"), one_two);
  EXPECT_EQ(read("](e"), Value{Value::List{}});  // as PyTorch's C++ writes an empty list
  EXPECT_EQ(read("}(u"), Value{Value::Dict{}});
  EXPECT_EQ(read(")"), Value{Value::Tuple{}});
  EXPECT_EQ(read("K\x01\x85"), (Value{Value::Tuple{{integer(1)}}}));
  EXPECT_EQ(read("K\x01K\x02\x86"), (Value{Value::Tuple{{integer(1), integer(2)}}}));
  EXPECT_EQ(read("K\x01K\x02K\x03\x87"),
            (Value{Value::Tuple{{integer(1), integer(2), integer(3)}}}));
  EXPECT_EQ(read("(K\x01t"), (Value{Value::Tuple{{integer(1)}}}));
  const Value members{Value::Dict{{"a", integer(1)}, {"b", integer(2)}}};
  EXPECT_EQ(read("}" + str("a") + "K\x01s" + str("b") + "K\x02s"), members);
  EXPECT_EQ(read("}(" + str("a") + "K\x01u(" + str("b") + "K\x02u"), members);
  EXPECT_EQ(read("(" + str("a") + "K\x01" + str("b") +
                 "K\x02"
                 "d"),
            members);
}

TEST(PickleOpcodes, ReadTheMemo) {
  const Value twice{Value::List{text("x"), text("x")}};
  EXPECT_EQ(read("](" + str("x") +
                 "\x94h\x00"
                 "e"s),
            twice);
  EXPECT_EQ(read("](" + str("x") + raw("q\x07h\x07") + "e"), twice);
  EXPECT_EQ(read("](" + str("x") + "r" + little_endian(UINT32_MAX, 4) + "j" +
                 little_endian(UINT32_MAX, 4) + "e"),
            twice);
  EXPECT_THAT(error_of(with_settings("h\x05")), HasSubstr("BINGET asks for number 5 of the memo"));
}

TEST(PickleOpcodes, MemoizeNumbersByCountAsPythonDoes) {
  // Two are there (0 and 9), so MEMOIZE puts number 2.
  EXPECT_EQ(read("](" + str("a") + raw("q\x00") + str("b") + raw("q\x09") + str("c") + "\x94" +
                 raw("h\x02"
                     "e")),
            (Value{Value::List{text("a"), text("b"), text("c"), text("c")}}));
}

TEST(PickleOpcodes, ReadWhatMovesTheStack) {
  EXPECT_EQ(read("K\x01K\x02"
                 "0"),
            integer(1));
  EXPECT_EQ(read("K\x01(K\x02K\x03"
                 "1"),
            integer(1));
  EXPECT_EQ(read("K\x01(0"), integer(1));  // POP of a mark
  EXPECT_EQ(read("K\x01"
                 "2\x86"),
            (Value{Value::Tuple{{integer(1), integer(1)}}}));
}

TEST(PickleOpcodes, SkipFrames) {
  EXPECT_EQ(read("\x95" + little_endian(2, 8) + "K\x01"), integer(1));
  EXPECT_THAT(error_of(with_settings("\x95" + little_endian(1000, 8) + "K\x01")),
              HasSubstr("opcode FRAME wants more bytes than are left"));
}

TEST(PickleOpcodes, FollowAListThatGrowsAfterItWasUsed) {
  // settings = (a, b) where b is appended to after a was.
  EXPECT_EQ(read("]\x94]\x94\x86\x94"
                 "0h\x00K\x01"
                 "a0h\x01K\x02"
                 "a0h\x00K\x03"
                 "a0h\x02"s),
            (Value{Value::Tuple{
                {Value{Value::List{integer(1), integer(3)}}, Value{Value::List{integer(2)}}}}}));
}

TEST(PickleOpcodes, TakeZerosBehindTheEndAndNoteTheRest) {
  std::string note;
  EXPECT_TRUE(parse(with_settings("N") + raw("\0\0\0"), &note));
  EXPECT_EQ(note, "");
  EXPECT_TRUE(parse(with_settings("N") + "junk", &note));
  EXPECT_EQ(note, "4 bytes behind the end of the pickle were ignored");
}

}  // namespace
}  // namespace headroom::trace
