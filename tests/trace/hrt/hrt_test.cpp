// .hrt: what is written is read, and nothing else is.
#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/error.h"
#include "headroom/trace/hrt/hrt_reader.h"
#include "headroom/trace/hrt/hrt_writer.h"
#include "headroom/trace/hrt/internal/crc32c.h"

#include "tests/trace/random_trace.h"

namespace headroom::trace {
namespace {

using testing::difference;
using ::testing::HasSubstr;
using testing::random_trace;

using File = std::vector<std::byte>;

std::string error_of(std::span<const std::byte> file) {
  const auto read = parse_hrt(file);
  return read ? "" : to_string(read.error());
}

TEST(Crc32c, GivesTheKnownValue) {
  const std::string_view text = "123456789";
  EXPECT_EQ(internal::crc32c(std::as_bytes(std::span(text))), 0xE3069283U);
}

TEST(Hrt, AnyTraceComesBackTheSame) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Trace trace = random_trace(seed, seed < 10 ? 5'000 : 50);
    std::string note = "none";
    const auto read = parse_hrt(write_hrt(trace), &note);
    ASSERT_TRUE(read) << seed << ": " << to_string(read.error());
    EXPECT_EQ(difference(trace, *read), "") << seed;
    EXPECT_EQ(note, "");
  }
}

TEST(Hrt, AnEmptyTraceComesBackEmpty) {
  const auto read = parse_hrt(write_hrt({}));
  ASSERT_TRUE(read);
  EXPECT_EQ(difference(Trace{}, *read), "");
}

TEST(Hrt, SmallBlocksReadLikeLargeOnes) {
  const Trace trace = random_trace(3, 2'000);
  const auto read = parse_hrt(write_hrt(trace, {.level = 1, .events_per_block = 7}));
  ASSERT_TRUE(read);
  EXPECT_EQ(difference(trace, *read), "");
}

// What packs extremely well is filled up, so that a reader can bound what it unpacks.
TEST(Hrt, EqualEventsAreWrittenAsAReaderAcceptsThem) {
  Trace trace;
  trace.devices.emplace_back();
  for (int i = 0; i < 100'000; ++i) trace.devices[0].events.push_back({});
  const File file = write_hrt(trace, {.level = 19});
  const auto read = parse_hrt(file);
  ASSERT_TRUE(read) << to_string(read.error());
  EXPECT_EQ(difference(trace, *read), "");
  EXPECT_LT(file.size(), 20'000U);
}

// --- Streaming -----------------------------------------------------------------------------------

TEST(HrtWriter, WritesWhatIsNewInTheTablesBeforeItIsReferredTo) {
  Trace tables;
  File file;
  HrtWriter writer(tables, [&](std::span<const std::byte> bytes) {
    file.insert(file.end(), bytes.begin(), bytes.end());
    return true;
  });
  writer.properties();
  Trace expected;
  expected.devices.push_back({.device = 2});
  for (std::uint32_t i = 0; i < 10; ++i) {
    const StringId name = tables.strings.intern("function " + std::to_string(i));
    const StackId stack = tables.stacks.intern(std::array{Frame{.name = name, .line = i}});
    const DetailsId details = tables.details.intern({.user_metadata = name});
    const Entry entry{.address = i * 512, .time_us = i, .stack = stack, .details = details};
    expected.devices[0].events.push_back(entry);
    writer.events({.device = 2}, std::array{entry});
    // Whoever opens the file now sees everything so far.
    std::string note;
    const auto read = parse_hrt(file, &note);
    ASSERT_TRUE(read) << to_string(read.error());
    EXPECT_EQ(read->devices, expected.devices);
    EXPECT_EQ(read->strings[name], tables.strings[name]);
    EXPECT_THAT(note, HasSubstr("was not closed"));
  }
  writer.device({.device = 2}, 7);
  writer.finish();
  EXPECT_EQ(writer.written_bytes(), file.size());
  expected.devices[0].dropped_events = 7;
  const auto read = parse_hrt(file);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->devices, expected.devices);
}

TEST(HrtWriter, StopsWhenItsSinkRefuses) {
  const Trace tables;
  int calls = 0;
  HrtWriter writer(tables, [&](std::span<const std::byte>) { return ++calls < 2; });
  writer.properties();
  writer.properties();
  writer.finish();
  EXPECT_EQ(calls, 2);
  EXPECT_FALSE(writer.ok());
}

TEST(HrtWriter, SymbolsTakeThePlaceOfRawFrames) {
  Trace tables;
  const StringId raw = tables.strings.intern("a.out+0x10");
  const StackId one = tables.stacks.intern(std::array{Frame{.name = raw}});
  const StringId outer = tables.strings.intern("outer()");
  const StackId two = tables.stacks.intern(std::array{Frame{.name = raw}, Frame{.name = outer}});
  File file;
  HrtWriter writer(tables, [&](std::span<const std::byte> bytes) {
    file.insert(file.end(), bytes.begin(), bytes.end());
    return true;
  });
  writer.events({}, std::array{Entry{.stack = one}, Entry{.stack = two}});
  const StringId inlined = tables.strings.intern("inlined()");
  const StringId inner = tables.strings.intern("inner()");
  const std::array symbols{
      FrameSymbols{.frame_id = 0, .frames = {{.name = inlined, .line = 3}, {.name = inner}}}};
  writer.symbols(symbols);
  writer.finish();

  const auto read = parse_hrt(file);
  ASSERT_TRUE(read) << to_string(read.error());
  const Events& events = read->devices[0].events;
  std::vector<std::string> names;
  for (const std::uint32_t id : read->stacks.frame_ids(events.stack(1))) {
    names.emplace_back(read->strings[read->stacks.frame(id).name]);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"inlined()", "inner()", "outer()"}));
  EXPECT_EQ(read->stacks.frame_ids(events.stack(0)).size(), 2U);
}

TEST(Hrt, ListsItsBlocksWithAndWithoutTheIndex) {
  const File file = write_hrt(random_trace(5, 500), {.events_per_block = 50});
  const auto with = list_hrt_blocks(file);
  ASSERT_TRUE(with);
  // Without the footer the index is not found, and the headers are walked over.
  const auto without = list_hrt_blocks(std::span(file).first(file.size() - 1));
  ASSERT_TRUE(without);
  ASSERT_EQ(with->size(), without->size());
  std::uint64_t events = 0;
  for (std::size_t i = 0; i < with->size(); ++i) {
    EXPECT_EQ((*with)[i].offset, (*without)[i].offset);
    EXPECT_EQ((*with)[i].kind, (*without)[i].kind);
    if ((*with)[i].kind == "events") events += (*with)[i].count;
  }
  EXPECT_EQ(events, parse_hrt(file)->event_count());
  EXPECT_EQ(with->back().kind, "index");
}

// --- Files that are not whole --------------------------------------------------------------------

TEST(Hrt, OpensWhereverItIsCut) {
  const Trace trace = random_trace(7, 100);
  const File file = write_hrt(trace, {.events_per_block = 16});
  std::size_t events_before = 0;
  for (std::size_t size = 0; size < file.size(); ++size) {
    std::string note;
    const auto read = parse_hrt(std::span(file).first(size), &note);
    if (size < 16) {
      EXPECT_FALSE(read) << size;
      continue;
    }
    ASSERT_TRUE(read) << size << ": " << to_string(read.error());
    EXPECT_NE(note, "") << size;
    EXPECT_GE(read->event_count(), events_before);
    events_before = read->event_count();
  }
  EXPECT_EQ(events_before, trace.event_count());
}

TEST(Hrt, ATailOfZerosIsACut) {
  File file = write_hrt(random_trace(7, 100), {.events_per_block = 16});
  const std::size_t whole = list_hrt_blocks(file)->at(6).offset;
  std::fill(file.begin() + static_cast<std::ptrdiff_t>(whole), file.end(), std::byte{0});
  std::string note;
  EXPECT_TRUE(parse_hrt(file, &note));
  EXPECT_NE(note, "");
}

TEST(Hrt, NoticesEveryFlippedBit) {
  const File file = write_hrt(random_trace(11, 60), {.events_per_block = 16});
  for (std::size_t i = 0; i < file.size() * 8; ++i) {
    File flipped = file;
    flipped[i / 8] ^= std::byte{static_cast<unsigned char>(1U << (i % 8))};
    std::string note;
    const auto read = parse_hrt(flipped, &note);
    ASSERT_TRUE(!read || !note.empty()) << "bit " << i % 8 << " of byte " << i / 8;
  }
}

TEST(Hrt, SaysWhichBlockIsDamagedAndWhere) {
  File file = write_hrt(random_trace(11, 300), {.events_per_block = 16});
  const auto blocks = list_hrt_blocks(file).value();
  const auto events =
      std::ranges::find_if(blocks, [](const HrtBlock& block) { return block.kind == "events"; });
  file[events->offset + 60] ^= std::byte{1};
  const auto read = parse_hrt(file);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().offset, events->offset);
  EXPECT_THAT(read.error().message,
              HasSubstr("block " + std::to_string(events - blocks.begin()) + " (events)"));
}

