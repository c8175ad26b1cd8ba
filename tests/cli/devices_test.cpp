// `headroom devices` step by step, on devices described by hand. cli_test.cpp runs it for real.
#include "cli/devices/devices.h"

#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "headroom/base/bytes.h"
#include "headroom/report/text.h"

#include "tests/cli/sample_devices.h"
#include "tests/support/golden.h"
#include "tests/support/json_schema.h"

namespace headroom::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using headroom::testing::expect_golden;
using headroom::testing::schema_mismatches;

constexpr const char* kNoDriver = "no NVIDIA driver on this machine (libcuda.so.1 is not there)";

DevicesReport laptop(bool is_measured = false) {
  return {.devices = {sample_laptop(is_measured)}, .unavailable = {{"cuda", kNoDriver}}};
}

DevicesReport server(bool is_measured = false) {
  return {.devices = {sample_laptop(is_measured),
                      sample_h200(0, is_measured),
                      sample_h200(1, is_measured)}};
}

int widest_line(const std::string& text) {
  int widest = 0;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = text.find('\n', start);
    widest = std::max(widest, report::display_width(text.substr(start, end - start)));
    start = end + 1;
  }
  return widest;
}

nlohmann::json schema() {
  std::ifstream in(HEADROOM_SOURCE_DIR "/docs/format/devices.schema.json");
  return nlohmann::json::parse(in);
}

TEST(DevicesGolden, ALaptop) {
  expect_golden("devices/laptop.txt", draw_devices(laptop(), {}));
  expect_golden("devices/laptop-measured.txt", draw_devices(laptop(true), {}));
  expect_golden("devices/laptop.json", devices_json(laptop(true)));
}

TEST(DevicesGolden, AServerWithTwoCards) {
  expect_golden("devices/server.txt", draw_devices(server(), {}));
  expect_golden("devices/server-measured.txt", draw_devices(server(true), {}));
  expect_golden("devices/server.json", devices_json(server()));
}

TEST(DevicesGolden, WithColour) {
  expect_golden("devices/server-color.txt",
                draw_devices(server(true), {.out = {.has_color = true}}));
}

TEST(DevicesGolden, WithoutUnicode) {
  expect_golden("devices/server-ascii.txt",
                draw_devices(server(true), {.out = {.has_unicode = false}}));
}

TEST(DevicesGolden, OnANarrowTerminal) {
  expect_golden("devices/server-narrow.txt", draw_devices(server(true), {.out = {.width = 48}}));
}

TEST(DevicesView, StaysWithinTheTerminal) {
  for (int width = 48; width < 140; ++width) {
    for (const DevicesReport& report : {laptop(), laptop(true), server(), server(true)}) {
      EXPECT_LE(widest_line(draw_devices(report, {.verbosity = 1, .out = {.width = width}})),
                width);
    }
  }
}

TEST(DevicesView, ShowsNoByteOfUnicodeWhereThereIsNone) {
  const std::string text = draw_devices(server(true), {.out = {.has_unicode = false}});
  for (const char c : text) ASSERT_LT(static_cast<unsigned char>(c), 0x80);
}

TEST(DevicesView, MeasuredDevicesAreDrawnOneByOne) {
  EXPECT_THAT(draw_devices(server(), {}), HasSubstr("cuda:0 to cuda:1  NVIDIA H200"));
  EXPECT_THAT(draw_devices(server(true), {}), Not(HasSubstr(" to cuda:1")));
}

TEST(DevicesView, SurvivesADeviceThatAnswersNothing) {
  DevicesReport report;
  report.devices.emplace_back();
  report.devices[0].problems = {"memory_info: the device failed [error 999]"};
  const std::string text = draw_devices(report, {});
  EXPECT_THAT(text, HasSubstr("problem  memory_info: the device failed [error 999]"));
  EXPECT_TRUE(report.has_problems());
  EXPECT_THAT(devices_json(report), HasSubstr("\"free_bytes\": null"));
}

