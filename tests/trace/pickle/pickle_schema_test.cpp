// What the fields of a snapshot become in a Trace, in the forms of all versions of PyTorch.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/trace/pickle/pickle_writer.h"

#include "tests/trace/pickle/pickle_text.h"

namespace headroom::trace {
namespace {

using namespace std::string_literals;
using memory::BlockState;
using memory::Category;
using testing::dict;
using testing::error_of;
using testing::list;
using testing::number;
using testing::parse;
using testing::pickle;
using testing::raw;
using testing::str;
using testing::with_entry;

Trace read_snapshot(const std::string& bytes) {
  auto trace = parse(bytes);
  EXPECT_TRUE(trace) << to_string(trace.error());
  return trace ? *std::move(trace) : Trace{};
}

Trace read_again(const Trace& trace) {
  const auto bytes = write_pickle(trace);
  EXPECT_TRUE(bytes) << to_string(bytes.error());
  return bytes ? read_snapshot(*bytes) : Trace{};
}

const std::string kFrame = dict("name", str("forward"), "filename", str("net.py"), "line", "K\x0c");

std::string segment(const std::string& blocks) {
  return dict("device",
              "K\x01",
              "address",
              number(4096),
              "total_size",
              "M\x00\x02"s,
              "segment_type",
              str("large"),
              "blocks",
              blocks);
}

TEST(PickleSchema, ReadsAnEntryWithAllItsFields) {
  const Trace trace = read_snapshot(with_entry(dict("action",
                                                    str("free_requested"),
                                                    "addr",
                                                    number(1ULL << 63U),
                                                    "size",
                                                    raw("M\x00\x02"),
                                                    "stream",
                                                    number(94'000'000'000'000),
                                                    "time_us",
                                                    number(1'794'705'018'527'961),
                                                    "compile_context",
                                                    str("N/A"),
                                                    "user_metadata",
                                                    str("step/1"),
                                                    "pool_id",
                                                    "K\x02K\x03\x86",
                                                    "category",
                                                    str("gradient"),
                                                    "frames",
                                                    list(kFrame),
                                                    "forward_frames",
                                                    list(str("a"), str("b")))));
  ASSERT_EQ(trace.event_count(), 1U);
  const Entry entry = trace.devices[0].events[0];
  EXPECT_EQ(entry.action, Action::kFreeRequested);
  EXPECT_EQ(entry.address, 1ULL << 63U);
  EXPECT_EQ(entry.size_bytes, 512U);
  EXPECT_EQ(entry.stream, 94'000'000'000'000U);
  EXPECT_EQ(entry.time_us, 1'794'705'018'527'961);
  ASSERT_EQ(trace.stacks.frame_ids(entry.stack).size(), 1U);
  const Frame& frame = trace.stacks.frame(trace.stacks.frame_ids(entry.stack)[0]);
  EXPECT_EQ(trace.strings[frame.name], "forward");
  EXPECT_EQ(trace.strings[frame.file], "net.py");
  EXPECT_EQ(frame.line, 12);
  const Details& details = trace.details[entry.details];
  EXPECT_EQ(trace.strings[details.compile_context.value()], "N/A");
  EXPECT_EQ(trace.strings[details.user_metadata.value()], "step/1");
  EXPECT_EQ(details.pool, (memory::PoolId{.graph = 2, .user = 3}));
  EXPECT_EQ(details.category, Category::kGradient);
  EXPECT_EQ(details.forward_frames.value().size(), 2U);
  EXPECT_TRUE(details.has_time);
  EXPECT_EQ(details.extras, 0U);
}

TEST(PickleSchema, TellsAbsentFromEmpty) {
  const Trace bare =
      read_snapshot(with_entry(dict("action", str("alloc"), "addr", "K\x01", "size", "K\x02")));
  const Entry entry = bare.devices[0].events[0];
  EXPECT_EQ(entry.stack, 0U);
  EXPECT_FALSE(bare.details[entry.details].has_time);
  EXPECT_FALSE(bare.details[entry.details].user_metadata);
  const Trace empty = read_snapshot(with_entry(dict("action",
                                                    str("alloc"),
                                                    "addr",
                                                    "K\x01",
                                                    "size",
                                                    "K\x02",
                                                    "frames",
                                                    list(),
                                                    "user_metadata",
                                                    str(""))));
  EXPECT_NE(empty.devices[0].events[0].stack, 0U);
  EXPECT_TRUE(empty.details[empty.devices[0].events[0].details].user_metadata);
}

TEST(PickleSchema, ReadsTheFreeBytesOfAnOom) {
  const Trace trace = read_snapshot(
      with_entry(dict("action", str("oom"), "device_free", "K\x09", "size", "K\x02")));
  EXPECT_EQ(trace.devices[0].events[0].action, Action::kOutOfMemory);
  EXPECT_EQ(trace.devices[0].events[0].address, 9U);
}

TEST(PickleSchema, KeepsWhatItHasNoNameFor) {
  const Trace trace = read_snapshot(pickle(dict("segments",
                                                list(),
                                                "device_traces",
                                                list(list(dict("action",
                                                               str("defrag"),
                                                               "addr",
                                                               "K\x01",
                                                               "size",
                                                               "K\x02",
                                                               "weight",
                                                               "K\x01K\x02\x86"),
                                                          dict("action",
                                                               str("alloc"),
                                                               "addr",
                                                               "K\x01",
                                                               "size",
                                                               "K\x02",
                                                               "category",
                                                               str("TEMPORARY")))),
                                                "later",
                                                str("on"))));
  const Entry entry = trace.devices[0].events[0];
  EXPECT_EQ(entry.action, Action::kUnknown);
  const Value& extras = trace.extras[trace.details[entry.details].extras];
  EXPECT_EQ(extras.find("action")->data, Value{"defrag"s}.data);
  EXPECT_TRUE(std::holds_alternative<Value::Tuple>(extras.find("weight")->data));
  const Entry other = trace.devices[0].events[1];
  EXPECT_FALSE(trace.details[other.details].category);
  EXPECT_TRUE(trace.extras[trace.details[other.details].extras].find("category"));
  EXPECT_TRUE(trace.extras[trace.top_level_extras].find("later"));
  const Trace again = read_again(trace);
  EXPECT_EQ(again.devices, trace.devices);
  EXPECT_EQ(again.extras, trace.extras);
}

TEST(PickleSchema, ReadsSegmentsAndBlocks) {
  const std::string block = dict("address",
                                 number(4096),
                                 "size",
                                 raw("M\x00\x02"),
                                 "requested_size",
                                 "K\x05",
                                 "state",
                                 str("active_pending_free"),
                                 "frames",
                                 list(kFrame));
  const Trace trace = read_snapshot(pickle(dict("segments",
                                                list(dict("device",
                                                          raw("K\x00"),
                                                          "address",
                                                          number(4096),
                                                          "total_size",
                                                          raw("M\x00\x02"),
                                                          "allocated_size",
                                                          raw("K\x00"),
                                                          "active_size",
                                                          raw("M\x00\x02"),
                                                          "requested_size",
                                                          "K\x05",
                                                          "stream",
                                                          "K\x07",
                                                          "segment_type",
                                                          str("small"),
                                                          "segment_pool_id",
                                                          raw("K\x00K\x01\x86"),
                                                          "is_expandable",
                                                          "\x88",
                                                          "frames",
                                                          list(),
                                                          "blocks",
                                                          list(block))),
                                                "device_traces",
                                                list(list()))));
  ASSERT_EQ(trace.segments.size(), 1U);
  const Segment& found = trace.segments[0];
  EXPECT_EQ(found.size_bytes, 512U);
  EXPECT_EQ(found.active_bytes, 512U);
  EXPECT_EQ(found.stream, 7U);
  EXPECT_TRUE(found.is_small);
  EXPECT_EQ(found.is_expandable, true);
  EXPECT_EQ(found.pool, (memory::PoolId{.graph = 0, .user = 1}));
  ASSERT_EQ(found.blocks.size(), 1U);
  EXPECT_EQ(found.blocks[0].state, BlockState::kPendingFree);
  EXPECT_EQ(found.blocks[0].requested_bytes, 5U);
  EXPECT_EQ(read_again(trace).segments, trace.segments);
}

TEST(PickleSchema, ReadsOldForms) {
  const std::string block =
      dict("size",
           raw("M\x00\x02"),
           "state",
           str("active_awaiting_free"),
           "history",
           list(dict("addr", number(4096), "real_size", "K\x05", "frames", list(kFrame))));
  const Trace bare = read_snapshot(pickle(list(segment(list(block)))));
  EXPECT_TRUE(bare.is_bare_list);
  ASSERT_EQ(bare.segments.size(), 1U);
  const Segment& found = bare.segments[0];
  EXPECT_FALSE(found.pool);
  EXPECT_FALSE(found.is_expandable);
  EXPECT_FALSE(found.allocated_bytes);
  EXPECT_EQ(found.blocks.at(0).state, BlockState::kPendingFree);
  EXPECT_EQ(found.blocks[0].requested_bytes, 5U);
  EXPECT_EQ(found.blocks[0].address, 4096U);
  EXPECT_NE(found.blocks[0].stack, 0U);
  EXPECT_EQ(read_again(bare).segments, bare.segments);
}

TEST(PickleSchema, ReadsPinnedMemory) {
  const std::string entry = dict("action", str("alloc"), "addr", "K\x01", "size", "K\x02");
  const auto with_host = [&](const std::string& traces) {
    return read_snapshot(pickle(dict("segments",
                                     list(),
                                     "device_traces",
                                     list(list()),
                                     "host_segments",
                                     list(segment(list())),
                                     "host_traces",
                                     traces)));
  };
  const Trace flat = with_host(list(entry));
  EXPECT_TRUE(flat.has_host);
  EXPECT_TRUE(flat.segments.at(0).is_host);
  ASSERT_EQ(flat.devices.size(), 2U);
  EXPECT_TRUE(flat.devices[1].is_host);
  EXPECT_EQ(flat.devices[1].device, -1);
  EXPECT_EQ(read_again(flat).devices, flat.devices);
  const Trace nested = with_host(list(list(entry), list()));
  EXPECT_EQ(nested.devices.size(), 3U);
  EXPECT_EQ(read_again(nested).devices, nested.devices);
}

TEST(PickleSchema, ReadsAnnotations) {
  const Trace trace = read_snapshot(pickle(dict("segments",
                                                list(),
                                                "device_traces",
                                                list(),
                                                "external_annotations",
                                                list(dict("name",
                                                          str("forward"),
                                                          "stage",
                                                          str("START"),
                                                          "device",
                                                          raw("K\x00"),
                                                          "time_us",
                                                          "K\x09"),
                                                     dict("name",
                                                          str("forward"),
                                                          "stage",
                                                          str("END"),
                                                          "device",
                                                          raw("K\x00"),
                                                          "time_us",
                                                          "K\x0a")))));
  EXPECT_TRUE(trace.has_annotations);
  ASSERT_EQ(trace.annotations.size(), 2U);
  EXPECT_TRUE(trace.annotations[0].is_start);
  EXPECT_FALSE(trace.annotations[1].is_start);
  EXPECT_EQ(trace.annotations[1].time_us, 10);
  EXPECT_EQ(read_again(trace).annotations, trace.annotations);
}

TEST(PickleWriter, CompletesOurOwnRecordingsForTheViewer) {
  Trace trace;
  trace.origin = Origin::kHeadroom;
  trace.producer = "headroom 0.1.0";
  const StringId path = trace.strings.intern("layer/0");
  const DetailsId details =
      trace.details.intern({.user_metadata = path, .category = Category::kActivation});
  DeviceTrace device{.device = 1, .rank = 3};
  device.events.push_back({.address = 4096, .size_bytes = 5, .details = details});
  device.dropped_events = 17;
  trace.devices.push_back(device);
  Segment segment{.device = 1, .rank = 3, .address = 4096, .size_bytes = 1024};
  segment.blocks = {{.size_bytes = 512, .requested_bytes = 5, .state = BlockState::kAllocated},
                    {.size_bytes = 512}};
  trace.segments.push_back(segment);

  const Trace again = read_again(trace);
  EXPECT_EQ(again.origin, Origin::kHeadroom);
  EXPECT_EQ(again.producer, trace.producer);
  ASSERT_EQ(again.devices.size(), 2U);  // a list for device 0, too
  EXPECT_EQ(again.devices[1].events.size(), 1U);
  EXPECT_EQ(again.devices[1].rank, 3);
  const Details& found = again.details[again.devices[1].events.details(0)];
  EXPECT_EQ(found.category, Category::kActivation);
  EXPECT_EQ(again.strings[found.user_metadata.value()], "layer/0");
  const Segment& written = again.segments.at(0);
  EXPECT_EQ(written.allocated_bytes, 512U);
  EXPECT_EQ(written.active_bytes, 512U);
  EXPECT_EQ(written.requested_bytes, 5U);
  EXPECT_EQ(written.is_expandable, false);
  EXPECT_EQ(written.blocks.at(1).address, 4096U + 512U);
  EXPECT_NE(written.blocks[1].stack, 0U);
}

TEST(PickleWriter, RefusesSeveralRanks) {
  Trace trace;
  trace.devices = {DeviceTrace{.rank = 0}, DeviceTrace{.rank = 1}};
  const auto bytes = write_pickle(trace);
  ASSERT_FALSE(bytes);
  EXPECT_EQ(bytes.error().message,
            "the recording has several ranks, and a PyTorch snapshot holds one: write .hrt");
}

}  // namespace
}  // namespace headroom::trace
