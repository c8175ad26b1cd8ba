#include "headroom/base/bytes.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace headroom {
namespace {

TEST(ParseBytes, ReadsWholeFractionalAndNamedSizes) {
  struct Case {
    std::string text;
    std::uint64_t bytes;
  };
  const std::vector<Case> cases{{"0", 0},
                                {"512", 512},
                                {"512B", 512},
                                {"20MiB", 20_MiB},
                                {"20 MiB", 20_MiB},
                                {"20mib", 20_MiB},
                                {"1.5GiB", 1536_MiB},
                                {"0.5KiB", 512},
                                {"1EiB", std::uint64_t{1} << 60U},
                                {"15EiB", std::uint64_t{15} << 60U},
                                {"18446744073709551615", UINT64_MAX}};
  for (const Case& c : cases) {
    const auto parsed = parse_bytes(c.text);
    ASSERT_TRUE(parsed) << c.text << ": " << parsed.error();
    EXPECT_EQ(*parsed, c.bytes) << c.text;
  }
}

TEST(ParseBytes, RefusesWhatIsNotASizeAndSaysWhatToWrite) {
  for (const std::string text : {"",
                                 " ",
                                 "lots",
                                 "-1",
                                 "1.",
                                 ".5GiB",
                                 "1.5",
                                 "1.5B",
                                 "16EiB",
                                 "18446744073709551616",
                                 "15.99999999999999999999EiB",
                                 "1e9",
                                 "20 MiB extra",
                                 "20XiB",
                                 "0x10",
                                 "20  MiB"}) {
    const auto parsed = parse_bytes(text);
    ASSERT_FALSE(parsed) << text << " gave " << *parsed;
    EXPECT_NE(parsed.error().find("'" + text + "'"), std::string::npos) << parsed.error();
    EXPECT_NE(parsed.error().find("MiB"), std::string::npos) << parsed.error();
  }
}

TEST(ParseBytes, OffersTheBinaryUnitForADecimalOne) {
  EXPECT_NE(parse_bytes("20MB").error().find("20MiB?"), std::string::npos);
  EXPECT_NE(parse_bytes("1.5g").error().find("1.5GiB?"), std::string::npos);
}

TEST(FormatBytes, PicksTheUnitAndDropsZeros) {
  EXPECT_EQ(format_bytes(0), "0B");
  EXPECT_EQ(format_bytes(1023), "1023B");
  EXPECT_EQ(format_bytes(1024), "1KiB");
  EXPECT_EQ(format_bytes(1536), "1.5KiB");
  EXPECT_EQ(format_bytes(20_MiB), "20MiB");
  EXPECT_EQ(format_bytes(150'109'880'320), "139.8GiB");
  EXPECT_EQ(format_bytes(UINT64_MAX), "16EiB");
}

TEST(FormatBytes, NeverPrintsAThousandAndTwentyFourOfAUnit) {
  EXPECT_EQ(format_bytes(1_MiB - 1), "1MiB");
  EXPECT_EQ(format_bytes(1_GiB - 1), "1GiB");
}

TEST(FormatBytes, IsReadBackWithinItsRounding) {
  for (std::uint64_t bytes = 1; bytes < 8_TiB; bytes = bytes * 7 / 3 + 1) {
    const auto back = parse_bytes(format_bytes(bytes));
    ASSERT_TRUE(back) << format_bytes(bytes);
    EXPECT_NEAR(static_cast<double>(*back),
                static_cast<double>(bytes),
                static_cast<double>(bytes) * 0.0051);
  }
}

TEST(FormatCount, GroupsDigits) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(20'971'520), "20,971,520");
}

TEST(Bytes, OfOtherProgramsHaveTheLongestUnitThatIsThere) {
  const auto bytes_of = [](std::string_view text) {
    const auto unit = leading_byte_unit(text);
    return unit ? unit->bytes : 0;
  };
  EXPECT_EQ(bytes_of("GiB free"), 0x1p30);
  EXPECT_EQ(bytes_of("MB"), 0x1p20);
  EXPECT_EQ(bytes_of("kB,"), 1024);
  EXPECT_EQ(bytes_of("bytes"), 1);
  EXPECT_EQ(bytes_of("B"), 1);
  EXPECT_EQ(bytes_of(" MiB"), 0);
  EXPECT_EQ(bytes_of("M"), 0);
  EXPECT_EQ(bytes_of(""), 0);
}

}  // namespace
}  // namespace headroom
