// Tables of buffers: what is read, what is refused and with which words.
#include "headroom/solve/packing_file.h"

#include <string>

#include <gtest/gtest.h>

namespace headroom::solve {
namespace {

std::string fault(std::string_view text) {
  const auto table = parse_packing(text);
  return table ? "" : std::to_string(table.error().line) + ": " + table.error().message;
}

TEST(PackingFile, ReadsColumnsInAnyOrder) {
  const auto table = parse_packing(
      "\xEF\xBB\xBFsize,note,lower,upper,id,hint,alignment\r\n"
      "10,first one,0,5,a,-1,\r\n"
      "\n"
      " 20 , , 5 , 18446744073709551615 , b , 7 , 64 \n");
  ASSERT_TRUE(table.has_value()) << table.error().message;
  ASSERT_EQ(table->buffers.size(), 2U);
  EXPECT_EQ(table->buffers[0].size_bytes, 10U);
  EXPECT_EQ(table->buffers[0].alignment, 1U);
  EXPECT_FALSE(table->buffers[0].hint_offset.has_value());
  EXPECT_EQ(table->buffers[1].upper, UINT64_MAX);
  EXPECT_EQ(table->buffers[1].alignment, 64U);
  EXPECT_EQ(table->buffers[1].hint_offset, 7U);
}

TEST(PackingFile, WritesTheSameColumnsAndTheOffset) {
  const auto table = parse_packing("id,lower,upper,size,why\n1,0,2,5,because\n2,1,3,5,\n");
  ASSERT_TRUE(table.has_value());
  const std::string text = solution_text(*table, {0, 5});
  EXPECT_EQ(text, "id,lower,upper,size,why,offset\n1,0,2,5,because,0\n2,1,3,5,,5\n");
  // A solution is a problem again, whose offsets are renewed.
  const auto again = parse_packing(text);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(solution_text(*again, {0, 5}), text);
}

TEST(PackingFile, SaysWhatIsWrongAndWhere) {
  EXPECT_EQ(fault(""), "1: it is empty; the first line names the columns: id,lower,upper,size");
  EXPECT_EQ(fault("\n\n"), "2: it is empty; the first line names the columns: id,lower,upper,size");
  EXPECT_EQ(fault("id,lower,upper,size\n"), "1: it has no buffers; add a line for each");
  EXPECT_EQ(fault("id,lower,uper,size\n"), "1: there is no column 'upper'; is 'uper' meant?");
  EXPECT_EQ(fault("id,start\n"),
            "1: there is no column 'lower'; the first line is to name id, lower, upper and size");
  EXPECT_EQ(fault("0,1,2,3\n"),
            "1: a line of numbers where the columns should be named; put id,lower,upper,size above "
            "it");
  EXPECT_EQ(fault("id,lower,upper,size,size\n"), "1: column 'size' is there twice; keep one");
  const std::string header = "id,lower,upper,size,alignment,hint\n";
  EXPECT_EQ(fault(header + "1,0,1,5\n"),
            "2: it has 4 values, and the first line 6 columns; make them agree");
  EXPECT_EQ(fault(header + ",0,1,5,,\n"), "2: its id is empty; give each buffer a name of its own");
  EXPECT_EQ(fault(header + "1,0,1,5,,\n\n1,0,1,5,,\n"),
            "4: id '1' is that of line 2 already; give each buffer a name of its own");
  EXPECT_EQ(fault(header + "1,3,3,5,,\n"), "2: it lives from 3 to 3; upper must be above lower");
  EXPECT_EQ(fault(header + "1,0,1,-5,,\n"), "2: size '-5' is negative; count from 0");
  EXPECT_EQ(fault(header + "1,0,1,5.5,,\n"), "2: size '5.5' is no whole number; write digits only");
  EXPECT_EQ(fault(header + "1,0,1,20MiB,,\n"),
            "2: size '20MiB' is no whole number; write digits only");
  EXPECT_EQ(fault(header + "1,0,1,,,\n"), "2: size is empty; write a number");
  EXPECT_EQ(fault(header + "1,0,1,18446744073709551616,,\n"),
            "2: size '18446744073709551616' is 2^64 or more; write a smaller number");
  EXPECT_EQ(fault(header + "1,0,1,5,0,\n"), "2: its alignment is 0; write 1 for none");
  EXPECT_EQ(fault(header + "1,0,1,4611686018427387904,,\n"),
            "2: up to here the sizes add up to more than 2^62 bytes; give them in bytes, or all in "
            "a larger unit");
}

TEST(PackingFile, QuotesNoMoreThanALine) {
  const std::string long_id(1'000'000, 'x');
  EXPECT_LT(fault("id,lower,upper,size\n" + long_id + ",0,1,a\n").size(), 200U);
  EXPECT_LT(fault("id,lower,upper,size\n1,0,1," + long_id + "\n").size(), 300U);
}

}  // namespace
}  // namespace headroom::solve