TEST(DevicesView, SurvivesOddNumbers) {
  DeviceReport odd = sample_laptop(true);
  odd.account = memory::with_device_lines({}, {.free_bytes = 5, .total_bytes = 3}, {});
  odd.properties.multiprocessors = -1;
  odd.properties.hierarchy[0].instances = 0;
  odd.properties.hierarchy[1].size_bytes = UINT64_MAX;
  odd.properties.hierarchy[2].speed = device::LevelSpeed{};
  EXPECT_THAT(draw_devices({.devices = {odd}}, {}), HasSubstr("cpu:0"));
  EXPECT_THAT(devices_json({.devices = {odd}}), HasSubstr("\"used_bytes\": 0"));
  EXPECT_THAT(draw_devices({}, {}), HasSubstr("Next:"));
}

TEST(DevicesView, AMeasurementTheWrongWayRoundIsNotCalledSlower) {
  DeviceReport busy = sample_laptop(true);
  busy.properties.hierarchy.front().speed->read_bytes_per_second = 30e9;
  const std::string text = draw_devices({.devices = {busy}}, {});
  EXPECT_THAT(text, HasSubstr("main memory is read at 41.3 GB/s. A sum"));
}

TEST(DevicesView, ManyProcessesAreSummedUp) {
  DeviceReport card = sample_h200(0, false);
  card.processes->clear();
  for (int i = 0; i < 20; ++i)
    card.processes->push_back({.pid = i, .used_bytes = 1_MiB, .name = "p"});
  EXPECT_THAT(draw_devices({.devices = {card}}, {}), HasSubstr("and 12 more; -v lists them"));
  EXPECT_THAT(draw_devices({.devices = {card}}, {.verbosity = 1}), Not(HasSubstr("more; -v")));
}

TEST(DevicesJson, IsWhatTheSchemaSays) {
  DevicesReport broken = server();
  broken.devices[0].account.reset();
  broken.devices[0].processes.reset();
  broken.devices[0].problems = {"memory_info: the device failed"};
  for (const DevicesReport& report :
       {laptop(), laptop(true), server(true), broken, DevicesReport{}}) {
    const auto json = nlohmann::json::parse(devices_json(report));
    EXPECT_THAT(schema_mismatches(schema(), json), IsEmpty());
  }
}

TEST(DevicesJson, TheLinesOfTheAccountAddUp) {
  const auto json = nlohmann::json::parse(devices_json(server()));
  for (const auto& device : json["devices"]) {
    std::uint64_t sum = 0;
    for (const auto& line : device["account"]["lines"]) sum += line.get<std::uint64_t>();
    EXPECT_EQ(sum, device["total_bytes"]);
    EXPECT_EQ(device["account"]["total_bytes"], device["total_bytes"]);
  }
  EXPECT_EQ(json["devices"][1]["account"]["lines"]["other_processes_bytes"], 82_GiB);
}

TEST(DevicesJson, TheSchemaCheckFindsMistakes) {
  auto json = nlohmann::json::parse(devices_json(server()));
  json["devices"][0].erase("name");
  json["devices"][1]["free_bytes"] = -1;
  json["devices"][1]["extra"] = 1;
  json["devices"][2]["kind"] = "tpu";
  json["schema"] = "1";
  EXPECT_THAT(
      schema_mismatches(schema(), json),
      ::testing::UnorderedElementsAre("/devices/0: lacks \"name\"",
                                      "/devices/1/free_bytes: is below 0",
                                      "/devices/1/extra: is not in the schema",
                                      "/devices/2/kind: is none of [\"cpu\",\"cuda\",\"meta\"]",
                                      "/schema: is not 1"));
}

TEST(DevicesJson, ANameThatIsNotUtf8DoesNotBreakIt) {
  DevicesReport report = server();
  (*report.devices[1].processes)[0].name = "\xff\xfe";
  EXPECT_TRUE(nlohmann::json::accept(devices_json(report)));
}

}  // namespace
}  // namespace headroom::cli
