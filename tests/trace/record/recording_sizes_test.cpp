// The recorded runs of PyTorch as .hrt: at most 4 bytes an event and 4 KiB a file, without stacks.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/trace/file.h"
#include "headroom/trace/hrt/hrt_reader.h"
#include "headroom/trace/hrt/hrt_writer.h"

#include "tests/memory/recording.h"
#include "tests/trace/random_trace.h"

namespace headroom::trace {
namespace {

constexpr double kMostEventBytes = 4;
constexpr double kMostFileBytes = 4096;

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".zst") paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  return paths;
}

// The flattened recordings have no times, so each event comes some microseconds after the other, as
// they really did.
Trace from_lines(const std::string& path) {
  const auto recording = memory::testing::read_recording(path);
  Trace trace;
  trace.devices.emplace_back();
  std::int64_t time_us = 1'700'000'000'000'000;
  std::uint64_t noise = 1;
  for (const auto& event : recording.events) {
    noise = noise * 6364136223846793005U + 1442695040888963407U;
    time_us += static_cast<std::int64_t>((noise >> 40U) % 16);
    trace.devices[0].events.push_back({.action = event.action,
                                       .address = event.address,
                                       .size_bytes = event.size_bytes,
                                       .stream = static_cast<std::uint64_t>(event.stream),
                                       .time_us = time_us});
  }
  return trace;
}

Trace without_stacks(const Trace& trace) {
  Trace out;
  out.settings = trace.settings;
  out.annotations = trace.annotations;
  for (StringId id = 1; id < trace.strings.size() && !trace.annotations.empty(); ++id) {
    out.strings.intern(trace.strings[id]);
  }
  for (const DeviceTrace& device : trace.devices) {
    out.devices.push_back({.device = device.device, .rank = device.rank});
    for (std::size_t i = 0; i < device.events.size(); ++i) {
      Entry entry = device.events[i];
      entry.stack = 0;
      entry.details = 0;
      out.devices.back().events.push_back(entry);
    }
  }
  out.segments = trace.segments;
  for (Segment& segment : out.segments) {
    segment.stack = segment.details = 0;
    for (Block& block : segment.blocks) block.stack = block.details = 0;
  }
  return out;
}

void expect_small(const std::string& path, const Trace& trace) {
  const std::vector<std::byte> file = write_hrt(trace);
  const auto events = static_cast<double>(trace.event_count());
  EXPECT_LE(static_cast<double>(file.size()), kMostEventBytes * events + kMostFileBytes) << path;
  std::printf("%-60s %9.0f events  %9zu bytes  %.2f an event\n",
              path.c_str(),
              events,
              file.size(),
              static_cast<double>(file.size()) / events);
  const auto read = parse_hrt(file);
  ASSERT_TRUE(read) << to_string(read.error());
  EXPECT_EQ(testing::difference(trace, *read), "") << path;
}

TEST(RecordingSizes, OfTheFlattenedRecordings) {
  const auto paths = files_in(HEADROOM_TEST_RECORDINGS);
  EXPECT_EQ(paths.size(), 12U);
  for (const std::string& path : paths) expect_small(path, from_lines(path));
}

// HEADROOM_TRACES=DIR: every snapshot there, the final state included; and with its stacks all of
// it comes back.
TEST(RecordingSizes, OfSnapshots) {
  const char* folder = std::getenv("HEADROOM_TRACES");
  if (folder == nullptr) GTEST_SKIP() << "HEADROOM_TRACES names no folder";
  for (const std::string& path : files_in(folder)) {
    const auto read = read_trace(path);
    ASSERT_TRUE(read) << path << ": " << to_string(read.error());
    expect_small(path, without_stacks(read->trace));
    const auto again = parse_hrt(write_hrt(read->trace));
    ASSERT_TRUE(again) << path << ": " << to_string(again.error());
    EXPECT_EQ(testing::difference(read->trace, *again), "") << path;
  }
}

}  // namespace
}  // namespace headroom::trace