TEST(Hrt, SurvivesBytesThatAreAnything) {
  std::mt19937_64 random(5);
  const File file = write_hrt(random_trace(13, 60));
  for (int round = 0; round < 2'000; ++round) {
    File broken = file;
    for (std::uint64_t i = 1 + random() % 8; i > 0; --i) {
      broken[random() % broken.size()] = static_cast<std::byte>(random());
    }
    std::string note;
    (void)parse_hrt(broken, &note);
    (void)list_hrt_blocks(broken);
  }
}

TEST(Hrt, SaysWhatIsWrongWithOtherFiles) {
  EXPECT_THAT(error_of({}), HasSubstr("empty"));
  const std::string_view pickle = "\x80\x04}q\x01.";
  EXPECT_THAT(error_of(std::as_bytes(std::span(pickle))), HasSubstr("not a .hrt file"));
  File file = write_hrt({});
  file[8] = std::byte{7};
  EXPECT_THAT(error_of(file), HasSubstr("version 7, and this headroom reads version 1"));
}

TEST(Hrt, RefusesToWriteValuesThatNoReaderTakes) {
  Trace trace;
  Value nested;
  for (int i = 0; i < 500; ++i) nested = Value{Value::List{std::move(nested)}};
  trace.settings = nested;
  EXPECT_THROW((void)write_hrt(trace), InvalidArgument);
}

}  // namespace
}  // namespace headroom::trace
